// SPDX-License-Identifier: Apache-2.0

package git

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/contiv/cluster/inventory/localfile"
)

// lockPoll is the time between two attempts to lock a mirror.
const lockPoll = 50 * time.Millisecond

// lock locks the mirror against other goroutines and processes. It blocks until it has
// the lock or the context ends.
func (m *Mirror) lock(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(m.Dir, 0o700); err != nil {
		return nil, err
	}

	tick := time.NewTicker(lockPoll)
	defer tick.Stop()

	for {
		unlock, err := localfile.Lock(m.Dir, "lock")
		if !errors.Is(err, localfile.ErrLocked) {
			return unlock, err
		}

		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}
