// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/state"
)

func fleet(n int) []*inventory.Node {
	nodes := make([]*inventory.Node, n)
	for i := range nodes {
		nodes[i] = member(fmt.Sprintf("n-%02d", i), noon.Add(-time.Hour))
	}

	return nodes
}

func TestBrake(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		nodes, lost int
		over        time.Duration // from the first loss to the last
		on          bool
	}{
		{40, 11, 0, false},
		{40, 12, 0, true}, // 30 %
		{40, 30, 0, true},
		{40, 40, 0, true},
		{3, 2, 0, false}, // below the minimum
		{3, 3, 0, true},
		{40, 20, time.Hour, false}, // one after the other
	} {
		nodes := fleet(c.nodes)
		for i := range c.lost {
			seen(nodes[i], false, noon.Add(c.over*time.Duration(i)/time.Duration(c.lost)))
		}

		w := world(nodes...)
		w.Now = noon.Add(c.over).Add(time.Minute)

		b, d := policy.Brake(w)
		if b.On != c.on || (d != nil) != c.on {
			t.Errorf("%d of %d over %s: %+v", c.lost, c.nodes, c.over, b)
		}
		if c.on && (b.Vanish != c.lost || b.Visible != c.nodes || !b.Until.Equal(w.Now.Add(time.Hour))) {
			t.Errorf("%d of %d: %+v", c.lost, c.nodes, b)
		}
	}
}

// TestBrakeShortAbsences: nodes that were back within the settling time do not set off the brake, as when agents are
// restarted one after the other; those that are still away, or were away for longer, do.
func TestBrakeShortAbsences(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name  string
		away  time.Duration
		still int // away at the end
		on    bool
	}{
		{"short", 20 * time.Second, 0, false},
		{"just as long as it has to settle", time.Minute, 0, false},
		{"longer", 61 * time.Second, 0, true},
		{"short, and two are away", 20 * time.Second, 2, false},
		{"short, and three are away", 20 * time.Second, 3, true},
	} {
		nodes := fleet(10)
		for i := range 6 {
			seen(nodes[i], false, noon)
			seen(nodes[i], true, noon.Add(c.away))
		}

		for i := range c.still {
			seen(nodes[9-i], false, noon.Add(90*time.Second))
		}

		w := world(nodes...)
		w.Now = noon.Add(2 * time.Minute)

		if b, _ := policy.Brake(w); b.On != c.on || c.on && b.Visible != 10 {
			t.Errorf("%s: %+v", c.name, b)
		}
	}
}

// TestBrakeHolds: the brake stays on when the nodes return, is released at its time or by
// an operator, and does not count the same absences again.
func TestBrakeHolds(t *testing.T) {
	t.Parallel()

	nodes := fleet(10)
	for i := range 5 {
		seen(nodes[i], false, noon)
	}

	w := world(nodes...)
	w.Now = noon.Add(10 * time.Second)
	brake, _ := policy.Brake(w)
	setBrake(w.View, brake)

	text := policy.Describe(state.AutomationOf(w.View).Brake)
	for _, part := range []string{"5 of 10 nodes", "n-00, n-01, n-02, n-03, n-04)", "releases itself at"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q lacks %q", text, part)
		}
	}

	for i := range 5 {
		seen(nodes[i], true, noon.Add(time.Minute))
	}

	w.Now = noon.Add(30 * time.Minute)
	if b, d := policy.Brake(w); !b.On || d != nil {
		t.Errorf("released too early: %+v", b)
	}

	w.Now = noon.Add(70 * time.Minute)
	if b, d := policy.Brake(w); b.On || d == nil || d.Action != state.ActionRelease || b.ReleasedBy != "policy:brake" {
		t.Errorf("not released: %+v", b)
	}

	// A release by an operator, right after the fault.
	w.Now = noon.Add(20 * time.Second)
	released, _ := policy.Release(state.AutomationOf(w.View).Brake, w.Now, "ann", "the switch is back")
	setBrake(w.View, released)
	w.Now = noon.Add(time.Minute)

	if b, d := policy.Brake(w); b.On || d != nil || policy.Describe(b) != "" {
		t.Errorf("it is on again for the same absences: %+v", b)
	}

	for i := range 4 {
		seen(nodes[i], false, noon.Add(2*time.Minute))
	}

	w.Now = noon.Add(3 * time.Minute)
	if b, _ := policy.Brake(w); !b.On || b.Vanish != 4 {
		t.Errorf("a second fault: %+v", b)
	}
}

