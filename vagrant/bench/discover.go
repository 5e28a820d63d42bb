// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// discover measures a fresh clusterm in each round, so that all nodes are new.
func discover(ctx context.Context, b *bench) error {
	var w *world
	defer func() {
		if w != nil {
			_ = w.close()
		}
	}()

	return b.compare(ctx, comparison{
		name:    "nodes discovered, until listed",
		unit:    "nodes/s",
		against: "raw etcd puts of as many records, 100 to a transaction",
		rounds:  3,
		floor:   atLeast(0.3),
		note: "1000 to a request, one request after the other; " +
			"clusterm also writes a history entry for each node, the baseline does not",
		product: func(ctx context.Context) (float64, error) {
			if w != nil {
				if err := w.close(); err != nil {
					return 0, err
				}

				w = nil
			}

			fresh, err := b.world(ctx, "")
			if err != nil {
				return 0, err
			}

			// The measurement begins with a world that answers.
			w = fresh
			begun := time.Now()

			if err := w.fill(ctx, b.nodes); err != nil {
				return 0, err
			}

			var buf bytes.Buffer
			if err := fetch(ctx, w.http, w.url+"/info/nodes", &buf); err != nil {
				return 0, err
			}

			took := time.Since(begun)

			if n := bytes.Count(buf.Bytes(), []byte(`"monitoring_state":`)); n != b.nodes {
				return 0, fmt.Errorf("the list has %d nodes, want %d", n, b.nodes)
			}

			return float64(b.nodes) / took.Seconds(), nil
		},
		baseline: func(ctx context.Context) (float64, error) {
			// The baseline may be the first side to run.
			if w == nil {
				fresh, err := b.full(ctx, "")
				if err != nil {
					return 0, err
				}

				w = fresh
			}

			record, err := w.largest(ctx, keys+"/v/nodes/"+name(0))
			if err != nil {
				return 0, err
			}

			// A new prefix in each round, so that puts create keys, as the product's do.
			prefix := w.prefixFor("puts")
			begun := time.Now()

			for first := 0; first < b.nodes; first += 100 {
				var ops []clientv3.Op
				for i := first; i < min(first+100, b.nodes); i++ {
					ops = append(ops, clientv3.OpPut(prefix+name(i), record))
				}

				if _, err := w.raw.Txn(ctx).Then(ops...).Commit(); err != nil {
					return 0, err
				}
			}

			return float64(b.nodes) / time.Since(begun).Seconds(), nil
		},
	})
}
