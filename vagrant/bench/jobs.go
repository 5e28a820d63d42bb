// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// atOnce is the number of nodes with concurrent transitions.
const atOnce = 64

const swapping = "compare-and-swap with a history record, raw client, 64 at once"

// clearFirst quarantines the first nodes, and returns the rate of their transitions by one job
// that is submitted by a client.
func (w *world) clearFirst(ctx context.Context, by *world) float64 {
	w.quarantine(ctx, atOnce)
	return 2 * atOnce / timed(func() { by.carryOut(ctx, clearing(firstNodes(atOnce)...)) })
}

// transitions measures the two transitions of a clear, by one job and by one job per
// node.
func transitions(ctx context.Context, b *bench) []row {
	w := b.full(ctx, fmt.Sprintf("jobs: {limit: %d}\n", atOnce))
	baseline, note := w.swaps(ctx)

	return []row{
		{
			Name: "transitions, a job of 64 nodes", Unit: "/s", Against: swapping, Rounds: 9, floor: atLeast(0.7),
			Note:     "from POST /v1/jobs to the end of the job; " + note,
			baseline: baseline, product: func() float64 { return w.clearFirst(ctx, w) },
		},
		{
			Name: "transitions, 64 jobs of a node", Unit: "/s", Against: swapping, Rounds: 9,
			Note:     "64 requests at once, each accepted, claimed, logged and ended as a job of its own",
			baseline: baseline,
			product: func() float64 {
				w.quarantine(ctx, atOnce)

				return 2 * atOnce / timed(func() {
					together(atOnce, func(i int) { w.carryOut(ctx, clearing(name(i))) })
				})
			},
		},
	}
}

// swaps makes the same transitions with the raw client: a transaction replaces the
// record of a node, if its revision is unchanged, and adds a history entry; two of them
// for each node, in sequence. The records have the sizes of the product's.
func (w *world) swaps(ctx context.Context) (rate side, note string) {
	w.quarantine(ctx, atOnce)
	w.carryOut(ctx, clearing(name(0)))

	record, entry := w.record(ctx), w.largest(ctx, "/x/history/"+name(0)+"/")

	return func() float64 {
		prefix := w.unused()
		// The product reads its revisions from memory, so this is not measured.
		revisions := make([]int64, atOnce)
		for i := range revisions {
			revisions[i] = must(w.raw.Put(ctx, prefix+"node/"+name(i), record)).Header.Revision
		}

		return 2 * atOnce / timed(func() {
			together(atOnce, func(i int) {
				key := prefix + "node/" + name(i)
				for step := range 2 {
					unchanged := clientv3.Compare(clientv3.ModRevision(key), "=", revisions[i])
					historyKey := fmt.Sprintf("%shistory/%s/%d", prefix, name(i), step)

					resp := must(w.raw.Txn(ctx).If(unchanged).
						Then(clientv3.OpPut(key, record), clientv3.OpPut(historyKey, entry)).Commit())
					if !resp.Succeeded {
						fail("a raw transition conflicted")
					}
					revisions[i] = resp.Header.Revision
				}
			})
		})
	}, fmt.Sprintf("a record has %d bytes, a history entry %d", len(record), len(entry))
}

// claims measures jobs that wait for their turn, and the claim of one job for all nodes.
func claims(ctx context.Context, b *bench) []row {
	// The playbook of the job that holds up the queue runs until its file appears.
	release := filepath.Join(b.dir, "release")
	block := fmt.Sprintf("while [ -n \"$CLUSTERM_EVENTS\" ] && [ ! -e %s ]; do sleep 0.2; done", release)
	script := b.playbookScript(block, 1)

	w := b.full(ctx, "ansible_playbook: "+script+"\njobs: {limit: 1}\n")
	b.cleanup(func() { _ = os.WriteFile(release, nil, 0o600) })

	baseline, _ := w.swaps(ctx)
	blocked := false

	var busy, idle []float64

	return []row{
		{
			Name: fmt.Sprintf("claim of %d nodes", b.nodes), Unit: "s", Rounds: 5,
			floor:   atMost(0, 2, "<= 2 s"),
			Note:    "from the acceptance of the job until it runs",
			product: func() float64 { seconds, _ := w.claimAll(ctx); return seconds },
		},
		{
			Name: fmt.Sprintf("requests during a claim of %d nodes, p99", b.nodes), Unit: "ms", Rounds: 5,
			Against: "the same requests before and after", floor: atMost(3, 0, "<= 3"),
			Note: "a request for one node, one every 5 ms",
			// The figure is that of the requests of all rounds.
			summarize: func(rounds []float64) float64 { return rounds[len(rounds)-1] },
			product: func() float64 {
				_, latencies := w.claimAll(ctx)
				busy = append(busy, latencies...)
				return p99(busy)
			},
			baseline: func() float64 {
				within, stop := context.WithTimeout(ctx, 2*time.Second)
				defer stop()

				idle = append(idle, w.probes(within)...)
				return p99(idle)
			},
		},
		{
			Name: fmt.Sprintf("transitions, %d jobs of a node at once, of %d waiting", atOnce, b.waiting),
			Unit: "/s", Against: swapping, Rounds: 3, floor: atLeast(0.25),
			Note: "from the moment that the jobs may run until the last one has ended: " +
				"each is claimed, owned, logged, decided and released as a job of its own",
			baseline: baseline,
			product: func() float64 {
				if !blocked {
					w.holdUp(ctx)
					blocked = true
				}

				return 2 * float64(b.waiting) / w.drained(ctx)
			},
		},
	}
}

