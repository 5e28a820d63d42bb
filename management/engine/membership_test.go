// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/cluster"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

// scriptedMembership grants and takes authority as the test sets it.
type scriptedMembership struct {
	follows atomic.Bool // it does not lead

	mu      sync.Mutex
	refusal error                              // of Own
	owned   map[string]context.CancelCauseFunc // by job
	gained  map[string]int                     // how often each job was gained
}

func newMembership() *scriptedMembership {
	return &scriptedMembership{owned: map[string]context.CancelCauseFunc{}, gained: map[string]int{}}
}

func (m *scriptedMembership) Leads() bool { return !m.follows.Load() }

func (m *scriptedMembership) Own(ctx context.Context, id string, _ int64) (context.Context, func(), error) {
	m.mu.Lock()
	defer m.mu.Unlock()

	if m.refusal != nil {
		return nil, nil, m.refusal
	}

	owned, end := context.WithCancelCause(ctx)
	m.owned[id] = end
	m.gained[id]++

	return owned, func() {
		end(nil)
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.owned, id)
	}, nil
}

// lose takes all jobs away, and refuses to give them back until regain.
func (m *scriptedMembership) lose() {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.refusal = inventory.Errorf(inventory.KindRefused, "another instance owns the job")
	for _, end := range m.owned {
		end(cluster.ErrOwnershipLost)
	}
}

func (m *scriptedMembership) regain() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refusal = nil
}

// count returns the number of owned jobs, and how often the job was gained.
func (m *scriptedMembership) count(id string) (owned, gained int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.owned), m.gained[id]
}

// awaitOwned waits until the instance owns that many jobs.
func (b *bench) awaitOwned(m *scriptedMembership, want int) {
	b.t.Helper()

	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()

	for ctx := b.within(patience); ; {
		owned, _ := m.count("")
		if owned == want {
			return
		}

		select {
		case <-tick.C:
		case <-ctx.Done():
			b.t.Fatalf("the instance owns %d jobs, want %d", owned, want)
		}
	}
}

func (r *scriptedRun) renewals() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.leases)
}

// TestOwnershipLost: an instance that loses a job stops executing it and renewing
// the runner's lease, but does not end the runner. It continues the job, with the
// same run, once it has regained the job.
func TestOwnershipLost(t *testing.T) {
	t.Parallel()

	members := newMembership()
	b := newBench(t, func(b *bench) { b.members = members; b.settings.Lease = 4 * time.Second })
	b.see("a")
	g := newGate()
	b.books.on(job.PlaybookSite, g.script)
	j := b.ask(commission, "a", master)
	run := b.begun(g)
	b.awaitOwned(members, 1)

	members.lose()
	b.awaitOwned(members, 0) // the goroutine has ended with all its tasks

	renewals := run.renewals()

	// The run goes on, and even its end is not recorded here.
	run.says(job.StreamText, "output without an owner\n")
	g.open <- succeeds

	if _, err := run.Wait(b.within(patience)); err != nil {
		t.Fatal(err)
	}

	if got := b.job(j.ID); got.Status != job.Running || got.Runs[0].Exit != "" {
		t.Errorf("an instance that lost the job recorded %+v", got)
	}

	if got := run.renewals(); got != renewals || run.cancels > 0 {
		t.Errorf("after the loss: %d renewals, %d cancels", got-renewals, run.cancels)
	}

	members.regain()
	b.end(j.ID, "Complete")
	b.are("a Allocated service-master")
	b.awaitOwned(members, 0)

	if _, gained := members.count(j.ID); gained != 2 || len(b.books.started()) != 1 {
		t.Errorf("gained %d times, %d runs", gained, len(b.books.started()))
	}

	want := job.PlaybookSite + " begins\noutput without an owner\n"
	if text := b.log(j.ID, job.StreamText); strings.Count(text, want) != 1 {
		t.Errorf("the log has gaps or repetitions: %q", text)
	}
}

// TestFollowerSchedulesNothing: an instance that does not lead leaves the queue
// alone.
func TestFollowerSchedulesNothing(t *testing.T) {
	t.Parallel()

	members := newMembership()
	members.follows.Store(true)
	b := newBench(t, func(b *bench) { b.members = members })
	b.see("a")
	j := b.ask(commission, "a", master)

	// Every change wakes the scheduler, so a claim would have come by now.
	for range 3 {
		b.see("b")
		b.lose("b")
	}

	if got := b.job(j.ID); got.Status != job.Queued {
		t.Errorf("a follower started the job: %+v", got)
	}

	members.follows.Store(false)
	b.see("b")
	b.until("the job has ended", func(v *state.View) bool {
		got, err := v.Job(j.ID)
		return err == nil && got.Status == job.Complete
	})
}
