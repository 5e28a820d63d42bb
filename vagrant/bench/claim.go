// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// waiting is the number of queued jobs of which atOnce run at a time. It is the limit of
// the queue.
const waiting = 1000

// submitters is the number of clients that fill the queue.
const submitters = 4

// claims measures jobs that wait for their turn, and the claim of one job for all nodes.
func claims(ctx context.Context, b *bench) error {
	// The playbook of the job that holds up the queue runs until its file appears.
	release := filepath.Join(b.dir, "release")

	block := fmt.Sprintf("while [ -n \"$CLUSTERM_EVENTS\" ] && [ ! -e %s ]; do sleep 0.2; done", release)

	script, err := b.playbookScript(block, 1, filepath.Join(b.dir, "times"))
	if err != nil {
		return err
	}

	w, err := b.full(ctx, "ansible_playbook: "+script+"\njobs: {limit: 1}\n")
	if err != nil {
		return err
	}
	defer w.discard()
	defer func() { _ = os.WriteFile(release, nil, 0o600) }()

	if err := w.quarantine(ctx, b.nodes); err != nil {
		return err
	}

	if err := b.claimAll(ctx, w); err != nil {
		return err
	}

	return b.drain(ctx, w)
}

// drain measures the jobs of a queue from the moment that they may run until the last one
// has ended.
func (b *bench) drain(ctx context.Context, w *world) error {
	if err := w.quarantine(ctx, waiting); err != nil {
		return err
	}

	if err := w.clear(ctx, name(0)); err != nil {
		return err
	}

	record, entry, err := w.samples(ctx)
	if err != nil {
		return err
	}

	// This job holds the only slot of the queue until the rows are measured.
	blocker, err := w.Submit(ctx, api.JobRequest{
		Verb: inventory.VerbCommission, Nodes: []string{name(waiting + 1)}, Group: "service-master",
	})
	if err != nil {
		return fmt.Errorf("the job that holds up the queue: %w", err)
	}

	if err := w.started(ctx, blocker.ID); err != nil {
		return err
	}

	return b.compare(ctx, comparison{
		name:    fmt.Sprintf("transitions, %d jobs of a node at once, of %d waiting", atOnce, waiting),
		unit:    "/s",
		against: "compare-and-swap with a history record, raw client, 64 at once",
		rounds:  3,
		floor:   atLeast(0.25),
		note: "from the moment that the jobs may run until the last one has ended: each is claimed, owned, logged, " +
			"decided and released as a job of its own",
		baseline: func(ctx context.Context) (float64, error) {
			took, err := w.swaps(ctx, w.prefixFor("swap"), record, entry)
			return 2 * atOnce / took.Seconds(), err
		},
		product: func(ctx context.Context) (float64, error) {
			took, err := w.drained(ctx)
			return 2 * waiting / took.Seconds(), err
		},
	})
}

// drained fills the queue behind the job that holds it up, opens it, and returns how long
// its jobs took.
func (w *world) drained(ctx context.Context) (time.Duration, error) {
	if _, err := w.PatchConfig(ctx, map[string]any{"jobs.limit": 1}); err != nil {
		return 0, err
	}

	if err := w.quarantine(ctx, waiting); err != nil {
		return 0, err
	}

	ids := make([]string, waiting)
	errs := make([]error, submitters)

	var all sync.WaitGroup
	for k := range submitters {
		all.Go(func() {
			for i := k; i < waiting; i += submitters {
				j, err := w.Submit(ctx, api.JobRequest{
					Verb: inventory.VerbClear, Nodes: []string{name(i)}, Force: true, Reason: "bench",
				})
				if err != nil {
					errs[k] = fmt.Errorf("job %d of the queue: %w", i+1, err)
					return
				}

				ids[i] = j.ID
			}
		})
	}

	all.Wait()

	if err := errors.Join(errs...); err != nil {
		return 0, err
	}

	ended := w.versions(ctx, ids, 3)
	begun := time.Now()

	if _, err := w.PatchConfig(ctx, map[string]any{"jobs.limit": atOnce + 1}); err != nil {
		return 0, err
	}

	err := <-ended
	took := time.Since(begun)

	for _, id := range ids {
		j, jobErr := w.Job(ctx, id)
		if jobErr == nil && j.Status != api.Complete {
			jobErr = fmt.Errorf("job %s is %s: %s", j.ID, j.Status, j.Message)
		}

		err = errors.Join(err, jobErr)
	}

	return took, err
}

