// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/job"
)

// TestBrokenLimitIsNeverDone: a limit that only the last nodes in progress break has the same end
// as any other, and the record has its cause.
func TestBrokenLimitIsNeverDone(t *testing.T) {
	t.Parallel()

	one := 1

	for name, tt := range map[string]struct {
		spec  Spec
		fails []string
		pause bool // while the last nodes are in progress
		want  string
	}{
		"the last node": {
			spec: Spec{}, fails: []string{"w-0003"}, want: "1 node failed, and max_failures is 0; w-0003: job",
		},
		"the last two at once": {
			spec:  Spec{MaxUnavailable: "2", MaxFailures: 1},
			fails: []string{"w-0002", "w-0003"}, want: "2 nodes failed, and max_failures is 1; w-0002: job",
		},
		"all at once": {
			spec:  Spec{MaxUnavailable: "4", MaxFailures: 2},
			fails: []string{"w-0000", "w-0001", "w-0002"}, want: "3 nodes failed, and max_failures is 2; w-0000: job",
		},
		"the canary is the rollout": {
			spec:  Spec{MaxUnavailable: "4", MaxFailures: 3, Canary: 4},
			fails: []string{"w-0001"}, want: "the canary failed: w-0001: job",
		},
		"a group": {
			spec: Spec{
				MaxUnavailable: "4", MaxFailures: 3,
				Strategies: map[string]Strategy{inventory.GroupWorker: {MaxFailures: &one}},
			},
			fails: []string{"w-0001", "w-0003"},
			want:  "2 nodes of group service-worker failed, and its max_failures is 1",
		},
		"while it is paused": {
			spec: Spec{MaxUnavailable: "2"}, fails: []string{"w-0003"}, pause: true,
			want: "1 node failed, and max_failures is 0; w-0003: job",
		},
	} {
		f := newFleet(t, 1, 4)
		f.fails = func(node string, attempt int, _ bool) bool { return attempt == 1 && slices.Contains(tt.fails, node) }
		tt.spec.Action, tt.spec.Gate.SkipVerify = inventory.VerbApply, true
		f.start(tt.spec)
		f.run(time.Hour, func() {
			if tt.pause && f.record.Status == Running && f.record.Nodes[3].State == Working {
				f.act(f.record.Pause(Mark{By: "bob", At: f.now}))
			}
		})

		r, stops := f.record, 0
		for _, e := range r.Events {
			if e.Kind == EventStopped && strings.HasPrefix(e.Text, tt.want) {
				stops++
			}
		}

		if r.Status != Fruitless || !r.Status.Ended() || !strings.Contains(r.Reason, tt.want) || stops != 1 {
			t.Errorf("%s: %s, %q, %+v", name, r.Status, r.Reason, r.Events)
		}

		// The correction of the cause is an end as any other.
		f.act(f.record.Retry(Mark{By: "bob", At: f.now}, nil))
		f.run(time.Hour, nil)

		if r = f.record; r.Status != Done || r.Count().Succeeded != 4 {
			t.Errorf("%s: after a retry: %s, %+v", name, r.Status, r.Count())
		}
	}
}

// TestRefusalBreaksTheLimit: the refusal of the last job counts as its failure.
func TestRefusalBreaksTheLimit(t *testing.T) {
	t.Parallel()

	r := Record{Status: Running, Spec: Spec{Action: inventory.VerbApply}, Nodes: []Node{
		{Name: "w-0000", State: Succeeded, Attempt: 1}, {Name: "w-0001", State: Waiting},
	}}

	paused, err := r.Refused(Begin{Node: "w-0001"}, "no play", epoch).Pause(Mark{By: "bob", At: epoch})
	errtest.None(t, err)

	f := newFleet(t, 1, 2)
	for _, r := range []Record{r.Refused(Begin{Node: "w-0001"}, "no play", epoch), paused} {
		if is := Next(r, f.world(), f.now).Record; is.Status != Fruitless || !strings.Contains(is.Reason, "no play") {
			t.Errorf("%s, %q", is.Status, is.Reason)
		}
	}
}

// TestWithinTheLimit: failures within the limit, and those that a person excused, end as Done.
func TestWithinTheLimit(t *testing.T) {
	t.Parallel()

	for _, limit := range []int{0, 1} {
		f := newFleet(t, 1, 3)
		f.fails = func(node string, _ int, _ bool) bool { return node == "w-0001" }
		f.start(Spec{Action: inventory.VerbApply, MaxFailures: limit, Gate: Gate{SkipVerify: true}})
		f.run(time.Hour, nil)

		if limit == 0 {
			f.act(f.record.Resume(Mark{By: "bob", At: f.now}))
			f.run(time.Hour, nil)
		}

		if r := f.record; r.Status != Done || r.Count().Failed != 1 || f.jobs["102"].Status != job.Errored {
			t.Errorf("limit %d: %s, %q", limit, r.Status, r.Reason)
		}
	}
}
