// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

// TestReturn: one node is cut off and returns. It is verified once, and everything is
// recorded.
func TestReturn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 5)
		l := s.leader()
		s.run(l, 2*time.Minute)

		if s.ops > 0 {
			t.Fatalf("%d operations while nothing happened", s.ops)
		}

		s.boots[name(3)] = ""
		s.see(false, 3)
		s.run(l, time.Minute)

		if away := s.View().Nodes()[3].Presence.Away; away.Time.IsZero() || away.Reached {
			t.Errorf("no second opinion: %+v", away)
		}

		s.boots[name(3)] = bootA
		s.see(true, 3)
		s.run(l, 50*time.Second)

		if s.jobs() != "" {
			t.Errorf("it did not settle: %s", s.jobs())
		}

		s.run(l, 10*time.Minute)

		if s.jobs() != "verify "+name(3) {
			t.Errorf("jobs: %s", s.jobs())
		}

		d := state.AutomationOf(s.View()).Decisions[0]
		if d.Case != string(CaseNetwork) || d.Phase != state.PhaseDone || d.Job != "1" || d.Node != name(3) {
			t.Errorf("%+v", d)
		}

		j := s.View().Jobs()[0]
		if j.Actor != "policy:returns" || !strings.Contains(j.Reason, string(CaseNetwork)) {
			t.Errorf("%+v", j)
		}

		decided := func(r access.Record) bool {
			return r.Action == "policies.decide.verify" && r.Principal == "policy:returns" &&
				slices.Equal(r.Targets, []string{name(3)}) && strings.Contains(r.Reason, "by its uptime, it booted at")
		}
		if !slices.ContainsFunc(s.trail, decided) {
			t.Errorf("no audit record: %+v", s.trail)
		}

		if findings := l.Explain(s.View(), *s.View().Nodes()[3]); len(findings) != 1 || findings[0].Job != "1" {
			t.Errorf("%+v", findings)
		}

		// The boot id is known now, so a reboot is seen even in a container with the uptime
		// of its host.
		s.boots[name(3)] = bootB
		s.see(false, 3)
		s.run(l, time.Minute)
		s.see(true, 3)
		s.run(l, 10*time.Minute)

		if d := state.AutomationOf(s.View()).Decisions; len(d) != 2 || d[1].Case != string(CaseRebooted) {
			t.Errorf("%+v", d)
		}
	})
}

// TestNetworkFault: 30 of 40 nodes vanish and return. Nothing is done until the brake is
// released; then the work is limited.
func TestNetworkFault(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 40)
		s.settings.Groups = reacting(inventory.ReactionRepair)
		l := s.leader()
		s.run(l, 2*time.Minute)

		s.see(false, upTo(30)...)
		s.run(l, time.Minute)

		status := l.Status()
		if !status.Brake.Engaged || status.Brake.Vanished != 30 ||
			!strings.Contains(status.Brake.Message, "30 of 40 nodes vanished") {
			t.Fatalf("%+v", status)
		}

		s.see(true, upTo(30)...)

		// Another leader keeps the brake.
		l = s.leader()
		s.run(l, 2*time.Hour)

		if s.jobs() != "" {
			t.Fatalf("the brake does not hold: %s", s.jobs())
		}

		// People can always act, and are made room for.
		if _, err := l.Release(t.Context(), access.Caller{Principal: "ann"}, "the switch is back"); err != nil {
			t.Fatal(err)
		}

		s.run(l, 9*time.Minute)

		if n := len(s.View().Jobs()); n != 20 || s.busiest > 2 {
			t.Errorf("%d jobs within the window, %d at a time", n, s.busiest)
		}

		s.run(l, 30*time.Minute)

		if n := len(s.View().Jobs()); n != 30 {
			t.Errorf("%d jobs, want one for each of 30 nodes", n)
		}

		if _, err := l.Release(t.Context(), access.Caller{Principal: "ann"}, ""); inventory.KindOf(err) !=
			inventory.KindRefused {
			t.Errorf("released twice: %v", err)
		}
	})
}

