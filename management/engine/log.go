// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"strings"
	"time"
	"unicode"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
)

// logPoll is how often a follower looks for bytes that another process wrote.
const logPoll = time.Second

// LogSize returns the size of a job's log so far, in bytes.
func (e *Engine) LogSize(ctx context.Context, id string, s job.Stream) (int64, error) {
	return e.store.LogSize(ctx, id, s)
}

// Log emits a job's log from the offset on, in order and without gaps. With
// follow it goes on until the job has ended and everything is emitted. Readers
// pull: a slow emit delays nobody else and holds one chunk in memory.
func (e *Engine) Log(
	ctx context.Context, id string, s job.Stream, offset int64, follow bool,
	emit func(offset int64, data []byte) error,
) error {
	if offset < 0 {
		return inventory.Errorf(inventory.KindInvalid, "the offset is negative")
	}

	poll := time.NewTicker(logPoll)
	defer poll.Stop()

	for {
		// Take the channels first: a change after the read must wake the wait.
		e.mu.Lock()
		appended := e.appended
		e.mu.Unlock()

		changed := e.state.Changed()

		j, err := e.state.View().Job(id)
		if err != nil {
			return err
		}
		data, err := e.store.ReadLog(ctx, j.ID, s, offset)
		if err != nil {
			return err
		}

		if len(data) > 0 {
			if err := emit(offset, data); err != nil {
				return err
			}

			offset += int64(len(data))

			continue
		}

		if !follow || j.Status.Ended() {
			return nil
		}

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-appended:
		case <-changed:
		case <-poll.C:
		}
	}
}

// logSizes returns the sizes of both logs of a job.
func (e *Engine) logSizes(ctx context.Context, id string) (text, events int64, err error) {
	err = e.retryUnavailable(ctx, func() (err error) {
		if text, err = e.store.LogSize(ctx, id, job.StreamText); err != nil {
			return err
		}

		events, err = e.store.LogSize(ctx, id, job.StreamEvents)
		return err
	})

	return text, events, err
}

// append adds bytes to a job's log, and retries while the store is unavailable.
func (e *Engine) append(ctx context.Context, id string, s job.Stream, offset int64, data []byte) error {
	err := e.retryUnavailable(ctx, func() error { return e.store.AppendLog(ctx, id, s, offset, data) })

	e.mu.Lock()
	close(e.appended)
	e.appended = make(chan struct{})
	e.mu.Unlock()

	return err
}

// logLine adds a line of the manager's own to a job's output, and returns the size of the
// output then. The line may quote hosts, so control characters are removed: they must not
// move a reader's cursor.
func (e *Engine) logLine(ctx context.Context, j job.Job, line string) (size int64, err error) {
	text := []byte(oneLine(line) + "\n")

	// Before its first run, a job rarely has output. A conflict tells.
	if len(j.Runs) == 0 {
		err := e.append(ctx, j.ID, job.StreamText, 0, text)
		if inventory.KindOf(err) != inventory.KindConflict {
			return int64(len(text)), err
		}
	}

	return e.logText(ctx, j.ID, text)
}

// logText adds text to a job's output, and returns the size of the output then.
func (e *Engine) logText(ctx context.Context, id string, text []byte) (size int64, err error) {
	err = e.retryUnavailable(ctx, func() error {
		if size, err = e.store.LogSize(ctx, id, job.StreamText); err != nil {
			return err
		}
		return e.append(ctx, id, job.StreamText, size, text)
	})

	return size + int64(len(text)), err
}

func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\r', r == '\t':
			return ' '
		case unicode.IsControl(r):
			return unicode.ReplacementChar
		}

		return r
	}, text)
}