// versions watches the records of jobs, and answers once each of them has been written so
// many times: when it was accepted, claimed and ended.
func (w *world) versions(ctx context.Context, ids []string, version int64) <-chan error {
	left := map[string]bool{}
	for _, id := range ids {
		left[keys+"/v/jobs/"+id] = true
	}

	done := make(chan error, 1)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	events := w.raw.Watch(ctx, keys+"/v/jobs/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-events // the watch exists

	go func() {
		defer cancel()

		for resp := range events {
			for _, e := range resp.Events {
				if e.Kv.Version >= version {
					delete(left, string(e.Kv.Key))
				}
			}

			if len(left) == 0 {
				done <- nil
				return
			}
		}

		done <- fmt.Errorf("%d of %d jobs were not written %d times: %w", len(left), len(ids), version, ctx.Err())
	}()

	return done
}

// started waits until the job runs.
func (w *world) started(ctx context.Context, id string) error {
	for {
		j, err := w.Job(ctx, id)
		if err != nil {
			return err
		}

		if j.Status != api.Queued {
			return nil
		}

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// claimAll measures how long a job for all nodes takes from its acceptance until it runs,
// and the latency of other requests meanwhile.
func (b *bench) claimAll(ctx context.Context, w *world) error {
	nodes := make([]string, b.nodes)
	for i := range nodes {
		nodes[i] = name(i)
	}

	var usual, meanwhile, took []float64

	claimed := func(ctx context.Context) (float64, error) {
		if err := w.quarantine(ctx, b.nodes); err != nil {
			return 0, err
		}

		j, err := w.Submit(ctx, api.JobRequest{Verb: inventory.VerbClear, Nodes: nodes, Force: true, Reason: "bench"})
		if err != nil {
			return 0, err
		}

		begun := time.Now()

		within, stop := context.WithCancel(ctx)
		defer stop()

		probes := make(chan []float64, 1)
		go func() { probes <- w.probes(within) }()

		// Not by the API: its answer with all nodes would take a part of the time.
		for {
			resp, err := w.raw.Get(ctx, keys+"/v/jobs/"+j.ID, clientv3.WithKeysOnly())
			if err != nil {
				return 0, err
			}

			if len(resp.Kvs) == 1 && resp.Kvs[0].Version > 1 {
				break
			}

			select {
			case <-ctx.Done():
				return 0, ctx.Err()
			case <-time.After(2 * time.Millisecond):
			}
		}

		seconds := time.Since(begun).Seconds()

		stop()

		meanwhile, took = append(meanwhile, <-probes...), append(took, seconds)

		_, err = w.WaitJob(ctx, j.ID)

		return seconds, err
	}

	for range 5 {
		if _, err := claimed(ctx); err != nil {
			return err
		}

		within, stop := context.WithTimeout(ctx, 2*time.Second)
		usual = append(usual, w.probes(within)...)

		stop()
	}

	b.add(row{
		Name: fmt.Sprintf("claim of %d nodes", b.nodes), Unit: "s", Rounds: len(took), Product: median(took),
		Floor: "<= 2 s", OK: median(took) <= 2, Note: "from the acceptance of the job until it runs",
	})
	b.add(row{
		Name: fmt.Sprintf("requests during a claim of %d nodes, p99", b.nodes), Unit: "ms", Rounds: len(meanwhile),
		Product: p99(meanwhile), Against: "the same requests before and after", Baseline: p99(usual),
		Ratio: p99(meanwhile) / p99(usual), Floor: "<= 3", OK: p99(meanwhile) <= 3*p99(usual),
		Note: "a request for one node, one every 5 ms",
	})

	return nil
}

// add adds a row that compare does not measure.
func (b *bench) add(r row) {
	fmt.Fprintf(os.Stderr, "bench: %s: %s %s (%s)\n", r.Name, figure(r.Product), r.Unit, r.Floor)
	b.out.Rows = append(b.out.Rows, r)
}

// probes requests a node every 5 ms until ctx ends, and returns the latencies in
// milliseconds.
func (w *world) probes(ctx context.Context) []float64 {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()

	var took []float64

	for i := 0; ; i++ {
		begun := time.Now()

		// The request outlives ctx: one that is cut off has no latency.
		err := w.get(context.WithoutCancel(ctx), "/v1/nodes/"+name(i%atOnce))
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

func (w *world) get(ctx context.Context, path string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+path, nil)
	if err != nil {
		return err
	}

	res, err := w.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()

	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, res.Status)
	}

	return nil
}
