// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"

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

		// The view lags behind the write that conflicted.
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
// warn before each retry, and returns the cause of ctx if that ends first.
func RetryUnavailable(ctx context.Context, delay time.Duration, warn func(error), write func() error) error {
	attempt := func() (struct{}, error) {
		err := write()
		if err != nil && inventory.KindOf(err) != inventory.KindUnavailable {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}
	delays := &backoff.ExponentialBackOff{
		InitialInterval: delay, Multiplier: 2, MaxInterval: maxBackoff, RandomizationFactor: 0.2,
	}

	_, err := backoff.Retry(ctx, attempt,
		backoff.WithBackOff(delays),
		backoff.WithMaxElapsedTime(0), // ctx ends the attempts
		backoff.WithNotify(func(err error, _ time.Duration) { warn(err) }))

	return err
}
