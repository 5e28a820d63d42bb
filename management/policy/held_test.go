// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/window"
)

// TestCommissionFrozen: no new node is commissioned during a freeze, whether it takes the place
// of a lost one or not.
func TestCommissionFrozen(t *testing.T) {
	t.Parallel()

	m := []*inventory.Node{master("m-0", "a"), master("m-1", "b"), master("m-2", "c")}
	w := siteWorld(siteRule(), append(slices.Clone(m), inRack("n-0", "a", noon), inRack("n-1", "b", noon))...)
	lose(w, m[0], time.Hour)

	rule := policy.Commission{Rule: siteRule()}
	d := policy.Decide(rule, w).Decisions
	thaw := w.Now.Add(time.Hour)

	if len(d) != 2 {
		t.Fatalf("%+v", d)
	}

	w.View.View = record.WithOne(
		w.View.View,
		&window.FreezeKind,
		window.Freeze{On: true, Since: noon, Until: thaw, Actor: "ann", Reason: "an audit"},
	)

	p := policy.Decide(rule, w)
	if joins(p) != "" || !p.Next.Equal(thaw) {
		t.Errorf("%s, next %s", joins(p), p.Next)
	}

	for _, one := range d {
		if why := policy.Confirm(rule, w, one); !strings.Contains(why, "ann froze all changes") {
			t.Errorf("%s holds: %q", one.ID, why)
		}
	}
}

// TestDropQueued: a commission that has not begun is cancelled when its policy may not act any
// more, or when the node returns whose place it would take.
func TestDropQueued(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name   string
		change func(w *policy.World, lost *inventory.Node)
		want   string
	}{
		{"nothing happened", func(*policy.World, *inventory.Node) {}, ""},
		{"it returned", func(w *policy.World, lost *inventory.Node) { seen(lost, true, w.Now) }, "m-0 returned"},
		{"off", func(w *policy.World, _ *inventory.Node) {
			setMemory(w.View, state.AutomationOf(w.View).Turn("site", state.Switch{Since: w.Now, Actor: "ann"}))
		}, "ann turned it off"},
		{"paused", func(w *policy.World, _ *inventory.Node) {
			setPaused(w.View, map[string]state.Pause{"site": {Actor: "ann"}})
		}, "ann paused it"},
	} {
		for _, status := range []job.Status{job.Queued, job.Running} {
			m := []*inventory.Node{master("m-0", "a"), master("m-1", "b"), master("m-2", "c")}
			w := siteWorld(siteRule(), append(slices.Clone(m), inRack("n-0", "a", noon))...)
			lose(w, m[0], time.Hour)

			rule := policy.Commission{Rule: siteRule()}
			d := policy.Decide(rule, w).Decisions[0]
			d.Phase, d.Job = state.PhaseDone, "7"
			setMemory(w.View, state.AutomationOf(w.View).With(d))
			w.View.SetJobs([]*job.Job{{
				ID: "7", Verb: inventory.VerbCommission, Group: d.Group, Status: status, Actor: "policy:site",
				Targets: []job.Target{{Name: d.Node}},
			}}...)

			c.change(&w, m[0])

			got := policy.Decide(rule, w).Decisions
			if c.want == "" || status == job.Running {
				if len(got) > 0 {
					t.Errorf("%s, %s: %+v", c.name, status, got)
				}

				continue
			}

			if len(got) != 1 || got[0].Cancel != "7" || !strings.Contains(got[0].Case, c.want) {
				t.Errorf("%s: %+v", c.name, got)
			}
		}
	}
}

// TestHeldJobsLeaveTheirTurn: jobs that wait for the end of a freeze do not keep nodes that
// returned from their verification.
func TestHeldJobsLeaveTheirTurn(t *testing.T) {
	t.Parallel()

	w := world(back("n-1", 2*time.Minute, inventory.Contact{Reached: true, Boot: bootB}))
	w.Settings.Jobs = 2

	for i := range 2 {
		w.View.PutJob(&job.Job{
			ID: fmt.Sprint(i), Verb: inventory.VerbCommission, Group: "service-master", Status: job.Queued,
			Actor: "policy:site", Targets: []job.Target{{Name: fmt.Sprint("x-", i)}},
		})
	}

	if got := actions(decide(w)); got != "" {
		t.Fatalf("two jobs are due: %q", got)
	}

	w.View.View = record.WithOne(
		w.View.View,
		&window.FreezeKind,
		window.Freeze{On: true, Since: noon, Actor: "ann", Reason: "an audit"},
	)

	if got := actions(decide(w)); got != "verify n-1" {
		t.Errorf("two jobs are held: %q", got)
	}
}
