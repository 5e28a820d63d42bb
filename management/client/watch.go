// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"iter"
	"net/url"
	"strconv"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// WatchOptions select the objects to watch. The zero value selects everything.
type WatchOptions struct {
	// Kinds are by default nodes, jobs, vars and config, or only nodes if a field below
	// selects nodes. api.WatchAll is every kind that the caller may read.
	Kinds []api.WatchKind
	// Names, Groups and Selector select nodes that match all of them. A node that
	// no longer matches comes as ChangeDelete.
	Names, Groups []string
	Selector      string
	// Since resumes after a revision of which the caller has the state. 0 begins
	// with the current state.
	Since int64
	// Lost, unless nil, is called with the error before each reconnect. The next
	// change proves that the daemon is back.
	Lost func(error)
}

// Watch yields the current objects as ChangePut, then ChangeSync, then every
// change as it happens. A change may come twice.
//
// After a broken connection or a restart of the daemon, the watch resumes for up
// to Options.Patience since the last response. If the daemon no longer has the
// changes in between, the watch repeats the current objects, yields ChangeDelete
// for those that are gone, and ChangeSync. A caller that applies every put and
// delete therefore has the daemon's state from each ChangeSync on.
//
// With Since only the caller has the earlier state. If the daemon no longer has
// the changes since then, the watch ends with KindExpired.
//
// The watch ends with an error, that of the context included, or with the
// caller's loop.
func (c *Client) Watch(ctx context.Context, o WatchOptions) iter.Seq2[api.Change, error] {
	return func(yield func(api.Change, error) bool) {
		w := &watch{c: c, o: o, after: o.Since, known: map[subject]bool{}}

		p := c.patience()

		err := c.reconnect(ctx, p, o.Lost, func() error {
			return w.resume(ctx, func(change api.Change) bool {
				if w.synced {
					p.reset()
				}
				return yield(change, nil)
			})
		})
		if err != nil {
			yield(api.Change{}, err)
		}
	}
}

// subject identifies a watched object.
type subject struct {
	kind api.WatchKind
	name string
}

// watch is the progress of a Watch over its connections.
type watch struct {
	c      *Client
	o      WatchOptions
	after  int64            // revision to resume after; 0: start over
	known  map[subject]bool // the objects that the caller has
	synced bool             // this connection has reached ChangeSync
}

// resume watches until the connection ends. If it is too late to resume, it starts over
// and compares with the known objects.
func (w *watch) resume(ctx context.Context, yield func(api.Change) bool) error {
	for {
		err := w.connection(ctx, yield)
		if inventory.KindOf(err) != inventory.KindExpired || w.after == 0 || w.o.Since != 0 || ctx.Err() != nil {
			return err
		}

		w.after = 0
	}
}

// connection watches until the connection ends.
func (w *watch) connection(ctx context.Context, yield func(api.Change) bool) error {
	w.synced = false
	fresh := map[subject]bool(nil) // the initial state; nil for a resumed watch

	q := url.Values{"name": w.o.Names, "group": w.o.Groups}
	for _, kind := range w.o.Kinds {
		q.Add("kinds", string(kind))
	}

	if w.o.Selector != "" {
		q.Set("selector", w.o.Selector)
	}

	if w.after > 0 {
		q.Set("since", strconv.FormatInt(w.after, 10))
	} else {
		fresh = map[subject]bool{}
	}

	return w.c.readEvents(ctx, api.PathWatch, q, nil, func(data []byte, id int64) error {
		change, err := decodeEvent[api.Change](w.c, data)
		if err == nil {
			err = w.take(change, &fresh, yield)
		}

		if err == nil && id > 0 {
			w.after = id
		}

		return err
	})
}

// take records a change and yields it.
func (w *watch) take(change api.Change, fresh *map[subject]bool, yield func(api.Change) bool) error {
	s := subject{change.Kind, change.Name}
	switch change.Type {
	case api.ChangePut:
		w.known[s] = true
		if *fresh != nil {
			(*fresh)[s] = true
		}
	case api.ChangeDelete:
		if !w.known[s] && w.o.Since == 0 {
			return nil // a repeated delete
		}

		delete(w.known, s)
	case api.ChangeSync:
		// Known objects outside the initial state were deleted in between.
		if *fresh != nil {
			for gone := range w.known {
				if (*fresh)[gone] {
					continue
				}

				delete(w.known, gone)

				if !yield(
					api.Change{Type: api.ChangeDelete, Kind: gone.kind, Name: gone.name, Revision: change.Revision},
				) {
					return errEnded
				}
			}

			*fresh = nil
		}

		w.synced = true
	case api.ChangeDropped:
		return nil // the daemon closes the connection, and the next resumes
	}

	if !yield(change) {
		return errEnded
	}

	return nil
}
