// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"errors"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// watcher is what waiting for a job needs of the manager. The methods may be
// called at the same time.
type watcher interface {
	// WaitJob blocks until the job has ended, calling each with every change,
	// and fails at once when the manager does not answer.
	WaitJob(ctx context.Context, id string, each ...func(api.Job)) (api.Job, error)
	// Events blocks until the job has ended or the error is final.
	Events(ctx context.Context, id string, offset int64, follow bool, each func(api.Event) error) error
}

// twoClients waits without patience, so that an outage can be told of, and
// streams with patience.
type twoClients struct{ waiting, streaming watcher }

func (t twoClients) WaitJob(ctx context.Context, id string, each ...func(api.Job)) (api.Job, error) {
	return t.waiting.WaitJob(ctx, id, each...)
}

func (t twoClients) Events(
	ctx context.Context,
	id string,
	offset int64,
	follow bool,
	each func(api.Event) error,
) error {
	return t.streaming.Events(ctx, id, offset, follow, each)
}

// screen shows a job's progress. Its methods may be called at the same time.
type screen interface {
	job(api.Job)     // the job's record, at first and after every change; the same one may come twice
	event(api.Event) // what happened in it
	note(string)     // a line that stays
	close()          // ends it; nothing is called afterwards
}

const (
	patience   = 5 * time.Minute        // how long a manager may be away in the middle of something
	firstPause = 250 * time.Millisecond // between attempts to reach a manager that does not answer
	maxPause   = 3 * time.Second
	drainTime  = 3 * time.Second // how long the events of a job that has ended may take to arrive
)

// wait waits for a job and prints how it ended. A ctx that is cancelled detaches.
func (c *call) wait(ctx context.Context, j api.Job) error {
	end, err := j, error(nil)
	if !j.Status.Ended() {
		impatient, failed := c.dial(-1)
		if failed != nil {
			return failed
		}

		s := c.screen(j)
		end, err = follow(ctx, twoClients{impatient, c.manager}, j, s)
		s.close()
	}

	switch {
	case err != nil && ctx.Err() != nil:
		return failf(ExitInterrupted, "detached; job %s goes on", j.ID).
			do("to cancel it: %[1]s job cancel %[2]s\nto watch it:  %[1]s job wait %[2]s", c.self(), j.ID)
	case err != nil && exitCode(err) == ExitUnreachable:
		message, remedy := explain(err)

		return failf(ExitUnreachable, "%s; job %s may still run", message, j.ID).
			do("%s\nto watch it again: %s job wait %s", remedy, c.self(), j.ID)
	case err != nil:
		return err
	}

	if c.format == formatTable {
		err = c.show(view{table: func(p *printer) { p.summary(end) }})
	} else {
		err = c.showJob(end)
	}

	if err != nil || end.Status == api.Complete {
		if err == nil {
			c.say("job %s is %s%s", end.ID, end.Status, tookText(end))

			if end.Message != "" {
				c.say("warning: %s", oneLine(end.Message))
			}
		}

		return err
	}

	for _, line := range failures(end) {
		c.say("%s", line)
	}

	reason := oneLine(end.Message)
	if reason == "" {
		reason = oneLine(end.Cause)
	}

	if reason != "" {
		reason = ": " + reason
	}

	f := failf(ExitJobFailed, "job %s (%s) is %s%s%s", end.ID, end.Verb, end.Status, tookText(end), reason)
	if len(end.Runs) == 0 && end.LogBytes == 0 {
		return f.do("why, and what helps: %s job why %s", c.self(), end.ID)
	}

	return f.do("why, and what helps: %[1]s job why %[2]s\nto read its output:  %[1]s job logs %[2]s", c.self(), end.ID)
}

func tookText(j api.Job) string {
	if t := took(j.Started, j.Ended); t != "" {
		return " after " + t
	}

	return ""
}

func (a *app) errPaint() paint { return paint(a.errTTY && colourful()) }

// follow shows the job's progress until it has ended, and returns its last
// record. It puts up with a manager that is away, for as long as patience.
func follow(ctx context.Context, w watcher, j api.Job, s screen) (api.Job, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.job(j)

	streamed := make(chan struct{})
	go func() {
		defer close(streamed)
		stream(ctx, w, j.ID, s)
	}()

	end, err := await(ctx, w, j.ID, s)
	if err == nil {
		t := time.NewTimer(drainTime)
		defer t.Stop()

		select {
		case <-streamed:
		case <-ctx.Done():
		case <-t.C:
		}
	}

	cancel()
	<-streamed

	return end, err
}

// await waits for the job's end.
func await(ctx context.Context, w watcher, id string, s screen) (api.Job, error) {
	o := outage{note: s.note, suffix: ", and the job goes on"}
	for {
		end, err := w.WaitJob(ctx, id, func(j api.Job) {
			o.over()
			s.job(j)
		})
		if err == nil {
			return end, nil
		}

		if err := o.wait(ctx, err); err != nil {
			return end, err
		}
	}
}

// outage is the time in which a manager that had answered does not, as after a
// restart. It tells of its beginning and its end.
type outage struct {
	note   func(string)
	suffix string    // of the note
	since  time.Time // zero: there is none
	pause  time.Duration
}

// over tells it that the manager has answered.
func (o *outage) over() {
	if !o.since.IsZero() {
		o.note("the manager answers again")
	}

	o.since, o.pause = time.Time{}, 0
}

// begin tells it that the manager has not answered.
func (o *outage) begin(err error) {
	if o.since.IsZero() {
		o.since = time.Now()
		message, _ := explain(err)
		o.note(message + "; waiting for it for up to " + duration(patience) + o.suffix)
	}
}

// wait pauses before the next attempt, or returns err where there is to be none.
func (o *outage) wait(ctx context.Context, err error) error {
	if ctx.Err() != nil || inventory.KindOf(err) != inventory.KindUnavailable {
		return err
	}

	o.begin(err)

	if time.Since(o.since) >= patience {
		return err
	}

	o.pause = min(max(2*o.pause, firstPause), maxPause)

	return sleep(ctx, o.pause)
}

// stream shows the job's events, each of them once, until there will be no more.
func stream(ctx context.Context, w watcher, id string, s screen) {
	seen, pause := 0, firstPause
	for {
		n := 0
		err := w.Events(ctx, id, 0, true, func(e api.Event) error {
			if n++; n > seen {
				seen, pause = n, firstPause
				s.event(e)
			}

			return nil
		})
		// What went wrong here is not the job's end: await says when that is.
		if err == nil || errors.Is(err, context.Canceled) || sleep(ctx, pause) != nil {
			return
		}

		pause = min(2*pause, maxPause)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()

	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