// TestBrakeReleasesItself: at the configured time, without a change of the view.
func TestBrakeReleasesItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 4)
		s.settings.Brake.ReleaseAfter = 30 * time.Minute
		l := s.leader()

		s.see(false, 0, 1, 2)
		s.run(l, 29*time.Minute)

		if !state.AutomationOf(s.View()).Brake.On {
			t.Fatal("the brake is off")
		}

		s.run(l, 2*time.Minute)

		if b := state.AutomationOf(s.View()).Brake; b.On || b.ReleasedBy != "policy:brake" {
			t.Errorf("%+v", b)
		}
	})
}

// TestBrakeTellsItsRelease: after a restart the time to the release begins anew, and is shown so.
func TestBrakeTellsItsRelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 4)
		s.settings.Brake.ReleaseAfter = 30 * time.Minute

		s.see(false, 0, 1, 2)
		s.run(s.leader(), 20*time.Minute)

		pulled := state.AutomationOf(s.View()).Brake.Since
		again := time.Now()
		l := s.leader()
		s.run(l, 20*time.Minute)

		brake, until := state.AutomationOf(s.View()).Brake, again.Add(30*time.Minute).UTC()
		if !brake.On || !brake.Until.Equal(until) || !brake.Since.Equal(pulled) {
			t.Fatalf("not until %s: %+v", until, brake)
		}
		shown := "it releases itself at " + until.Format("2006-01-02 15:04")
		if text := l.Status().Brake.Message; !strings.Contains(text, shown) {
			t.Errorf("%q lacks %q", text, shown)
		}

		s.run(l, 11*time.Minute)

		b := state.AutomationOf(s.View()).Brake
		if b.On || !b.WaitFrom.IsZero() || b.Released.Sub(until).Abs() > retry {
			t.Errorf("until %s: %+v", until, b)
		}
	})
}

// TestUnknownConfigurationIsCleaned: what a job that broke off has left is cleaned by a repair.
func TestUnknownConfigurationIsCleaned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 5)
		s.verdict = inventory.Drifted
		s.settings.Groups = reacting(inventory.ReactionVerifyAndRepair)
		l := s.leader()

		s.see(false, 2)
		s.run(l, time.Minute)
		s.see(true, 2)

		s.mu.Lock()
		s.publish(func(v *state.View) {
			n := v.Nodes()[2].Clone()
			n.Applied = ""
			v.PutNode(&n)
		})
		s.mu.Unlock()
		s.run(l, time.Hour)

		if want := "verify " + name(2) + ", reapply " + name(2); s.jobs() != want {
			t.Errorf("jobs %s, want %s", s.jobs(), want)
		}
	})
}

// TestDriftIsRepaired in the mode verify-and-repair, once, and in place: what serves is not cleaned.
func TestDriftIsRepaired(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 5)
		s.verdict = inventory.Drifted
		s.settings.Groups = reacting(inventory.ReactionVerifyAndRepair)
		l := s.leader()

		s.see(false, 2)
		s.run(l, time.Minute)
		s.see(true, 2)
		s.run(l, time.Hour)

		if want := "verify " + name(2) + ", apply " + name(2); s.jobs() != want {
			t.Errorf("jobs %s, want %s", s.jobs(), want)
		}
	})
}

// TestForeignHost: a node with another ssh host key is fenced, and nothing is
// run on that host.
func TestForeignHost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 5)
		l := s.leader()

		s.see(false, 2)
		s.foreign[name(2)] = true
		s.see(true, 2)
		s.run(l, 10*time.Minute)

		n := s.View().Nodes()[2]
		if n.Status != inventory.Quarantined || !strings.Contains(n.LastError, "another host answers under its name") ||
			s.jobs() != "" {
			t.Errorf("%s, %q, jobs %q", n.Status, n.LastError, s.jobs())
		}
	})
}