// claimAll submits a job for all nodes, and returns the seconds from its acceptance until it runs,
// and the latencies of other requests meanwhile in milliseconds.
func (w *world) claimAll(ctx context.Context) (seconds float64, latencies []float64) {
	w.quarantine(ctx, w.bench.nodes)

	id := must(w.Submit(ctx, clearing(firstNodes(w.bench.nodes)...))).ID

	within, stop := context.WithCancel(ctx)
	defer stop()

	probes := make(chan []float64, 1)
	go func() { probes <- w.probes(within) }()

	seconds = timed(func() {
		// Not by the API: its answer with all nodes would take a part of the time.
		check(poll(ctx, func() error {
			resp, err := w.raw.Get(ctx, keys+"/v/jobs/"+id, clientv3.WithKeysOnly())
			if err == nil && (len(resp.Kvs) != 1 || resp.Kvs[0].Version < 2) {
				err = errors.New("the job is not claimed")
			}
			return err
		}))
	})

	stop()

	latencies = <-probes

	w.complete(ctx, id)

	return seconds, latencies
}

// probes requests a node every 5 ms until ctx ends, and returns the latencies in
// milliseconds.
func (w *world) probes(ctx context.Context) (took []float64) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()

	var buf bytes.Buffer

	for i := 0; ; i++ {
		begun := time.Now()

		// The request outlives ctx: one that is cut off has no latency.
		err := fetch(context.WithoutCancel(ctx), w.http, w.url+"/v1/nodes/"+name(i%atOnce), &buf)
		if err == nil {
			took = append(took, 1000*time.Since(begun).Seconds())
		}

		select {
		case <-ctx.Done():
			return took
		case <-tick.C:
		}
	}
}

// holdUp starts a job that holds the only slot of the queue until the rows are measured.
func (w *world) holdUp(ctx context.Context) {
	id := must(w.Submit(ctx, api.JobRequest{
		Verb: inventory.VerbCommission, Nodes: []string{name(w.bench.waiting + 1)}, Group: "service-master",
	})).ID

	check(poll(ctx, func() error {
		j, err := w.Job(ctx, id)
		if err == nil && j.Status == api.Queued {
			err = errors.New("the job that holds up the queue does not run")
		}
		return err
	}))
}

// submitters is the number of clients that fill the queue.
const submitters = 4

// drained fills the queue behind the job that holds it up, opens it, and returns how many
// seconds its jobs took.
func (w *world) drained(ctx context.Context) float64 {
	_ = must(w.PatchConfig(ctx, map[string]any{"jobs.limit": 1}))
	w.quarantine(ctx, w.bench.waiting)

	ids := make([]string, w.bench.waiting)

	together(submitters, func(k int) {
		for i := k; i < len(ids); i += submitters {
			ids[i] = must(w.Submit(ctx, clearing(name(i)))).ID
		}
	})

	begun := time.Now()
	_ = must(w.PatchConfig(ctx, map[string]any{"jobs.limit": atOnce + 1}))
	last := *w.complete(ctx, ids[len(ids)-1]).Ended

	for _, id := range ids {
		if ended := *w.complete(ctx, id).Ended; ended.After(last) {
			last = ended
		}
	}

	return last.Sub(begun).Seconds()
}
