// SPDX-License-Identifier: Apache-2.0

package survivor

import (
	"context"
	"errors"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
)

// Run runs daemons of the instance one after the other, until ctx ends or one fails for good. After all other instances
// are gone, the next one begins alone.
func (h Host) Run(ctx context.Context, daemon func() error) error {
	for {
		if err := h.Settle(ctx); err != nil {
			return err
		}

		err := daemon()

		if split, ok := errors.AsType[*Split](err); ok {
			return h.Stop(context.WithoutCancel(ctx), *split)
		}
		if ctx.Err() != nil {
			return err
		}

		if !errors.Is(err, ErrAlone) && (inventory.KindOf(err) != inventory.KindUnavailable || !h.gone(ctx)) {
			return err
		}

		// Another one may listen again by now.
		if err := h.recover(ctx); inventory.KindOf(err) == inventory.KindRefused {
			h.Logger.WithError(err).Warn("this instance does not go on alone")
		} else if err != nil {
			return err
		}
	}
}

// gone waits, after a daemon did not find a majority at its start, until it is known whether all others are gone. It is
// the daemon that looks otherwise.
func (h Host) gone(ctx context.Context) bool {
	others, err := etcd.Others(h.Server.Dir)
	if h.After == 0 || err != nil || len(others) == 0 {
		return false
	}

	gossip, err := h.Gossip()
	if err == nil {
		err = gossip.Join(ctx)
	}
	if err != nil {
		h.Logger.WithError(err).Warn("it is not known whether the other instances are gone")
		return false
	}

	defer func() {
		if err := gossip.Close(); err != nil {
			h.Logger.WithError(err).Warn("the gossip did not end well")
		}
	}()
	defer h.working("waiting for the other instances")()

	// It ends by itself: while another one is there, the daemon tries again.
	watch := Watch{Dir: h.Server.Dir, After: h.After, Alive: gossip.Alive, Logger: h.Logger}

	return errors.Is(watch.Run(ctx), ErrAlone)
}

// Settle ends what an earlier daemon began: it refuses an instance without which the manager went on, and goes on alone
// if that was interrupted.
func (h Host) Settle(ctx context.Context) error {
	if err := h.Refuse(ctx); err != nil {
		return err
	}

	if h.After > 0 && etcd.Recovering(h.Server.Dir) {
		return h.recover(ctx)
	}

	return nil
}

func (h Host) recover(ctx context.Context) error {
	defer h.working("going on alone")()
	return h.Recover(ctx)
}

// working tells the supervisor what takes its time, until the returned function is called.
func (h Host) working(what string) (done func()) {
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{})

	go func() {
		defer close(stopped)

		tick := time.NewTicker(tellEvery)
		defer tick.Stop()

		for {
			if h.Status != nil {
				h.Status(what)
			}

			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()

	return func() { cancel(); <-stopped }
}

// tellEvery is the time between two words to the supervisor, which would end a start that takes too long.
const tellEvery = 20 * time.Second
