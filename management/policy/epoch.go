// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"sync"
	"time"

	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/state"
)

// clock remembers since when this process decides on an even clock. All methods may be called
// at once.
type clock struct {
	mu      sync.Mutex
	clock   Clock
	epoch   time.Time // zero: from the next reading on
	stepped time.Time // the newest jump; zero: none
}

// read returns the time, and gives the start since when the process decides on an even clock, and
// the newest jumps.
func (c *clock) read(clock func() (time.Time, time.Duration), start Start) (time.Time, Start) {
	c.mu.Lock()
	defer c.mu.Unlock()

	now, steady := clock()

	start.Jumps = c.clock.Read(now, steady)
	if stepped := start.Stepped(); c.epoch.IsZero() || !stepped.Equal(c.stepped) {
		c.epoch, c.stepped = now.Round(0), stepped
	}

	start.Epoch = c.epoch

	return now, start
}

// yield notes that another process decides, with a clock that may differ.
func (c *clock) yield() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch = time.Time{}
}

// mend takes times in the future out of the records of nodes.
func (l *Loop) mend(ctx context.Context, settings Settings) error {
	return state.RetryConflict(ctx, l.State, func(v *state.View) error {
		ahead := Ahead(l.world(v, settings))
		writes := make([]state.NodeWrite, len(ahead))

		for i, n := range ahead {
			writes[i].Node = n
		}

		if len(writes) > 0 {
			l.Logger.WithField("nodes", len(writes)).
				Warn("records of nodes have times in the future, because the clock " +
					"was changed; they count from now on")
		}

		return node.PutNodes(ctx, l.Store, writes)
	})
}
