// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
)

// refuseClaim ends the open job of the node as the engine ends one that must not begin any more.
func (f *fleet) refuseClaim(name string) {
	for id, j := range f.open {
		if j.Targets[0].Name != name {
			continue
		}

		delete(f.open, id)

		j.Status, j.Cause, j.Message = job.Errored, job.CausePrecondition, "the budget is used up"
		j.Ended = f.now
		node := f.nodes[name].Clone()
		node.Job, node.Verb, node.Status = "", "", j.Targets[0].From
		f.nodes[name] = &node
	}
}

// TestNeverBegun: a job that was refused when its turn came is no failure. The others go on, and
// its node is begun again after a time that grows.
func TestNeverBegun(t *testing.T) {
	t.Parallel()

	const never = 3

	for _, canary := range []int{0, 1} {
		f := newFleet(t, 1, 3)
		f.start(Spec{Action: inventory.VerbApply, Canary: canary, Gate: Gate{SkipVerify: true}})

		var began []time.Time

		f.run(24*time.Hour, func() {
			if n := f.record.Nodes[0]; n.State == Working && n.Attempt == len(began)+1 {
				if began = append(began, n.Begun); len(began) <= never {
					f.refuseClaim(n.Name)
				}
			}

			if n := f.record.Nodes[0]; n.State == Waiting && n.Attempt > 0 &&
				!strings.Contains(n.Reason, "is used up") {
				t.Errorf("its reason is %q", n.Reason)
			}

			// Somebody else configures it meanwhile.
			if n := f.nodes["w-0000"]; len(began) == never && n.Job == "" {
				n.Applied, n.Playbooks = "3", map[string]string{"service-worker": "newer"}
			}
		})

		r := f.record
		if r.Status != Done || r.Count().Succeeded != 3 || len(began) != never+1 {
			t.Fatalf("%s, %+v, begun at %s", r.Status, r.Nodes, began)
		}

		for i := range never {
			if waited := began[i+1].Sub(began[i]); waited < 30*time.Second<<i {
				t.Errorf("begun at %s", began)
			}
		}

		for _, name := range f.names[1:] {
			if j := f.jobs[f.nodes[name].Applied]; j == nil || f.visits[name+"/1"] != 1 || f.visits[name+"/2"] != 0 {
				t.Errorf("%s: %+v", name, f.visits)
			}
		}

		// The job that changed it found what somebody else had configured.
		if n := r.Nodes[0]; n.Former != "newer" || n.Applied != "3" {
			t.Errorf("%+v", n)
		}
	}
}

// TestNeverBegunAndGone: a node that cannot be begun any more is skipped.
func TestNeverBegunAndGone(t *testing.T) {
	t.Parallel()

	f := newFleet(t, 1, 2)
	f.start(Spec{Action: inventory.VerbApply, MaxUnavailable: "2", Gate: Gate{SkipVerify: true}})
	f.run(time.Hour, func() {
		if n := f.record.Nodes[0]; n.State == Working {
			f.refuseClaim(n.Name)
			f.nodes[n.Name].State = inventory.Disappeared
		}
	})

	if r := f.record; r.Status != Done || r.Nodes[0].State != Skipped || r.Nodes[1].State != Succeeded {
		t.Errorf("%s, %+v", r.Status, r.Nodes)
	}

	f = newFleet(t, 1, 1)
	f.start(Spec{Action: inventory.VerbApply, Gate: Gate{SkipVerify: true}})
	f.run(time.Hour, func() {
		if n := f.record.Nodes[0]; n.State == Working {
			f.refuseClaim(n.Name)
			f.act(f.record.Abort(Mark{By: "bob", At: f.now}, false))
		}
	})

	if r := f.record; r.Status != Aborted || r.Nodes[0].State != Skipped {
		t.Errorf("%s, %+v", r.Status, r.Nodes)
	}
}

// TestGateNeverBegun: a verification that was refused when its turn came, as of a host that reboots, is begun again
// after a pause. The node keeps its place of the window, and fails if that lasts.
func TestGateNeverBegun(t *testing.T) {
	t.Parallel()

	for never, want := range map[int]State{2: Succeeded, 1000: Failed} {
		f := newFleet(t, 1, 2)
		f.start(Spec{Action: inventory.VerbApply, MaxFailures: 1})

		var gates []string

		f.run(24*time.Hour, func() {
			n := f.record.Nodes[0]
			if n.Gate == "" || len(gates) > 0 && gates[len(gates)-1] == n.Gate {
				return
			}
			if gates = append(gates, n.Gate); len(gates) <= never {
				f.refuseClaim(n.Name)
			}
		})

		if n := f.record.Nodes; n[0].State != want || n[0].Attempt != 1 || n[1].State != Succeeded {
			t.Errorf("%d times: %+v", never, n)
		}

		if want := min(never+1, 20); len(gates) != want {
			t.Errorf("%d verifications, want %d", len(gates), want)
		}
	}

	// An abort leaves out what has not begun.
	f := newFleet(t, 1, 1)
	f.start(Spec{Action: inventory.VerbApply})
	f.run(time.Hour, func() {
		if n := f.record.Nodes[0]; n.Gate != "" && f.record.Status == Running {
			f.refuseClaim(n.Name)
			f.act(f.record.Abort(Mark{By: "bob", At: f.now}, false))
		}
	})

	if r := f.record; r.Status != Aborted || r.Nodes[0].State != Succeeded {
		t.Errorf("%s, %+v", r.Status, r.Nodes)
	}
}
