// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// watch measures the time from the request of an event to its arrival in a watch, one
// event after the other.
func watch(ctx context.Context, b *bench) error {
	const events = 200

	w, err := b.full(ctx, "")
	if err != nil {
		return err
	}
	defer w.discard()

	record, err := w.largest(ctx, keys+"/v/nodes/"+name(0))
	if err != nil {
		return err
	}

	watching, end := context.WithCancel(ctx)

	var watchers sync.WaitGroup
	defer watchers.Wait()
	defer end()

	// failed is valid after changed is closed.
	var failed error

	changed := make(chan api.Change, 1)

	watchers.Go(func() {
		defer close(changed)

		for change, err := range w.Watch(watching, client.WatchOptions{Kinds: []api.WatchKind{api.WatchNodes}}) {
			if err != nil {
				if watching.Err() == nil {
					failed = err
				}

				return
			}

			select {
			case changed <- change:
			case <-watching.Done():
				return
			}
		}
	})
	// A watch begins with the current nodes.
	for change := range changed {
		if change.Type == api.ChangeSync {
			break
		}
	}

	disappeared := make([]bool, b.nodes)
	next := 0

	product := func(ctx context.Context) (float64, error) {
		var took []float64
		for range events {
			i := next
			next = (next + 97) % b.nodes // nodes far apart

			kind, state := "disappeared", inventory.Disappeared
			if disappeared[i] {
				kind, state = "discovered", inventory.Discovered
			}

			disappeared[i] = !disappeared[i]
			begun := time.Now()

			// The change may arrive before the answer to the event.
			answered := make(chan error, 1)
			go func() { answered <- w.event(ctx, kind, i, 1, addrOf) }()

			for {
				change, open := <-changed
				if !open {
					return 0, errors.Join(errors.New("the watch has ended"), failed, <-answered)
				}

				// Progress events and late changes of other nodes.
				if change.Type != api.ChangePut || change.Name != name(i) {
					continue
				}

				took = append(took, float64(time.Since(begun).Microseconds())/1000)

				n, err := change.Node()
				if err == nil && n.State != state {
					err = fmt.Errorf("the watch has %s as %s, want %s", n.Name, n.State, state)
				}

				if err = errors.Join(err, <-answered); err != nil {
					return 0, err
				}

				break
			}
		}

		return p99(took), nil
	}

	prefix := w.prefixFor("watch")
	// The raw watch receives puts below this prefix only, not the product's writes.
	changes := w.raw.Watch(watching, prefix, clientv3.WithPrefix())
	baseline := func(ctx context.Context) (float64, error) {
		var took []float64
		for i := range events {
			begun := time.Now()

			answered := make(chan error, 1)
			go func() {
				_, err := w.raw.Put(ctx, prefix+name(i), record)
				answered <- err
			}()

			resp, open := <-changes
			if !open || resp.Err() != nil {
				return 0, fmt.Errorf("the raw watch has ended: %w", errors.Join(resp.Err(), <-answered))
			}

			took = append(took, float64(time.Since(begun).Microseconds())/1000)

			if err := <-answered; err != nil {
				return 0, err
			}
		}

		return p99(took), nil
	}

	return b.compare(ctx, comparison{
		name:     "event to watch, p99",
		unit:     "ms",
		against:  "raw put to raw watch, p99",
		rounds:   5,
		floor:    atMost(3, 5, "<= 3 x + 5 ms"),
		product:  product,
		baseline: baseline,
		note:     fmt.Sprintf("from POST /monitor/event to the change in /v1/watch, %d events a round", events),
	})
}
