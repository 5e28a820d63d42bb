// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"errors"
	"time"

	"github.com/contiv/cluster/management/api"
)

// Jobs gives access to a running job. The methods may be called concurrently.
type Jobs interface {
	// WaitJob blocks until the job has ended and calls each with every change.
	WaitJob(ctx context.Context, id string, each ...func(api.Job)) (api.Job, error)
	// Events reads the events of a job from an offset in bytes; with follow it
	// blocks until the job has ended.
	Events(ctx context.Context, id string, offset int64, follow bool, each func(api.Event) error) error
}

// Clients are two connections to the same manager.
type Clients struct {
	Impatient Jobs // fails at once, so that an outage can be reported
	Patient   Jobs // retries by itself
}

// Screen shows the progress of a job. Its methods may be called concurrently.
type Screen interface {
	Job(api.Job)     // the record: first and after every change; may repeat
	Event(api.Event) // one event of the job
	Note(string)     // a line that stays visible
	Close()          // ends the display; no other call may follow
}

// drainTime bounds the wait for the last events of a job that has ended.
const drainTime = 3 * time.Second

// Job shows the progress of a job until the job ends, and returns its last
// record. If ctx is cancelled it returns the cause; the job continues.
func Job(ctx context.Context, c Clients, j api.Job, s Screen) (api.Job, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.Job(j)

	streamed := make(chan struct{})
	go func() {
		defer close(streamed)
		streamEvents(ctx, c.Patient, j.ID, s)
	}()

	end, err := awaitEnd(ctx, c.Impatient, j.ID, s)
	if err == nil {
		// The record of the end can overtake the last events.
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

// awaitEnd blocks until the job has ended, across outages of the manager.
func awaitEnd(ctx context.Context, m Jobs, id string, s Screen) (api.Job, error) {
	o := newOutage(s.Note, "; the job continues")
	for {
		end, err := m.WaitJob(ctx, id, func(j api.Job) {
			o.over()
			s.Job(j)
		})
		if err == nil {
			return end, nil
		}
		if err := o.retry(ctx, err); err != nil {
			return end, err
		}
	}
}

// streamEvents shows each event of the job once, until the stream ends or ctx is done.
func streamEvents(ctx context.Context, m Jobs, id string, s Screen) {
	shown, delays := 0, newBackoff()
	for {
		n := 0
		err := m.Events(ctx, id, 0, true, func(e api.Event) error {
			// A retry reads the stream from its beginning.
			if n++; n > shown {
				shown = n
				delays.Reset()
				s.Event(e)
			}

			return nil
		})
		// A broken stream is not an error of the job: awaitEnd decides about its end.
		if err == nil || errors.Is(err, context.Canceled) || sleep(ctx, delays.NextBackOff()) != nil {
			return
		}
	}
}
