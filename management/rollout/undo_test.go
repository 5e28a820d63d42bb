// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/job/jobtest"
)

// TestUndoAfterAnyActs: whatever was refused, failed, retried and aborted, the undo brings back
// each node that differs from the start, and only those.
func TestUndoAfterAnyActs(t *testing.T) {
	t.Parallel()

	for seed := range uint64(300) {
		f := newFleet(t, seed, 5)
		f.fails = func(string, int, bool) bool { return f.rand.IntN(3) == 0 }
		f.ends = func(gate bool) end {
			if gate {
				return endsFailed
			}
			return []end{endsFailed, endsUntouched, endsRefused, endsForbidden}[f.rand.IntN(4)]
		}
		f.accepts = func() answer { return []answer{refuses, postpones, accepts}[min(f.rand.IntN(8), 2)] }
		f.watch()
		f.start(Spec{
			Action: inventory.VerbApply, MaxUnavailable: "2", MaxFailures: f.rand.IntN(6),
			Gate: Gate{SkipVerify: f.rand.IntN(2) == 0},
		})

		for range 1 + f.rand.IntN(4) {
			f.run(24*time.Hour, nil)

			if f.record.Count().Failed == 0 || f.rand.IntN(4) == 0 && !f.record.Status.Ended() {
				break
			}

			f.retry(nil)
		}

		if !f.record.Status.Ended() {
			f.abort(true)
			f.run(time.Hour, nil)
		}

		f.checkUndo()
	}
}

