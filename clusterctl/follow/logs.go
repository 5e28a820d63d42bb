// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"

	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// Output is the destination of everything that is followed.
type Output struct {
	Write func([]byte) error               // stdout
	Text  func([]byte) error               // stdout, for output of hosts; safe for a terminal
	Say   func(format string, args ...any) // one line on stderr
	print.Style
}

// LogSource gives access to the output of a job. Its methods fail at once while
// the manager is unreachable.
type LogSource interface {
	Job(ctx context.Context, id string) (api.Job, error)
	Log(ctx context.Context, id string, offset int64, follow bool) (*client.Stream, error)
	Events(ctx context.Context, id string, offset int64, follow bool, each func(api.Event) error) error
}

// LogOptions select the output of a job.
type LogOptions struct {
	Follow bool // block until the job has ended
	Events bool // one JSON object per event instead of the text
	Tail   int  // only the last lines of the output so far; 0: all

	// Timed prints one line with a time for each result of a host, instead of the
	// text, which has no times.
	Timed bool
	// Since leaves out earlier events. An event without a time counts as of the
	// event before it.
	Since time.Time

	Host string // only the events of this host; empty: all
	Task string // only the events of tasks with this in their names; empty: all
}

// Log prints the output of a job, or its events, as lines with times or as one JSON
// object per line. With Follow each attempt after an outage continues at the position
// of the previous one.
func Log(ctx context.Context, from LogSource, id string, lo LogOptions, out Output) error {
	o := newOutage(func(s string) { out.Say("%s", s) }, "")
	r := &logReader{from: from, id: id, follow: lo.Follow, since: lo.Since, out: out, outage: o}
	r.host, r.task = lo.Host, lo.Task

	read := r.text
	switch {
	case lo.Events:
		r.line = func(e api.Event) ([]byte, error) { return print.Compact(e) }
		read = r.events
	case lo.Timed:
		r.line = r.timedLine
		read = r.events
	case lo.Tail > 0:
		if err := r.tail(ctx, lo.Tail); err != nil || !lo.Follow {
			return err
		}
	}

	for {
		err := read(ctx)
		if err == nil || !r.began {
			return err
		}

		if err := o.retry(ctx, err); err != nil {
			return err
		}
	}
}

// logReader reads the output of one job in several attempts.
type logReader struct {
	from   LogSource
	id     string
	follow bool
	since  time.Time                       // of the first event to print
	host   string                          // of the events to print; empty: of all
	task   string                          // in the names of the tasks of the events to print; empty: of all
	line   func(api.Event) ([]byte, error) // of an event; nil: no line
	out    Output
	outage *outage

	began  bool      // the manager answered at least once
	offset int64     // of the text, in bytes
	shown  int       // events
	latest time.Time // of the events so far; zero without a time
	width  int       // of the longest host name so far
}

func (r *logReader) text(ctx context.Context) error {
	log, err := r.from.Log(ctx, r.id, r.offset, r.follow)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()

	// "active" and "last" can name another job at the next attempt.
	r.began, r.id = true, log.Job()
	r.outage.over()

	buf := make([]byte, 32<<10)
	for {
		n, err := log.Read(buf)
		if n > 0 {
			if err := r.out.Text(buf[:n]); err != nil {
				return err
			}

			r.offset += int64(n)
		}

		if errors.Is(err, io.EOF) {
			return nil
		}

		if err != nil {
			return err
		}
	}
}

// tail prints the last lines of the output so far, which it reads as a whole: the
// API reads from an offset only. A further read continues behind them.
func (r *logReader) tail(ctx context.Context, lines int) error {
	log, err := r.from.Log(ctx, r.id, 0, false)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()

	r.began, r.id = true, log.Job()

	text, err := io.ReadAll(log)
	if err != nil {
		return err
	}
	r.offset = int64(len(text))

	// The end of the last line is not the end of another one.
	from := len(bytes.TrimSuffix(text, []byte("\n")))
	for range lines {
		if from = bytes.LastIndexByte(text[:from], '\n'); from < 0 {
			break
		}
	}

	return r.out.Text(text[from+1:])
}

func (r *logReader) events(ctx context.Context) error {
	// Resolve "active" and "last" once.
	if !r.began {
		j, err := r.from.Job(ctx, r.id)
		if err != nil {
			return err
		}
		r.id, r.began = j.ID, true

		for _, name := range slices.Concat(j.Nodes, j.Addrs, j.Helpers) {
			r.width = max(r.width, runewidth.StringWidth(print.Line(name)))
		}
	}

	n := 0

	return r.from.Events(ctx, r.id, 0, r.follow, func(e api.Event) error {
		r.outage.over()

		if n++; n <= r.shown {
			return nil
		}

		r.shown = n

		if !e.Time.IsZero() {
			r.latest = e.Time
		}

		// Without any time so far, an event could be recent.
		if !r.latest.IsZero() && r.latest.Before(r.since) {
			return nil
		}

		if r.host != "" && e.Host != r.host || !strings.Contains(e.Task, r.task) {
			return nil
		}

		line, err := r.line(e)
		if err != nil || line == nil {
			return err
		}
		return r.out.Write(line)
	})
}

// timedLine formats an event with its time. It returns nil for an event of no
// interest.
func (r *logReader) timedLine(e api.Event) ([]byte, error) {
	r.width = max(r.width, runewidth.StringWidth(print.Line(e.Host)))

	text := eventLine(e, r.width, r.out.Paint)
	if text == "" {
		return nil, nil
	}
	return []byte(print.Pad(print.Time(r.latest), len(time.DateTime)) + "  " + text + "\n"), nil
}
