// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"time"

	"github.com/contiv/cluster/inventory"
)

// Reader gives access to the newest view. All methods may be called at once.
type Reader interface {
	// View returns the newest view, never nil.
	View() *View
	// Changed returns a channel that is closed when a newer view exists.
	Changed() <-chan struct{}
	// Wait blocks until the view has reached the revision.
	Wait(ctx context.Context, revision int64) error
	// Sync asks the store for its revision, by quorum, and blocks until the
	// view has reached it.
	Sync(ctx context.Context) error
}

// conflictAttempts limits how often a decision is taken again.
const conflictAttempts = 20

// RetryConflict decides on the newest view and writes with a guard. It retries
// on a newer view as long as decide returns KindConflict.
func RetryConflict(ctx context.Context, r Reader, decide func(*View) error) error {
	var err error
	for range conflictAttempts {
		if err = decide(r.View()); inventory.KindOf(err) != inventory.KindConflict {
			return err
		}

		if err := r.Sync(ctx); err != nil {
			return err
		}
	}

	return err
}

// maxBackoff is the longest delay between attempts of RetryUnavailable.
const maxBackoff = 5 * time.Second

// RetryUnavailable retries a write, with exponential backoff from the given
// delay, as long as it returns KindUnavailable and ctx has not ended. It calls
// warn before each retry.
func RetryUnavailable(ctx context.Context, delay time.Duration, warn func(error), write func() error) error {
	for {
		err := write()
		if inventory.KindOf(err) != inventory.KindUnavailable {
			return err
		}

		warn(err)

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(delay):
		}

		delay = min(2*delay, maxBackoff)
	}
}
