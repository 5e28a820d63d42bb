// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/access"
	jobs "github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/rollout/leader"
	"github.com/contiv/cluster/management/secret"
	"github.com/contiv/cluster/management/state"

	stored "github.com/contiv/cluster/management/etcd"
)

// storedRollouts measures a whole rollout in real time, with its leader and the records of the
// rollout and its jobs in the etcd of a world. Only the jobs are simulated: each takes
// rolloutJob from its acceptance on.
func storedRollouts(ctx context.Context, b *bench) error {
	w, err := b.world(ctx, "")
	if err != nil {
		return err
	}
	defer w.discard()

	ideal := rolloutNodes / rolloutAtOnce * rolloutJob

	return b.compare(ctx, comparison{
		name:     fmt.Sprintf("rollout of %d nodes, with its records in the store", rolloutNodes),
		unit:     "s",
		against:  fmt.Sprintf("the ideal schedule of jobs of %s, %d at once", rolloutJob, rolloutAtOnce),
		rounds:   1,
		floor:    atMost(1.05, 0, "<= 1.05 x"),
		baseline: func(context.Context) (float64, error) { return ideal.Seconds(), nil },
		product: func(ctx context.Context) (float64, error) {
			took, err := w.rolloutInStore(ctx)
			return took.Seconds(), err
		},
		note: "simulated executors; three writes for each job and one or two for each node",
	})
}

// rolloutInStore carries a rollout out, and returns the time from its start to its end.
func (w *world) rolloutInStore(ctx context.Context) (took time.Duration, err error) {
	w.names++

	socket := "unix://" + filepath.Join(w.dir, "data/etcd/client.sock")

	client, err := etcd.Dial(ctx, fmt.Sprintf("/bench/%d", w.names), socket)
	if err != nil {
		return 0, err
	}
	defer client.Close()

	log := logrus.New()
	log.SetOutput(io.Discard)

	secrets := stored.NewSecrets(secret.NewRing(secret.NewKey()), nil)

	store, err := stored.Open(ctx, client, nil, secrets, log, stored.StaleAfter)
	if err != nil {
		return 0, err
	}
	defer store.Close()

	f := &storedFleet{Store: store, nodes: newRolloutFleet()}
	l := leader.New(leader.Options{
		State: f, Store: store, Jobs: f, Leads: func() bool { return true }, Audit: f, Logger: log,
		Settings: func() leader.Settings {
			return leader.Settings{Groups: inventory.DefaultGroups(), JobLimit: rolloutAtOnce}
		},
	})

	ctx, cancel := context.WithCancel(ctx)

	var running sync.WaitGroup

	running.Go(func() { l.Run(ctx) })

	defer func() {
		cancel()
		running.Wait()
		err = errors.Join(err, f.wait())
	}()

	begun := time.Now()

	r, err := l.Start(ctx, access.Caller{Principal: "bench"}, rollout.Request{
		Spec: rollout.Spec{
			Action: inventory.VerbApply, MaxUnavailable: strconv.Itoa(rolloutAtOnce),
			Gate: rollout.Gate{SkipVerify: true},
		},
		Nodes: f.nodes.names,
	})
	if err != nil {
		return 0, err
	}

	if r, err = f.ended(ctx, r.ID); err != nil {
		return 0, err
	}

	if c := r.Count(); c.Succeeded != rolloutNodes {
		return 0, errors.New("the rollout ended with " + r.Reason)
	}

	return time.Since(begun), nil
}

// storedFleet is a store with simulated nodes and jobs.
type storedFleet struct {
	*stored.Store

	nodes *rolloutFleet
	tasks sync.WaitGroup

	mu  sync.Mutex
	err error
}

// ended waits until the rollout has ended.
func (f *storedFleet) ended(ctx context.Context, id string) (rollout.Record, error) {
	for {
		changed := f.Changed()

		r, err := leader.Get(f.View(), id)
		if err != nil || r.Status.Ended() {
			return r, err
		}

		select {
		case <-changed:
		case <-ctx.Done():
			return r, ctx.Err()
		}
	}
}

// View returns the view of the store, with the nodes of the fleet.
func (f *storedFleet) View() *state.View {
	v := *f.Store.View()
	v.Nodes = f.nodes.snapshot.Nodes

	return &v
}

// SubmitRollout accepts a job as the engine does, and lets it begin and end.
func (f *storedFleet) SubmitRollout(
	ctx context.Context, c access.Caller, r rollout.Record, b rollout.Begin, extra configuration.Vars,
) (rollout.Record, error) {
	request := r.RequestOf(b, extra)
	v := f.Store.View()
	j := jobs.Job{
		ID: strconv.FormatUint(v.Seq+1, 10), Verb: request.Verb, Status: jobs.Queued, Actor: c.Principal,
		Reason: request.Reason, Rollout: r.ID, Accepted: time.Now(), Targets: []jobs.Target{{Name: b.Node}},
	}

	j, begun, err := f.AcceptRollout(ctx, v.Seq, r.Begun(b, j, time.Now()), j, jobs.Inputs{Extra: extra})
	if err == nil {
		end := time.Now().Add(rolloutJob)
		f.tasks.Go(func() { f.carryOut(context.WithoutCancel(ctx), j, end) })
	}

	return begun, err
}

// carryOut stores the claim of a job, and its end at that time.
func (f *storedFleet) carryOut(ctx context.Context, j jobs.Job, end time.Time) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()

	j.Status, j.Started = jobs.Running, time.Now()

	j, err := f.PutJob(ctx, j)
	if err == nil {
		<-time.After(time.Until(end)) // the work of the job

		j.Status, j.Ended = jobs.Complete, time.Now()
		_, err = f.PutJob(ctx, j)
	}

	f.mu.Lock()
	defer f.mu.Unlock()

	f.err = errors.Join(f.err, err)
}

// wait waits for the ends of all jobs, and returns their errors.
func (f *storedFleet) wait() error {
	f.tasks.Wait()

	f.mu.Lock()
	defer f.mu.Unlock()

	return f.err
}

// Cancel is never called: nobody aborts the rollout.
func (f *storedFleet) Cancel(context.Context, access.Caller, string) (jobs.Job, error) {
	return jobs.Job{}, errors.New("a job of the measurement was cancelled")
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
