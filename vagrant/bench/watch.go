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

// watch measures, one event after the other, how long it takes from the request
// until a watch has told of it.
func watch(ctx context.Context, b *bench) error {
	const events = 200

	w, err := b.full(ctx, "")
	if err != nil {
		return err
	}
	defer w.close() //nolint:errcheck // measured already

	record, err := w.largest(ctx, keys+"/v/nodes/"+name(0))
	if err != nil {
		return err
	}

	watching, end := context.WithCancel(ctx)

	var watchers sync.WaitGroup
	defer watchers.Wait()
	defer end()
	told := make(chan api.Change, 1)
	var failed error
	watchers.Go(func() {
		defer close(told)

		for change, err := range w.Watch(watching, client.WatchOptions{Kinds: []api.WatchKind{api.WatchNodes}}) {
			if err != nil {
				if watching.Err() == nil {
					failed = err
				}

				return
			}

			select {
			case told <- change:
			case <-watching.Done():
				return
			}
		}
	})
	// What there is comes first.
	for change := range told {
		if change.Type == api.ChangeSync {
			break
		}
	}

	states := make([]bool, b.nodes) // which nodes were reported as gone
	next := 0
	product := func(ctx context.Context) (float64, error) {
		var took []float64
		for range events {
			i := next
			next = (next + 97) % b.nodes

			kind, state := "disappeared", inventory.Disappeared
			if states[i] {
				kind, state = "discovered", inventory.Discovered
			}

			states[i] = !states[i]
			begun := time.Now()

			answered := make(chan error, 1)
			go func() { answered <- w.event(ctx, kind, i, 1, addrOf) }()

			for {
				change, open := <-told
				if !open {
					return 0, errors.Join(errors.New("the watch has ended"), failed, <-answered)
				}

				if change.Type != api.ChangePut || change.Name != name(i) {
					continue
				}

				took = append(took, float64(time.Since(begun).Microseconds())/1000)

				n, err := change.Node()
				if err == nil && n.State != state {
					err = fmt.Errorf("%s is told as %s, not as %s", n.Name, n.State, state)
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
		note:     fmt.Sprintf("from POST /monitor/event until /v1/watch has told, %d events a round", events),
	})
}