// TestBrakeAfterStarts: each start and each jump moves the release, once, and the words say so.
func TestBrakeAfterStarts(t *testing.T) {
	t.Parallel()

	nodes := fleet(10)
	for i := range 5 {
		seen(nodes[i], false, noon)
	}

	w := world(nodes...)
	w.Now = noon.Add(10 * time.Second)
	w.Start = policy.Start{Began: noon.Add(-time.Hour), Epoch: noon.Add(-time.Hour)}

	b, _ := policy.Brake(w)
	since := b.Since

	for _, epoch := range []time.Time{
		noon.Add(40 * time.Minute), noon.Add(80 * time.Minute), noon.AddDate(1, 0, 0), noon.AddDate(-1, 0, 0),
	} {
		w.Start = policy.Start{Began: epoch, Epoch: epoch}
		if w.Now = epoch; epoch.Before(since) {
			since = epoch
		}

		for range 3 {
			var d *state.Decision

			setBrake(w.View, b)

			b, d = policy.Brake(w)
			if !b.On || d != nil || !b.Until.Equal(epoch.Add(time.Hour)) || !b.Since.Equal(since) {
				t.Errorf("started at %s: %+v, %v", epoch, b, d)
			}

			w.Now = w.Now.Add(20*time.Minute - time.Second)
		}

		text := policy.Describe(b)
		for _, at := range []time.Time{since, epoch.Add(time.Hour)} {
			if stamp := at.Format("2006-01-02 15:04"); !strings.Contains(text, stamp) {
				t.Errorf("started at %s: %q lacks %s", epoch, text, stamp)
			}
		}
	}

	w.Now = b.Until
	setBrake(w.View, b)

	if b, d := policy.Brake(w); b.On || d == nil {
		t.Errorf("not released: %+v", b)
	}
}

// TestBrakeSparesJobsOfPeople: a node that a person's job reboots does not count. One that
// stays away after that job does, and so does one that a policy reboots.
func TestBrakeSparesJobsOfPeople(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name string
		verb inventory.Verb
		by   string
		from time.Duration // the start of the job, from the loss on
		end  time.Duration // its end; 0: it runs
		back bool
		on   bool
	}{
		{"it runs", inventory.VerbMaintenance, "ann", -time.Minute, 0, false, false},
		{"it runs, and they are back", inventory.VerbMaintenance, "ann", -time.Minute, 0, true, false},
		{"it has ended, and they are back", inventory.VerbMaintenance, "ann", -time.Minute, time.Minute, true, false},
		{"it has ended, and they are away", inventory.VerbMaintenance, "ann", -time.Minute, time.Minute, false, true},
		{"it ended before", inventory.VerbMaintenance, "ann", -time.Hour, -time.Minute, true, true},
		{"it began later", inventory.VerbMaintenance, "ann", time.Minute, 0, true, true},
		{"it reboots nothing", inventory.VerbVerify, "ann", -time.Minute, 0, false, true},
		{"it is one of a policy", inventory.VerbReapply, "policy:returns", -time.Minute, 0, false, true},
	} {
		nodes := fleet(10)
		j := job.Job{ID: "1", Verb: c.verb, Actor: c.by, Status: job.Running, Started: noon.Add(c.from)}

		for i := range 5 {
			seen(nodes[i], false, noon)

			if c.back {
				seen(nodes[i], true, noon.Add(90*time.Second))
			}

			j.Targets = append(j.Targets, job.Target{Name: nodes[i].Name})
		}

		if c.end != 0 {
			j.Status, j.Ended = job.Complete, noon.Add(c.end)
		}

		w := world(nodes...)
		w.Now = noon.Add(2 * time.Minute)
		w.View.SetJobs(&j)

		if b, _ := policy.Brake(w); b.On != c.on {
			t.Errorf("%s: %+v", c.name, b)
		}
	}

	// A job that waits reboots nothing, and its helpers are held as well.
	nodes := fleet(10)
	for i := range 5 {
		seen(nodes[i], false, noon)
	}

	w := world(nodes...)
	w.Now = noon.Add(time.Minute)
	w.View.SetJobs([]*job.Job{{
		ID: "1", Verb: inventory.VerbMaintenance, Actor: "ann", Status: job.Queued,
		Helpers: []string{"n-00", "n-01", "n-02", "n-03", "n-04"},
	}}...)

	if b, _ := policy.Brake(w); !b.On {
		t.Error("a queued job excuses its nodes")
	}

	w.View.Jobs()[0].Status, w.View.Jobs()[0].Started = job.Running, noon.Add(-time.Minute)

	if b, _ := policy.Brake(w); b.On {
		t.Errorf("the helpers count: %+v", b)
	}
}