// TestUndoAfterARetry walks single cases of what an attempt does to the memory of a node.
func TestUndoAfterARetry(t *testing.T) {
	t.Parallel()

	target := func(applied, digest string) []job.Target {
		return []job.Target{{Name: "a", FromGroup: "g", Applied: applied, Playbooks: map[string]string{"g": digest}}}
	}

	begun := func(id string, found []job.Target) func(Record, World) Record {
		return func(r Record, _ World) Record {
			return r.Begun(Begin{Node: "a"}, job.Job{ID: id, Targets: found}, epoch)
		}
	}
	retried := func(r Record, _ World) Record {
		r, err := r.Retry(Mark{At: epoch}, []string{"a"})
		errtest.None(t, err)
		return r
	}
	refused := func(r Record, _ World) Record { return r.Refused(Begin{Node: "a"}, "no play", epoch) }
	next := func(r Record, w World) Record { return Next(r, w, epoch).Record }

	for name, tt := range map[string]struct {
		acts []func(Record, World) Record
		// applied is the job that configured the node at the end.
		applied, want string
	}{
		"its first job changed it, and its second one was refused": {
			[]func(Record, World) Record{begun("7", target("3", "former")), next, retried, refused},
			"7", "waiting former ",
		},
		"its first job was refused": {
			[]func(Record, World) Record{refused, retried, begun("8", target("3", "former")), next},
			"8", "waiting former ",
		},
		"every job was refused": {
			[]func(Record, World) Record{refused, retried, refused},
			"3", "skipped  its job was refused: it is as it was",
		},
		"its second job changed nothing": {
			[]func(Record, World) Record{
				begun("7", target("3", "former")), next, retried, begun("9", target("7", "new")), next,
			}, "7", "waiting former ",
		},
		"its second job was cancelled in the queue": {
			[]func(Record, World) Record{
				begun("7", target("3", "former")), next, retried, begun("10", target("7", "new")), next,
			}, "7", "waiting former ",
		},
		"its second job is no longer kept": {
			[]func(Record, World) Record{
				begun("7", target("3", "former")), next, retried,
				begun("11", target("7", "new")), next, retried, refused,
			}, "11", "waiting former ",
		},
		"nothing was known of it before, and its second job was refused": {
			[]func(Record, World) Record{begun("6", target("", "")), next, retried, refused}, "",
			"skipped  it is not known which playbooks had configured it before",
		},
		"somebody else configured it since": {
			[]func(Record, World) Record{begun("7", target("3", "former")), next, retried, refused}, "20",
			"skipped former job 20 has configured it since",
		},
	} {
		jobs := map[string]job.Job{
			"6":  {ID: "6", Status: job.Errored, Cause: job.CauseFailed},
			"7":  {ID: "7", Status: job.Complete},
			"8":  {ID: "8", Status: job.Complete},
			"10": {ID: "10", Status: job.Cancelled, Cause: job.CauseCancelled},
			"9": {
				ID: "9", Status: job.Errored, Cause: job.CauseFailed,
				Outcomes: map[string]inventory.Outcome{"a": {AsBefore: true}},
			},
		}
		w := World{
			Node: func(string) *inventory.Node { return nil }, // so that its soak time fails
			Job:  func(id string) (job.Job, bool) { j, ok := jobs[id]; return j, ok },
		}

		r := Record{ID: "r00000001", Status: Running, Spec: Spec{
			Action: inventory.VerbApply, Soak: time.Minute, Gate: Gate{SkipVerify: true},
		}, Nodes: []Node{
			{Name: "a", Group: "g", State: Waiting},
			{Name: "b", State: Failed, Attempt: 1, Former: "b", Job: "1"},
		}}
		for _, act := range tt.acts {
			r = act(r, w)
		}

		r.Status = Fruitless
		s := jobtest.With(
			&inventory.Node{Name: "a", Group: "g", Applied: tt.applied}, &inventory.Node{Name: "b", Applied: "1"},
		)

		u, err := r.Undo(s, nil, func(string) (bool, error) { return true, nil }, "", epoch)
		if err != nil || len(u.Nodes) != 2 {
			t.Errorf("%s: %+v, %v", name, u, err)
			continue
		}

		n := u.Nodes[0]
		if got := fmt.Sprintf("%s %s %s", n.State, n.Playbooks, n.Reason); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

// TestUndoNeedsAnAnswer: while the store does not say whether the former playbooks are kept, no
// node is skipped for it.
func TestUndoNeedsAnAnswer(t *testing.T) {
	t.Parallel()

	f := newFleet(t, 1, 2)
	f.start(Spec{Action: inventory.VerbApply, Gate: Gate{SkipVerify: true}})
	f.run(time.Hour, nil)

	down := inventory.Errorf(inventory.KindUnavailable, "etcd does not answer")

	_, err := f.record.Undo(f.snapshot(), nil, func(string) (bool, error) { return false, down }, "", f.now)
	if !errors.Is(err, down) {
		t.Errorf("%v", err)
	}
}

// TestUndoOfAnOpenRollout: the refusal has the way to the end of the rollout as an action; once that is followed, the
// undo starts.
func TestUndoOfAnOpenRollout(t *testing.T) {
	t.Parallel()

	f := newFleet(t, 1, 3)
	f.fails = func(string, int, bool) bool { return true }
	f.start(Spec{Action: inventory.VerbApply, Canary: 1, Gate: Gate{SkipVerify: true}})
	f.record.ID = "r1"
	f.run(time.Hour, nil)

	kept := func(string) (bool, error) { return true, nil }
	refused := func(r Record, want string) {
		t.Helper()

		_, err := r.Undo(f.snapshot(), nil, kept, "", f.now)

		e, ok := errors.AsType[*inventory.Error](err)
		if !ok || fmt.Sprint(e.Actions) != want {
			t.Errorf("%s: %v, want %s", r.Status, err, want)
		}
	}

	if f.record.Status != Stopped {
		t.Fatal(f.record.Status)
	}

	refused(f.record, "[abort-rollout rollout=r1]")

	busy := f.record
	busy.Nodes = slices.Clone(busy.Nodes)
	busy.Nodes[1].State = Working
	refused(busy, "[abort-rollout rollout=r1 show-rollout rollout=r1]")

	busy.Status = Aborting
	refused(busy, "[show-rollout rollout=r1]")

	f.act(f.record.Abort(f.mark(), false))
	f.run(time.Hour, nil)

	if u, err := f.record.Undo(f.snapshot(), nil, kept, "", f.now); err != nil || u.UndoOf != "r1" {
		t.Errorf("%s: %+v, %v", f.record.Status, u, err)
	}
}
