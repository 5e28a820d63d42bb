// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// pair starts two managers on one etcd, with nodes, of which a-1 is a master in service.
func pair(t *testing.T, nodes string) (leader, other *site, cords []*cord) {
	t.Helper()

	sites, cords := instances(t, "first", "second")
	leader, other = sites[0], sites[1]

	leader.up()
	t.Cleanup(leader.down)
	other.copyKey(leader)
	other.up()
	t.Cleanup(other.down)

	leader.report(nodes)
	leader.runJob(api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}, Group: inventory.GroupMaster})

	return leader, other, cords
}

// submitBeside submits a job of a worker while the leader runs one, so that the other instance runs it. It returns
// both, once they wait at their gates.
func submitBeside(leader, other *site, busy, node string) (blocking, j api.Job, gates [2]string) {
	leader.t.Helper()

	submit := func(node, instance, gate string) api.Job {
		j, err := leader.Client.Submit(leader.ctx(), api.JobRequest{
			Verb: inventory.VerbCommission, Nodes: []string{node}, Group: inventory.GroupWorker,
			ExtraVars: []byte(`{"waits_at":"` + gate + `"}`),
		})
		leader.must(err)
		leader.waitOutput(j.ID, "waiting\n")

		j, err = leader.Client.Job(leader.ctx(), j.ID)
		if leader.must(err); j.Instance != instance {
			leader.t.Fatalf("job %s runs on %s", j.ID, j.Instance)
		}

		return j
	}

	gates = [2]string{leader.fifo("busy"), leader.fifo("gate")}

	return submit(busy, leader.identity.Node, gates[0]), submit(node, other.identity.Node, gates[1]), gates
}

// TestCancelFromAnotherInstance: an instance cancels a job that another one runs. The run there is ended and its nodes
// are cleaned, long before the deadline; the job of the first goes on.
func TestCancelFromAnotherInstance(t *testing.T) {
	t.Parallel()

	leader, other, _ := pair(t, "a b c")
	busy, j, gates := submitBeside(leader, other, "b-1", "c-1")

	_, err := leader.Client.Cancel(leader.ctx(), j.ID)
	leader.must(err)

	// The cleanup waits at the gate, too.
	leader.until(j.ID, "the cleanup waits", func(j api.Job) bool { return j.Phase == "undo" })
	leader.release(gates[1])

	j, err = leader.Client.WaitJob(leader.ctx(), j.ID)
	leader.must(err)

	if j.Status != api.Cancelled || j.Instance != other.identity.Node || len(j.Runs) != 2 ||
		j.Runs[0].Exit != "cancelled" || leader.status("c-1") != "Unallocated" {
		t.Errorf("%+v; c-1 is %q", j, leader.status("c-1"))
	}

	if n := value(other.scrape(), "clusterm_runner_cancellations_total"); n != 1 {
		t.Errorf("the other instance has cancelled %v runs", n)
	}

	leader.release(gates[0])

	if busy, err = leader.Client.WaitJob(leader.ctx(), busy.ID); err != nil || busy.Status != api.Complete {
		t.Errorf("%+v, %v", busy, err)
	}
}

// TestLogOfAnotherInstance: a job's output is followed on an instance that does not run it. The one that does is cut
// off. What it had written is there, the follower goes on with the output of the take-over, and every reader on every
// instance gets the bytes that the follower got.
func TestLogOfAnotherInstance(t *testing.T) {
	t.Parallel()

	leader, other, cords := pair(t, "a b c")
	_, j, gates := submitBeside(leader, other, "b-1", "c-1")

	read := func(s *site, offset int64, follow bool) string {
		stream, err := s.Client.Log(s.ctx(), j.ID, offset, follow)
		s.must(err)
		defer stream.Close()

		text, err := io.ReadAll(stream)
		s.must(err)

		return string(text)
	}

	var (
		followed string
		follower sync.WaitGroup
	)

	follower.Go(func() { followed = read(leader, 0, true) })

	before := read(other, 0, false)
	if got := read(leader, 0, false); got != before || strings.Count(before, "waiting\n") != 1 {
		t.Errorf("where it runs: %q; elsewhere: %q", before, got)
	}

	cords[1].set(true)
	leader.until(j.ID, "it has another instance", func(j api.Job) bool { return j.Instance == leader.identity.Node })

	if got := read(leader, 0, false); !strings.HasPrefix(got, before) {
		t.Errorf("of %q, %q is left", before, got)
	}

	leader.eventually("it runs again", func() bool { return strings.Count(leader.output(j.ID), "waiting\n") == 2 })
	leader.release(gates[1])
	leader.release(gates[0])

	j, err := leader.Client.WaitJob(leader.ctx(), j.ID)
	if leader.must(err); j.Status != api.Complete {
		t.Errorf("%+v", j)
	}

	follower.Wait()
	cords[1].set(false)
	other.eventually("the other is back", func() bool { return other.store.Sync(other.ctx()) == nil })

	for _, s := range []*site{leader, other} {
		for _, offset := range []int64{0, 1, int64(len(before)) - 3, int64(len(before)), int64(len(followed))} {
			if got := read(s, offset, false); got != followed[offset:] {
				t.Errorf("%s from %d: %q, followed were %q", s.identity.Node, offset, got, followed[offset:])
			}
		}
	}

	if !strings.HasPrefix(followed, before) || !strings.Contains(followed, "ended Complete") {
		t.Errorf("followed were %q", followed)
	}
}
