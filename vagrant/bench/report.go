// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"
)

// reports is the number of requests in a round of the row report.
const reports = 500

// reported measures reports of one node each, sent one after the other by one client. Each
// of them changes the state of a node in a full inventory, and is durable when it is
// answered.
func reported(ctx context.Context, b *bench) error {
	w, err := b.full(ctx, "")
	if err != nil {
		return err
	}
	defer w.discard()

	record, err := w.largest(ctx, keys+"/v/nodes/"+name(0))
	if err != nil {
		return err
	}

	disappeared := make([]bool, b.nodes)
	next := 0

	product := func(ctx context.Context) (float64, error) {
		begun := time.Now()

		for range reports {
			i := next
			next = (next + 97) % b.nodes // nodes far apart

			kind := "disappeared"
			if disappeared[i] {
				kind = "discovered"
			}

			disappeared[i] = !disappeared[i]

			if err := w.event(ctx, kind, i, 1, addrOf); err != nil {
				return 0, err
			}
		}

		return reports / time.Since(begun).Seconds(), nil
	}

	baseline := func(ctx context.Context) (float64, error) {
		prefix := w.prefixFor("single")
		begun := time.Now()

		for i := range reports {
			if _, err := w.raw.Put(ctx, prefix+name(i), record); err != nil {
				return 0, err
			}
		}

		return reports / time.Since(begun).Seconds(), nil
	}

	return b.compare(ctx, comparison{
		name:     "reports of one node, one client",
		unit:     "/s",
		against:  "raw etcd puts of a record, one after the other",
		rounds:   9,
		floor:    atLeast(0.5),
		product:  product,
		baseline: baseline,
		note: "each request changes the state of a node and also writes a history entry; " +
			"the baseline writes the record alone",
	})
}
