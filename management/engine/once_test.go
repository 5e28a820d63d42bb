// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// TestOnce: a request with a key is carried out once, however often and from
// wherever it comes, also after a restart.
func TestOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a b")
	ctx := t.Context()
	g := newGate()
	b.books.on(job.PlaybookSite, g.script)
	submit := func(key, request string, nodes ...string) (job.Job, bool, error) {
		once := &access.Key{ID: key, Request: request}
		j, err := b.submitWith(ctx, job.Request{Verb: commission, Nodes: nodes, Group: master}, once)
		return j, once.Replayed, err
	}
	// A refusal is not kept.
	_, _, err := submit("k1", "r0", "x-1")
	b.refused(err, inventory.KindNotFound)

	var all sync.WaitGroup
	var mu sync.Mutex

	ids, replayed := map[string]int{}, 0
	for range 8 {
		all.Go(func() {
			j, again, err := submit("k1", "r1", "a-1")
			mu.Lock()
			defer mu.Unlock()

			if ids[j.ID]++; err != nil {
				t.Error(err)
			}

			if again {
				replayed++
			}
		})
	}

	all.Wait()

	if len(ids) != 1 || replayed != 7 || len(b.View().Jobs()) != 1 {
		t.Fatalf("jobs %v, %d replayed", ids, replayed)
	}

	_, _, err = submit("k1", "r2", "b-1")
	b.refused(err, inventory.KindKeyReused, "already used for a different request")
	run := b.begun(g)
	b.restart()

	if j, again, err := submit("k1", "r1", "a-1"); err != nil || !again || j.Status != job.Running {
		t.Errorf("after a restart: %+v %t %v", j, again, err)
	}

	// A cancel that is sent again does not skip the cleanup.
	cancel := func() (job.Job, bool) {
		once := &access.Key{ID: "k2"}
		j, err := b.Cancel(ctx, "1", "anna", nil, once)
		b.must(err)
		return j, once.Replayed
	}
	if j, again := cancel(); again || j.Cancel != 1 {
		t.Errorf("%+v", j)
	}
	if j, again := cancel(); !again || j.Cancel != 1 {
		t.Errorf("%+v", j)
	}

	// The gate is opened for the cleanup.
	<-run.cancelled

	g.open <- succeeds

	if j := b.end("1", "Cancelled cancelled"); j.Cancel != 1 {
		t.Errorf("%+v", j)
	}

	if _, again := cancel(); !again {
		t.Error("it had ended; that it was carried out is the answer")
	}

	b.books.on(job.PlaybookSite, failsOn("a-1"))
	b.do(commission, "a", master, "Errored failed")

	var retried []string
	for range 2 {
		j, err := b.Retry(ctx, "2", false, "anna", &access.Key{ID: "k4"})
		b.must(err)
		retried = append(retried, j.ID)
		b.end(j.ID, "Errored failed")
	}

	if fmt.Sprint(retried) != "[3 3]" {
		t.Errorf("retried as %v", retried)
	}

	var revisions []int64
	for range 2 {
		revision, err := b.Forget(ctx, []string{"b-1"}, true, "", "anna", &access.Key{ID: "k3"})
		b.must(err)
		revisions = append(revisions, revision)
	}

	if revisions[0] != revisions[1] {
		t.Errorf("forgotten at %v", revisions)
	}

	b.dropJob("1")
	_, _, err = submit("k1", "r1", "a-1")
	b.refused(err, inventory.KindExpired, "as job 1, which is no longer kept")
}

// TestOnceIsForgotten: what was kept goes by age and by number, the oldest first.
func TestOnceIsForgotten(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.see("a")
	ctx := t.Context()
	left := func() (keys string) {
		for i := range 5 {
			d, err := b.store.Result(ctx, fmt.Sprint(i))
			b.must(err)

			if d != nil {
				keys += fmt.Sprint(i)
			}
		}

		return keys
	}

	// accept stores a job with the result of the request with that key.
	accept := func(key int, j job.Job) error {
		j.ID = b.View().NextID()

		tx := record.NewTx(b.store)
		state.AcceptJob(tx, j, job.Inputs{})
		access.Caller{Key: &access.Key{ID: fmt.Sprint(key)}}.Keep(tx, access.Result{Job: j.ID})

		_, err := b.store.Commit(ctx, tx)

		return err
	}

	for i := range 5 {
		j := job.Job{Verb: commission, Status: job.Queued, Targets: []job.Target{{Name: "a-1"}}}
		b.must(accept(i, j))
	}

	if err := accept(3, job.Job{}); inventory.KindOf(err) != inventory.KindConflict {
		t.Errorf("a key that is taken: %v", err)
	}

	b.must(b.store.DropResults(ctx, time.Now().Add(-time.Hour), 10))

	if got := left(); got != "01234" {
		t.Errorf("too much is gone: %s", got)
	}

	b.must(b.store.DropResults(ctx, time.Now().Add(-time.Hour), 3))

	if got := left(); got != "234" {
		t.Errorf("of three, %s are left", got)
	}

	middle, err := b.store.Result(ctx, "3")
	b.must(err)
	b.must(b.store.DropResults(ctx, middle.Time, 10))

	if got := left(); got != "34" {
		t.Errorf("by age: %s", got)
	}

	b.must(b.store.DropResults(context.WithoutCancel(ctx), time.Now().Add(time.Hour), 10))

	if got := left(); got != "" {
		t.Errorf("all are old: %s", got)
	}
}
