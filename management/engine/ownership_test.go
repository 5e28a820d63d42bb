// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/cluster"
	. "github.com/contiv/cluster/management/engine"
	store "github.com/contiv/cluster/management/etcd"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// sessionTTL is the lease of an instance and of each of its jobs.
const sessionTTL = 4 * time.Second

// enters makes the bench one of several instances, which enters with each start.
func (b *bench) enters(instance string) {
	b.instance, b.settings.Lease = instance, 4*time.Second
	b.wrap = func(s Store) Store {
		session, err := b.store.Enter(b.within(patience), store.SessionOptions{
			Self: b.self(), TTL: sessionTTL, Log: silent(), Lost: func(error) {},
		})
		b.must(err)
		b.t.Cleanup(session.Close)

		b.members = session

		return s
	}
}

func (b *bench) self() state.Instance {
	return state.Instance{Identity: cluster.Identity{ID: "id-" + b.instance, Node: b.instance}}
}

// TestJobsOutliveTheLeader: two instances on one etcd run a job each. The one that leads is killed.
// The job of the other goes on unharmed, ends and is written, although its instance does not lead.
func TestJobsOutliveTheLeader(t *testing.T) {
	t.Parallel()

	ours, theirs := newGate(), newGate()

	a := newBench(t, func(b *bench) { b.enters("bench-a") })
	a.see("a b c m")
	a.do(commission, "m", master, "Complete")
	a.books.on(job.PlaybookSite, ours.script)
	kept := a.ask(commission, "a", inventory.GroupWorker)
	run := a.begun(ours)
	run.says(job.StreamText, "before\n")

	// Today an instance enters only after another one, so it is given the lead.
	leader := &bench{}
	leader.instance = "bench-b"
	lead, err := json.Marshal(leader.self())
	a.must(err)

	_, err = a.client.Put(t.Context(), a.prefix+"/v/holder", string(lead))
	a.must(err)

	leader = newBench(t, func(b *bench) {
		b.enters("bench-b")
		b.prefix, b.secrets = a.prefix, a.secrets
		b.books.on(job.PlaybookSite, theirs.script)
	})
	other := leader.ask(commission, "b", inventory.GroupWorker)

	leader.begun(theirs)
	a.until("the first instance does not lead", func(*state.View) bool { return !a.members.Leads() })

	// As by kill -9: nothing of it is renewed or given up any more.
	leader.must(leader.client.Close())
	a.until("the leader is gone", func(v *state.View) bool {
		return len(record.List(v, &state.Instances)) == 0 // the former one has lost its place, too
	})

	renewals := run.renewals()
	run.says(job.StreamText, "after\n")

	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()

	for ctx := a.within(patience); run.renewals() == renewals; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the lease of the runner is not renewed")
		}
	}

	waiting := a.ask(commission, "c", inventory.GroupWorker)
	ours.open <- succeeds
	a.end(kept.ID, "Complete")
	a.are("a Allocated service-worker, b Provisioning service-worker")

	if text, want := a.log(kept.ID, job.StreamText), job.PlaybookSite+" begins\nbefore\nafter\n"; !strings.Contains(
		text,
		want,
	) {
		t.Errorf("the log has gaps or repetitions: %q", text)
	}

	if got := a.job(waiting.ID); got.Status != job.Queued {
		t.Errorf("an instance that does not lead began %+v", got)
	}

	// The next process of the leader goes on with its job, and begins the other.
	leader.restart()

	theirs.open <- succeeds
	theirs.open <- succeeds

	if got := leader.end(other.ID, "Complete"); got.Runs[0].TakenOver {
		t.Error("another instance took the job of the leader over, and does not lead")
	}

	leader.end(waiting.ID, "Complete")
}
