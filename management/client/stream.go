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

// Stream reads the log of a job. After a broken connection it reconnects and
// continues at the same byte, for up to Options.Patience since the last byte.
// Read is for one goroutine; Close is safe from any.
type Stream struct {
	c        *Client
	ctx      context.Context // of the reader: Read has no parameter for it
	cancel   context.CancelFunc
	path     string
	id       string
	offset   int64
	follow   bool
	body     io.ReadCloser // nil while disconnected
	from     *endpoint     // of body
	patience *patience
	err      error // the final result of Read
}

// Log opens the output of a job at the offset in bytes. With follow it ends with
// the job, otherwise at the current end of the log. id may be "active" or
// "last". The stream ends with the context; the caller has to close it.
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

// connect requests the log from the offset on. Options.Timeout bounds only the
// header of the answer.
func (s *Stream) connect() error {
	q := url.Values{"offset": {strconv.FormatInt(s.offset, 10)}}
	if s.follow {
		q.Set("follow", "true")
	}
	res, e, err := s.c.open(s.ctx, call{method: http.MethodGet, path: s.path, params: []string{s.id}, query: q})
	if err != nil {
		return err
	}
	id := res.Header.Get(api.HeaderJob)
	if id == "" {
		return e.notStream(res)
	}
	s.id = id // "active" may be another job after a reconnect
	s.body, s.from = res.Body, e

	return nil
}

// open sends a call with a streamed answer, and returns it with the instance that gives it. Options.Timeout bounds
// only the header of the answer. The caller has to close the body.
func (c *Client) open(ctx context.Context, k call) (*http.Response, *endpoint, error) {
	within, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(c.opt.Timeout, func() { cancel(context.DeadlineExceeded) })

	send := func(ctx context.Context, e *endpoint) (*http.Response, error) { return c.send(ctx, e, k) }
	res, from, _, err := failover(within, c, k, send, func(res *http.Response) { _ = res.Body.Close() })

	// A timer that fired has cancelled the body as well.
	if !timer.Stop() && err == nil {
		_ = res.Body.Close()
		err = from.explain(within, context.DeadlineExceeded)
	}

	if err != nil {
		cancel(nil)
		return nil, nil, err
	}

	res.Body = body{res.Body, cancel}

	return res, from, nil
}

// notStream closes an answer that is not a stream of clusterm and returns its error.
func (e *endpoint) notStream(res *http.Response) error {
	start, _ := io.ReadAll(io.LimitReader(res.Body, 1<<10))
	_ = res.Body.Close()
	return e.foreign(res, start)
}

// body cancels the context of its request on Close.
type body struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (b body) Close() error {
	b.cancel(nil)
	return b.ReadCloser.Close()
}

// Read reads bytes of the log. It blocks for new bytes when following, and
// returns io.EOF only at the end of the log.
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
			return n, nil // the next read returns the error again
		}

		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			s.err = io.EOF
		default:
			// The connection broke: the next round reconnects.
			_ = s.body.Close()
			s.body = nil
			s.c.route.avoid(s.from)
			s.err = s.patience.wait(s.ctx, s.from.explain(s.ctx, err))
		}
	}

	return 0, s.err
}

// Offset returns the position of the next byte in the log.
func (s *Stream) Offset() int64 { return s.offset }

// Job returns the id of the job.
func (s *Stream) Job() string { return s.id }

// Close ends the stream and unblocks Read.
func (s *Stream) Close() error {
	s.cancel()
	return nil
}

// Events calls each for the events of a job in order, from the offset in bytes
// on. With follow it returns nil at the end of the job, otherwise at the current
// end of the log. It stops at the first error of each and returns it. id may be
// "active" or "last".
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
			// A malformed line reaches the caller with its text.
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

// patience is the backoff and the limit of retries to an unreachable daemon.
type patience struct {
	limit time.Duration
	since time.Time // the first failure; zero without one
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

// wait sleeps before the next attempt. It returns err for an error that no retry
// can help, and after the limit.
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
