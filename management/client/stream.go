// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// Stream reads a job's log. When the connection breaks it connects again by
// itself and goes on at the byte where it was, for as long as Options.Patience
// since the last byte. It is for one goroutine; Close may be called by another.
type Stream struct {
	c        *Client
	ctx      context.Context // of the reader: Read has no parameter for it
	cancel   context.CancelFunc
	path     string
	id       string
	offset   int64
	follow   bool
	body     io.ReadCloser // nil: not connected
	patience *patience
	err      error // what every further Read returns
}

// Log opens the output of a job at the offset in bytes. With follow it ends
// when the job has ended, else where the log is now. id may be "active" or
// "last". The stream ends with the context; it has to be closed.
func (c *Client) Log(ctx context.Context, id string, offset int64, follow bool) (*Stream, error) {
	return c.stream(ctx, api.PathLog, id, offset, follow)
}

func (c *Client) stream(ctx context.Context, path, id string, offset int64, follow bool) (*Stream, error) {
	if offset < 0 {
		return nil, inventory.Errorf(inventory.KindInvalid, "the offset is negative: %d", offset)
	}

	ctx, cancel := context.WithCancel(ctx)

	s := &Stream{
		c:        c,
		ctx:      ctx,
		cancel:   cancel,
		path:     path,
		id:       id,
		offset:   offset,
		follow:   follow,
		patience: c.patience(),
	}
	if err := s.connect(); err != nil {
		cancel()
		return nil, err
	}

	return s, nil
}

// connect asks for the log from the offset on. Only the answer's header has to
// come in time.
func (s *Stream) connect() error {
	q := url.Values{"offset": {strconv.FormatInt(s.offset, 10)}}
	if s.follow {
		q.Set("follow", "true")
	}

	res, err := s.c.open(s.ctx, call{method: http.MethodGet, path: s.path, params: []string{s.id}, query: q})
	if err != nil {
		return err
	}

	id := res.Header.Get(api.HeaderJob)
	if id == "" {
		return s.c.notAStream(res)
	}

	s.id = id // "active" may be another one by the time we connect again
	s.body = res.Body

	return nil
}

// open sends a call whose answer may take any time; only its header has to come
// in time. The body has to be closed.
func (c *Client) open(ctx context.Context, k call) (*http.Response, error) {
	within, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(c.opt.Timeout, func() { cancel(context.DeadlineExceeded) })

	res, err := c.send(within, k)
	if !timer.Stop() && err == nil {
		_ = res.Body.Close()
		err = context.DeadlineExceeded
	}

	if err != nil {
		if errors.Is(context.Cause(within), context.DeadlineExceeded) {
			err = context.DeadlineExceeded
		}

		cancel(nil)

		return nil, c.explain(ctx, err)
	}

	res.Body = body{res.Body, cancel}

	return res, nil
}

// notAStream closes an answer that the daemon would not give.
func (c *Client) notAStream(res *http.Response) error {
	start, _ := io.ReadAll(io.LimitReader(res.Body, 1<<10))
	_ = res.Body.Close()

	return c.stranger(res, start)
}

// body releases its request's context when it is closed.
type body struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (b body) Close() error {
	b.cancel(nil)
	return b.ReadCloser.Close()
}

// Read reads bytes of the log. It returns io.EOF at the log's end only.
func (s *Stream) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}

	for s.err == nil {
		if s.body == nil {
			if err := s.connect(); err != nil {
				s.err = s.patience.wait(s.ctx, err)
				continue
			}
		}

		n, err := s.body.Read(p)
		if n > 0 {
			s.offset += int64(n)
			s.patience.reset()

			return n, nil // an error comes again
		}

		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			s.err = io.EOF
		default:
			_ = s.body.Close()
			s.body = nil
			s.err = s.patience.wait(s.ctx, s.c.explain(s.ctx, err))
		}
	}

	return 0, s.err
}

// Offset is where the next byte that Read returns is in the log.
func (s *Stream) Offset() int64 { return s.offset }

// Job is the id of the job.
func (s *Stream) Job() string { return s.id }

// Close ends the stream, and a Read that is waiting.
func (s *Stream) Close() error {
	s.cancel()
	return nil
}

// Events calls each with what happens in a job, in order, from the offset in
// bytes on. With follow it returns nil when the job has ended, else where the
// log is now. An error of each ends it and is returned. id may be "active" or
// "last".
func (c *Client) Events(ctx context.Context, id string, offset int64, follow bool, each func(api.Event) error) error {
	s, err := c.stream(ctx, api.PathEvents, id, offset, follow)
	if err != nil {
		return err
	}

	defer func() { _ = s.Close() }()

	lines := bufio.NewReaderSize(s, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			var e api.Event
			if json.Unmarshal(line, &e) != nil || e.Event == "" {
				e = api.Event{Event: api.EventUnreadable, Message: string(line)}
			}

			if err := each(e); err != nil {
				return err
			}
		}

		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// patience spaces attempts to reach a daemon that does not answer, and ends them.
type patience struct {
	limit time.Duration
	since time.Time // of the first failure; zero: none
	retry *backoff.ExponentialBackOff
}

const (
	firstPause = 50 * time.Millisecond
	maxPause   = 2 * time.Second
)

func (c *Client) patience() *patience {
	return &patience{limit: c.opt.Patience, retry: &backoff.ExponentialBackOff{
		InitialInterval: firstPause, Multiplier: 2, MaxInterval: maxPause, RandomizationFactor: 0.5,
	}}
}

func (p *patience) reset() {
	p.since = time.Time{}
	p.retry.Reset()
}

// wait pauses before the next attempt. It returns err where another attempt
// makes no sense.
func (p *patience) wait(ctx context.Context, err error) error {
	if ctx.Err() != nil || inventory.KindOf(err) != inventory.KindUnavailable {
		return err
	}

	now := time.Now()
	if p.since.IsZero() {
		p.since = now
	}

	if now.Sub(p.since) >= p.limit {
		return err
	}

	t := time.NewTimer(min(p.retry.NextBackOff(), p.limit))
	defer t.Stop()

	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