// TestYields: a verification ends for the job of a person.
func TestYields(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 5)
		s.takes = time.Hour
		l := s.leader()

		s.see(false, 2)
		s.run(l, time.Minute)
		s.see(true, 2)
		s.run(l, 2*time.Minute)

		s.mu.Lock()
		s.publish(func(v *state.View) {
			v.PutJob(&job.Job{
				ID:      "2",
				Verb:    inventory.VerbReapply,
				Status:  job.Queued,
				Actor:   "ann",
				Targets: []job.Target{{Name: name(2)}},
			})
		})
		s.mu.Unlock()
		s.run(l, 10*time.Second)

		if j := s.View().Jobs()[0]; j.Status != job.Cancelled || j.Cancel != 1 {
			t.Errorf("%+v", j)
		}
	})
}

// TestYieldsToAChange: a change that needs a free node ends the verification first, and a
// repair not at all.
func TestYieldsToAChange(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		mode inventory.Reaction
		want job.Status
		took time.Duration
	}{{inventory.ReactionVerify, job.Cancelled, 2 * time.Second}, {inventory.ReactionRepair, job.Running, 0}} {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, 5)
			s.takes = 10 * time.Hour
			s.settings.Groups = reacting(c.mode)
			l := s.leader()

			s.see(false, 2)
			s.run(l, time.Minute)
			s.see(true, 2)
			s.run(l, 2*time.Minute)
			s.hold(2, "1")

			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})

			go func() { defer close(ended); l.Run(ctx) }()

			begun := time.Now()

			if err := l.Yield(ctx, "ann", []string{name(1), name(2)}); err != nil {
				t.Error(err)
			}

			if took := time.Since(begun); took > c.took || s.View().Jobs()[0].Status != c.want {
				t.Errorf("%s: job %s after %s", c.mode, s.View().Jobs()[0].Status, took)
			}

			cancel()
			<-ended
		})
	}
}

// TestPauseAndResume: a pause holds later decisions, and survives another leader.
func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ann := access.Caller{Principal: "ann"}
		s := newSite(t, 5)
		l := s.leader()

		for _, name := range []string{"", "nightly", "brake"} {
			if _, err := l.Pause(t.Context(), ann, name, ""); inventory.KindOf(err) != inventory.KindNotFound {
				t.Errorf("pause %q: %v", name, err)
			}
		}

		if _, err := l.Pause(t.Context(), ann, "returns", "a move"); err != nil {
			t.Fatal(err)
		}

		s.see(false, 2)
		s.run(l, time.Minute)
		s.see(true, 2)

		l = s.leader()
		s.run(l, time.Hour)

		status := l.Status().Policies[0]
		if s.jobs() != "" || status.Pending != 1 || !strings.Contains(status.Halted, "ann paused it") ||
			!strings.Contains(status.Halted, "a move") {
			t.Errorf("jobs %q, %+v", s.jobs(), status)
		}

		if _, err := l.Resume(t.Context(), ann, "returns", ""); err != nil {
			t.Fatal(err)
		}

		s.run(l, 10*time.Minute)

		if s.jobs() != "verify "+name(2) {
			t.Errorf("jobs %q", s.jobs())
		}
	})
}

// TestPauseReason: a pause keeps the newest reason with its actor, and its beginning.
func TestPauseReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 1)
		l := s.leader()
		begun := time.Now()

		for _, step := range []struct{ actor, reason, want string }{
			{"ann", "", "ann: "}, {"bob", "an audit", "bob: an audit"}, {"cid", "", "bob: an audit"},
			{"cid", "an audit", "bob: an audit"}, {"ann", "a move", "ann: a move"},
		} {
			status, err := l.Pause(t.Context(), access.Caller{Principal: step.actor}, state.AllPolicies, step.reason)
			errtest.None(t, err)
			if p := status.Paused; p == nil || p.Actor+": "+p.Reason != step.want || !p.Since.Equal(begun) {
				t.Errorf("%+v: %+v", step, p)
			}

			time.Sleep(time.Minute)
		}
	})
}

