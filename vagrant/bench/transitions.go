// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// atOnce is the number of nodes with concurrent transitions.
const atOnce = 64

// quarantine makes the first nodes Quarantined: it forgets them and reports them again.
func (w *world) quarantine(ctx context.Context, count int) error {
	var nodes []string
	for i := range count {
		nodes = append(nodes, name(i))
	}

	if _, err := w.Forget(ctx, api.Forget{Nodes: nodes, Force: true}); err != nil {
		return err
	}

	return w.fill(ctx, count)
}

// clear submits the only verb that needs no playbook. With force it takes a node from
// Quarantined to Decommissioning at its claim, and to Unallocated at its end.
func (w *world) clear(ctx context.Context, nodes ...string) error {
	j, err := w.Submit(ctx, api.JobRequest{Verb: inventory.VerbClear, Nodes: nodes, Force: true, Reason: "bench"})
	if err != nil {
		return err
	}

	if j, err = w.WaitJob(ctx, j.ID); err == nil && j.Status != api.Complete {
		err = fmt.Errorf("job %s is %s: %s", j.ID, j.Status, j.Message)
	}

	return err
}

// swaps makes the same transitions with the raw client: a transaction replaces the
// record of a node, if its revision is unchanged, and adds a history entry; two of them
// for each node, in sequence.
func (w *world) swaps(ctx context.Context, prefix, record, entry string) (time.Duration, error) {
	// The product reads its revisions from memory, so this is not measured.
	revisions := make([]int64, atOnce)
	for i := range revisions {
		resp, err := w.raw.Put(ctx, prefix+"node/"+name(i), record)
		if err != nil {
			return 0, err
		}

		revisions[i] = resp.Header.Revision
	}

	errs := make([]error, atOnce)
	begun := time.Now()

	var all sync.WaitGroup
	for i := range atOnce {
		all.Go(func() {
			key := prefix + "node/" + name(i)
			for step := range 2 {
				unchanged := clientv3.Compare(clientv3.ModRevision(key), "=", revisions[i])
				historyKey := fmt.Sprintf("%shistory/%s/%d", prefix, name(i), step)

				resp, err := w.raw.Txn(ctx).If(unchanged).
					Then(clientv3.OpPut(key, record), clientv3.OpPut(historyKey, entry)).Commit()
				if err == nil && !resp.Succeeded {
					err = errors.New("a raw transition conflicted")
				}

				if err != nil {
					errs[i] = err
					return
				}

				revisions[i] = resp.Header.Revision
			}
		})
	}

	all.Wait()

	return time.Since(begun), errors.Join(errs...)
}

// transitions measures the two transitions of a clear, by one job and by one job per
// node.
func transitions(ctx context.Context, b *bench) error {
	w, err := b.full(ctx, fmt.Sprintf("jobs: {limit: %d}\n", atOnce))
	if err != nil {
		return err
	}
	defer w.discard()

	// The baseline writes records of the same sizes as the product.
	if err := w.quarantine(ctx, atOnce); err != nil {
		return err
	}

	if err := w.clear(ctx, name(0)); err != nil {
		return err
	}

	record, entry, err := w.samples(ctx)
	if err != nil {
		return err
	}

	baseline := func(ctx context.Context) (float64, error) {
		took, err := w.swaps(ctx, w.prefixFor("swap"), record, entry)
		return 2 * atOnce / took.Seconds(), err
	}

	const against = "compare-and-swap with a history record, raw client, 64 at once"

	err = b.compare(ctx, comparison{
		name:     "transitions, a job of 64 nodes",
		unit:     "/s",
		against:  against,
		rounds:   9,
		floor:    atLeast(0.7),
		baseline: baseline,
		note: fmt.Sprintf("from POST /v1/jobs to the end of the job; a record has %d bytes, a history entry %d",
			len(record), len(entry)),
		product: func(ctx context.Context) (float64, error) {
			if err := w.quarantine(ctx, atOnce); err != nil {
				return 0, err
			}

			var nodes []string
			for i := range atOnce {
				nodes = append(nodes, name(i))
			}

			// One job for all nodes.
			begun := time.Now()
			err := w.clear(ctx, nodes...)

			return 2 * atOnce / time.Since(begun).Seconds(), err
		},
	})
	if err != nil {
		return err
	}

	return b.compare(ctx, comparison{
		name: "transitions, 64 jobs of a node", unit: "/s", against: against, rounds: 9, baseline: baseline,
		note: "64 requests at once, each accepted, claimed, logged and ended as a job of its own",
		product: func(ctx context.Context) (float64, error) {
			if err := w.quarantine(ctx, atOnce); err != nil {
				return 0, err
			}

			var all sync.WaitGroup

			errs := make([]error, atOnce)
			begun := time.Now()

			for i := range atOnce {
				all.Go(func() { errs[i] = w.clear(ctx, name(i)) })
			}

			all.Wait()

			return 2 * atOnce / time.Since(begun).Seconds(), errors.Join(errs...)
		},
	})
}

// samples returns the record of a node and an entry of its history, for a baseline that writes
// as many bytes as the product.
func (w *world) samples(ctx context.Context) (record, entry string, err error) {
	if record, err = w.largest(ctx, keys+"/v/nodes/"+name(0)); err != nil {
		return "", "", err
	}

	entry, err = w.largest(ctx, keys+"/x/history/"+name(0)+"/")

	return record, entry, err
}

// largest returns the largest value with the prefix.
func (w *world) largest(ctx context.Context, key string) (string, error) {
	resp, err := w.raw.Get(ctx, key, clientv3.WithPrefix())
	if err != nil {
		return "", err
	}

	out := ""
	for _, kv := range resp.Kvs {
		if len(kv.Value) > len(out) {
			out = string(kv.Value)
		}
	}

	if out == "" || !json.Valid([]byte(out)) {
		return "", fmt.Errorf("there is no record below %s", key)
	}

	return out, nil
}
