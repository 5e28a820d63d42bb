// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/access"
	jobs "github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/secret"
	"github.com/contiv/cluster/management/state"

	stored "github.com/contiv/cluster/management/etcd"
)

// storedRollouts measures a whole rollout in real time, with its leader and the records of the
// rollout and its jobs in the etcd of a world. Only the jobs are simulated: each takes
// rolloutJob from its acceptance on.
func storedRollouts(ctx context.Context, b *bench) []row {
	w := b.world(ctx, "")

	return []row{{
		Name: fmt.Sprintf("rollout of %d nodes, with its records in the store", b.rollout), Unit: "s",
		Against: idealSchedule, Rounds: 1, floor: atMost(1.05, 0, "<= 1.05 x"),
		Note:     "simulated executors; three writes for each job and one or two for each node",
		baseline: b.ideal(), product: func() float64 { return w.rolloutInStore(ctx) },
	}}
}

// rolloutInStore carries a rollout out, and returns the seconds from its start to its end.
func (w *world) rolloutInStore(ctx context.Context) float64 {
	client := must(etcd.Dial(ctx, w.unused(), "unix://"+w.etcdSocket()))
	defer client.Close()

	log := logrus.New()
	log.SetOutput(io.Discard)

	secrets := stored.NewSecrets(secret.NewRing(secret.NewKey()), nil)

	kinds := []record.Any{&rollout.Kind, &jobs.Kind, &jobs.Nodes}
	store := must(stored.Open(ctx, client, kinds, secrets, log, stored.StaleAfter))
	defer store.Close()

	f := &storedFleet{Store: store, nodes: newRolloutFleet(w.bench.rollout)}
	must(store.PutNodes(ctx, f.nodes.writes()))

	l := rollout.New(rollout.Options{
		State: f, Records: f, Store: store, Jobs: f, Leads: func() bool { return true }, Audit: f, Logger: log,
		Settings: func() rollout.Settings {
			return rollout.Settings{Groups: inventory.DefaultGroups(), JobLimit: rolloutAtOnce}
		},
	})

	ctx, cancel := context.WithCancel(ctx)

	var running sync.WaitGroup

	running.Go(func() { l.Run(ctx) })
	defer func() {
		cancel()
		running.Wait()
		f.tasks.Wait()
	}()

	return timed(func() {
		r := must(l.Start(ctx, access.Caller{Principal: "bench"}, f.nodes.request()))

		for !r.Status.Ended() {
			changed := f.Changed()

			if r = must(rollout.Get(f.View(), r.ID)); !r.Status.Ended() {
				select {
				case <-changed:
				case <-ctx.Done():
					check(ctx.Err())
				}
			}
		}

		f.nodes.succeeded(r)
	})
}

// storedFleet is a store with simulated nodes and jobs.
type storedFleet struct {
	*stored.Store

	nodes *rolloutFleet
	tasks sync.WaitGroup
}

// SubmitRollout accepts a job as the engine does, and lets it begin and end.
func (f *storedFleet) SubmitRollout(
	ctx context.Context, c access.Caller, r rollout.Record, b rollout.Begin, extra configuration.Vars,
) (rollout.Record, error) {
	request := r.RequestOf(b, extra)
	tx := record.NewTx(f)
	j := jobs.Job{
		ID:     state.ViewOf(tx).NextID(),
		Verb:   request.Verb,
		Status: jobs.Queued,
		Actor:  c.Principal,
		JobOptions: inventory.JobOptions{
			SharedOptions: inventory.SharedOptions{Reason: request.Reason},
		},
		Rollout:  r.ID,
		Accepted: time.Now(),
		Targets:  []jobs.Target{{Name: b.Node}},
	}

	begun := r.Begun(b, j, time.Now())

	record.Put(tx, &rollout.Kind, &begun)
	state.AcceptJob(tx, j, jobs.Inputs{Extra: extra})

	revision, err := f.Commit(ctx, tx)
	if err == nil {
		j.Revision, begun.Revision = revision, revision
		end := time.Now().Add(rolloutJob)
		f.tasks.Go(func() { f.carryOut(context.WithoutCancel(ctx), j, end) })
	}

	return begun, err
}

// carryOut stores the claim of a job, and its end at that time. A job that is not stored lets the
// rollout wait until the limit of the benchmark.
func (f *storedFleet) carryOut(ctx context.Context, j jobs.Job, end time.Time) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()

	j.Status, j.Started = jobs.Running, time.Now()

	revision, err := record.Replace(ctx, f, &jobs.Kind, j.ID, j.Revision, &j)
	if err == nil {
		<-time.After(time.Until(end)) // the work of the job
		j.Status, j.Ended = jobs.Complete, time.Now()
		_, err = record.Replace(ctx, f, &jobs.Kind, j.ID, revision, &j)
	}

	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: job %s: %v\n", j.ID, err)
	}
}

// Cancel is never called: nobody aborts the rollout.
func (f *storedFleet) Cancel(context.Context, access.Caller, string) (jobs.Job, error) {
	panic("cancelled")
}

// PrepareRollout accepts every request.
func (f *storedFleet) PrepareRollout(
	context.Context, access.Caller, jobs.Request,
) (digest, commit string, err error) {
	return "bench", "", nil
}

// PinPlaybooks has no playbooks to keep.
func (f *storedFleet) PinPlaybooks(context.Context) (digest, commit string, err error) {
	return "bench", "", nil
}

// KeptPlaybooks is true for the only digest.
func (f *storedFleet) KeptPlaybooks(context.Context, string) (bool, error) { return true, nil }

// Record drops the record: the audit trail has no part in the measurement.
func (f *storedFleet) Record(context.Context, access.Record) {}