// TestFollowerDecidesNothing, nor does a leader with a stale view or a record of policies
// that it cannot read.
func TestFollowerDecidesNothing(t *testing.T) {
	t.Parallel()

	for _, change := range []func(*site){
		func(s *site) { s.leads = false },
		func(s *site) { s.settings.Incomplete = errCrash },
		func(s *site) { s.publish(func(v *state.View) { v.Stale = true }) },
		func(s *site) {
			s.publish(func(v *state.View) { v.Unreadable = map[string]string{"v/automation": "damaged"} })
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, 5)
			s.see(false, 2)
			s.see(true, 2)
			change(s)
			s.run(s.leader(), time.Hour)

			if s.ops > 0 {
				t.Errorf("%d operations", s.ops)
			}
		})
	}
}

// TestKilledAnywhere kills the manager at each of its operations, before and after the
// operation took effect. The next one neither loses a decision nor does it twice.
func TestKilledAnywhere(t *testing.T) {
	t.Parallel()

	killedAnywhere(t, 1, func(t *testing.T, crash int, late bool) bool {
		s := newSite(t, 5)
		s.verdict = inventory.Drifted
		s.settings.Groups = reacting(inventory.ReactionVerifyAndRepair)
		s.crash, s.late = crash, late

		s.see(false, 2)
		s.run(s.leader(), time.Minute)
		s.see(true, 2)
		s.run(s.leader(), 3*time.Minute)

		reached := s.revive()
		s.run(s.leader(), time.Hour)

		if want := "verify " + name(2) + ", apply " + name(2); s.jobs() != want {
			t.Errorf("jobs %q, want %q", s.jobs(), want)
		}

		for _, d := range state.AutomationOf(s.View()).Decisions {
			if d.Phase != state.PhaseDone || d.Job == "" {
				t.Errorf("%+v", d)
			}
		}

		return reached
	})
}

// TestQuestionsAreFair: more nodes than there is room for are all asked, and the slow ones
// at the front do not starve the others. Forgotten names are not kept.
func TestQuestionsAreFair(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const nodes = 5 * questions

		s := newSite(t, nodes)
		s.settings.Brake.Share = 100
		s.settings.Brake.Minimum = 10_000
		s.ponders = askTime / 2
		l := s.leader()

		for i := range nodes {
			s.boots[name(i)] = ""
		}

		s.see(false, upTo(nodes)...)
		s.see(true, upTo(nodes)...)
		s.run(l, 10*time.Minute)

		least, most := s.asked[name(0)], 0
		for i := range nodes {
			least, most = min(least, s.asked[name(i)]), max(most, s.asked[name(i)])
		}

		if least == 0 || most-least > 1 {
			t.Errorf("between %d and %d questions to a host", least, most)
		}

		s.mu.Lock()
		s.publish(func(v *state.View) { v.SetNodes(v.Nodes()[:3]...) })
		s.mu.Unlock()
		s.run(l, time.Minute)

		if len(l.asked) > 3 {
			t.Errorf("%d names are kept of 3 nodes", len(l.asked))
		}
	})
}

// TestSlowSubmit: a job engine that does not answer holds up neither the brake nor the job
// of a person, and is asked less and less often.
func TestSlowSubmit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 40)
		s.takes = time.Hour
		l := s.leader()

		// A verification runs on one node.
		s.see(false, 2)
		s.run(l, time.Minute)
		s.see(true, 2)
		s.run(l, 2*time.Minute)

		// The next one hangs.
		s.stuck = true
		s.see(false, 3)
		s.run(l, time.Minute)
		s.see(true, 3)

		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})

		go func() { defer close(ended); l.Run(ctx) }()
		defer func() { cancel(); <-ended }()

		s.await(func() bool { return s.hung == 1 })

		begun := time.Now()

		s.mu.Lock()
		s.publish(func(v *state.View) {
			v.PutJob(&job.Job{
				ID: "2", Verb: inventory.VerbReapply, Status: job.Queued, Actor: "ann",
				Targets: []job.Target{{Name: name(2)}},
			})
		})
		s.mu.Unlock()
		s.await(func() bool { return s.view.Jobs()[0].Status == job.Cancelled })

		if took := time.Since(begun); took > 3*time.Second {
			t.Errorf("the job of a person waited %s", took)
		}

		begun = time.Now()
		s.see(false, upTo(30)...)
		s.await(func() bool { return state.AutomationOf(s.view).Brake.On })

		if took := time.Since(begun); took > 3*time.Second {
			t.Errorf("the brake took %s", took)
		}

		// Without the brake, the attempts go on, and are rare.
		s.see(true, upTo(30)...)

		if _, err := l.Release(ctx, access.Caller{Principal: "ann"}, ""); err != nil {
			t.Fatal(err)
		}

		s.mu.Lock()
		before := s.hung
		s.mu.Unlock()

		time.Sleep(time.Hour)
		s.mu.Lock()
		defer s.mu.Unlock()

		if n := s.hung - before; n < 10 || n > 80 || s.longest > 15*time.Second {
			t.Errorf("%d attempts in an hour, the longest of %s", n, s.longest)
		}
	})
}

// TestHeldDecisionIsJudgedAgain: a decision that could not be carried out for hours gives
// way to the job of a person, and is taken anew when that fails.
func TestHeldDecisionIsJudgedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 5)
		l := s.leader()

		s.see(false, 2)
		s.run(l, time.Minute)
		s.see(true, 2)

		s.stuck = true
		s.run(l, 3*time.Hour)
		s.stuck = false

		s.mu.Lock()
		s.publish(func(v *state.View) {
			v.PutJob(&job.Job{
				ID: "1", Verb: inventory.VerbReapply, Status: job.Running, Actor: "ann",
				Targets: []job.Target{{Name: name(2)}},
			})
		})
		s.mu.Unlock()
		s.run(l, time.Hour)

		last := state.AutomationOf(s.View()).Decisions[len(state.AutomationOf(s.View()).Decisions)-1]
		if s.jobs() != "reapply "+name(2) || last.Phase != state.PhaseWithdrawn ||
			!strings.Contains(last.Result, "job 1 (reapply) of ann is due on it first") {
			t.Errorf("jobs %s, %+v", s.jobs(), last)
		}

		s.mu.Lock()
		s.publish(func(v *state.View) {
			v.Jobs()[0].Status, v.Jobs()[0].Ended = job.Errored, time.Now()
		})
		s.mu.Unlock()
		s.run(l, time.Hour)

		if want := "reapply " + name(2) + ", verify " + name(2); s.jobs() != want {
			t.Errorf("jobs %s, want %s", s.jobs(), want)
		}
	})
}

// TestOutdatedDriftIsLeft: the decision is in the history of the node, once.
func TestOutdatedDriftIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 5)
		s.verdict = inventory.Drifted
		s.settings.Groups = reacting(inventory.ReactionVerifyAndRepair)
		s.settings.Outdated = func(*state.View, *inventory.Node) []inventory.Part {
			return []inventory.Part{inventory.PartVariables}
		}
		l := s.leader()

		s.see(false, 2)
		s.run(l, time.Minute)
		s.see(true, 2)
		s.run(l, time.Hour)

		all := state.AutomationOf(s.View()).Decisions
		if s.jobs() != "verify "+name(2) || len(all) != 2 || all[1].Action != state.ActionRecord ||
			all[1].Phase != state.PhaseDone {
			t.Errorf("jobs %s, %+v", s.jobs(), all)
		}

		if n := s.View().Nodes()[2]; !n.Presence.Handled.Equal(all[1].Time) {
			t.Errorf("not in the history: handled %s, decided %s", n.Presence.Handled, all[1].Time)
		}
	})
}

// reacting returns the groups with a reaction to the return of workers.
func reacting(r inventory.Reaction) inventory.Groups {
	groups := inventory.DefaultGroups()
	groups[1].OnReturn = r
	return groups
}
