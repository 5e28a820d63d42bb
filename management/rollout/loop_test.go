// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
)

var ann = access.Caller{Principal: "ann"}

// apply is a request of apply for all nodes.
func (s *site) apply(change func(*rollout.Spec)) rollout.Request {
	req := rollout.Request{Nodes: s.names(), Spec: rollout.Spec{Action: inventory.VerbApply}}
	if change != nil {
		change(&req.Spec)
	}
	return req
}

// TestOwnTime: 1 000 nodes, 10 at once, take at most 5 % more than the ideal schedule.
func TestOwnTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 1000)
		l := s.leader()

		r, err := l.Start(t.Context(), ann, s.apply(func(o *rollout.Spec) {
			o.MaxUnavailable, o.Gate.SkipVerify = "10", true
		}))
		errtest.None(t, err)

		begun := time.Now()
		r = s.run(l, r.ID, 24*time.Hour, ended)
		took, ideal := time.Since(begun), 100*s.takes

		if c := r.Count(); r.Status != rollout.Done || c.Succeeded != 1000 || took > ideal*105/100 {
			t.Errorf("%s, %+v after %s, the ideal schedule takes %s", r.Status, c, took, ideal)
		}

		// One write for each node: its job, with the outcome of the one before.
		if s.ops > 1050 {
			t.Errorf("%d writes", s.ops)
		}

		t.Logf("%s, %.2f %% more than the ideal schedule", took, 100*float64(took-ideal)/float64(ideal))
		s.tasks.Wait()
	})
}

// TestOutcomeNeedsNoJob: while no job is accepted, the ends of those before are recorded all the
// same.
func TestOutcomeNeedsNoJob(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 3)
		l := s.leader()

		r, err := l.Start(t.Context(), ann, s.apply(func(o *rollout.Spec) { o.Gate.SkipVerify = true }))
		errtest.None(t, err)
		s.run(l, r.ID, time.Hour, func(r rollout.Record) bool { return r.Count().InProgress == 1 })
		s.refuse = inventory.Errorf(inventory.KindUnavailable, "the store is full")

		r = s.run(l, r.ID, time.Hour, func(r rollout.Record) bool { return r.Count().Succeeded == 1 })
		if c := r.Count(); c.Succeeded != 1 || c.Waiting != 2 || r.Status != rollout.Running {
			t.Errorf("%s, %+v", r.Status, c)
		}

		s.refuse = nil
		if r = s.run(l, r.ID, time.Hour, ended); r.Count().Succeeded != 3 {
			t.Errorf("%s, %+v", r.Status, r.Count())
		}

		s.tasks.Wait()
	})
}

// TestKilledAnywhere kills the manager at every operation, before and after it takes effect.
// Another one goes on, and the rollout ends the same: no node is begun twice.
func TestLoopKilledAnywhere(t *testing.T) {
	t.Parallel()

	for _, late := range []bool{false, true} {
		for crash := 2; ; crash++ { // the first one is the start
			reached := false

			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, 6)
				s.fails = func(node string, attempt int) bool { return node == "w-0003" && attempt == 1 }
				l := s.leader()

				r, err := l.Start(t.Context(), ann, s.apply(func(o *rollout.Spec) {
					o.MaxUnavailable, o.MaxFailures, o.Canary = "2", 1, 1
				}))
				errtest.None(t, err)

				// From here on the first manager is dead, but does not know it.
				s.crash, s.late = crash, late
				s.run(l, r.ID, 30*time.Minute, ended)

				s.mu.Lock()
				reached = s.ops >= crash
				s.crash = 0
				s.mu.Unlock()

				r = s.run(s.leader(), r.ID, time.Hour, ended)
				if c := r.Count(); r.Status != rollout.Done || c.Succeeded != 5 || c.Failed != 1 ||
					s.attempts() != "w-0000:1 w-0001:1 w-0002:1 w-0003:1 w-0004:1 w-0005:1 " {
					t.Errorf("killed at %d (late %t): %s %+v, %s", crash, late, r.Status, c, s.attempts())
				}

				s.tasks.Wait()
			})

			if !reached {
				t.Logf("%d operations (late %t)", crash-1, late)
				break
			}
		}
	}
}

// TestTwoDeciders: two leaders at once, as for a moment at a takeover, begin no node twice.
func TestTwoDeciders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 20)
		l := s.leader()

		r, err := l.Start(t.Context(), ann, s.apply(func(o *rollout.Spec) { o.MaxUnavailable = "3" }))
		errtest.None(t, err)

		other := make(chan struct{})
		go func() { defer close(other); s.run(s.leader(), r.ID, time.Hour, ended) }()

		r = s.run(l, r.ID, time.Hour, ended)
		<-other

		if c := r.Count(); c.Succeeded != 20 || strings.Count(s.attempts(), ":1 ") != 20 {
			t.Errorf("%+v, %s", c, s.attempts())
		}

		s.tasks.Wait()
	})
}

// TestWindowCloses: the node in progress is finished, no other is begun, and the record says
// until when it waits.
func TestWindowCloses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 6)
		closes, opens := time.Now().Add(150*time.Second), time.Now().Add(time.Hour)
		s.allow = func(_ *inventory.Node, now time.Time) rollout.Permission {
			if now.Before(closes) || !now.Before(opens) {
				return rollout.Permission{OK: true, Until: closes}
			}
			return rollout.Permission{Until: opens, Reason: "outside of the maintenance window nightly"}
		}
		l := s.leader()

		r, err := l.Start(t.Context(), ann, s.apply(func(o *rollout.Spec) { o.Gate.SkipVerify = true }))
		errtest.None(t, err)
		r = s.run(l, r.ID, 30*time.Minute, func(r rollout.Record) bool { return r.Waits != "" })
		if c := r.Count(); c.Succeeded != 3 || c.Waiting != 3 || c.InProgress != 0 ||
			!strings.Contains(r.Waits, "nightly") || !r.WaitsUntil.Equal(opens) {
			t.Errorf("%+v, %q until %s", c, r.Waits, r.WaitsUntil)
		}

		r = s.run(l, r.ID, 2*time.Hour, ended)

		late := opens.Add(5 * time.Minute)
		if r.Status != rollout.Done || r.Waits != "" || r.Ended.Before(opens) || r.Ended.After(late) {
			t.Errorf("%s at %s, waits %q", r.Status, r.Ended, r.Waits)
		}

		s.tasks.Wait()
	})
}

// TestBrakeHolds: while the brake of automation is on, no node is begun.
func TestBrakeHolds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 2)
		l := s.leader()

		r, err := l.Start(t.Context(), ann, s.apply(nil))
		errtest.None(t, err)

		brake := func(on bool) {
			s.mu.Lock()
			defer s.mu.Unlock()

			s.publish(func(v *state.View) {
				v.View = record.Change(
					v.View,
					&state.Memory,
					func(a *state.Automation) { a.Brake = state.Brake{On: on, Vanish: 9, Visible: 10} },
				)
			})
		}
		brake(true)

		r = s.run(l, r.ID, time.Hour, ended)
		if r.Status != rollout.Running || !strings.Contains(r.Waits, "9 of 10") || s.attempts() != "" {
			t.Errorf("%s, waits %q, %s", r.Status, r.Waits, s.attempts())
		}

		brake(false)

		if r = s.run(l, r.ID, time.Hour, ended); r.Status != rollout.Done {
			t.Errorf("%s, waits %q", r.Status, r.Waits)
		}

		s.tasks.Wait()
	})
}

// TestFollowerDrivesNothing: an instance that does not lead leaves rollouts alone.
func TestFollowerDrivesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 2)
		l := s.leader()

		r, err := l.Start(t.Context(), ann, s.apply(nil))
		errtest.None(t, err)

		s.leads = false

		if s.run(l, r.ID, time.Hour, ended); s.attempts() != "" || s.ops != 1 {
			t.Errorf("%s, %d operations", s.attempts(), s.ops)
		}
	})
}

// TestHTTPGate: a node passes once its check answers, and fails when the time is over.
func TestHTTPGate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 2)
		s.status["http://10.0.0.1:8080/health"] = http.StatusServiceUnavailable
		l := s.leader()

		r, err := l.Start(t.Context(), ann, s.apply(func(o *rollout.Spec) {
			o.Gate.HTTP = &rollout.HTTPCheck{Port: 8080, Path: "/health", Timeout: 30 * time.Second}
			o.MaxFailures = 1
		}))
		errtest.None(t, err)

		// The first node answers with an error until it is corrected below.
		s.run(l, r.ID, time.Hour, func(r rollout.Record) bool { return r.Nodes[0].State == rollout.Checking })
		s.run(l, r.ID, 10*time.Second, ended)

		s.mu.Lock()
		asked := s.asked["http://10.0.0.1:8080/health"]
		s.status["http://10.0.0.1:8080/health"] = http.StatusNoContent
		s.mu.Unlock()

		if asked < 4 || asked > 7 {
			t.Errorf("asked %d times within 10 s", asked)
		}

		r = s.run(l, r.ID, time.Hour, ended)
		if r.Nodes[0].State != rollout.Succeeded || r.Nodes[1].State != rollout.Failed ||
			!strings.Contains(r.Nodes[1].Reason, "within 30s: connection refused") {
			t.Errorf("%+v", r.Nodes)
		}

		// It serves, says its agent; its gate says that it does not.
		for i, healthy := range []bool{true, false} {
			if n := s.View().Nodes()[i]; n.Healthy() != healthy {
				t.Errorf("%s: healthy %v, %+v", n.Name, n.Healthy(), n.Verification)
			}
		}

		if n := l.Checks(); n > 1 {
			t.Errorf("%d results are kept", n)
		}

		s.tasks.Wait()
	})
}

// TestRefusals: a job that is refused for good fails its node, and an outage does not.
func TestRefusals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 3)
		l := s.leader()

		r, err := l.Start(t.Context(), ann, s.apply(nil))
		errtest.None(t, err)

		// An outage is waited for.
		s.refuse = inventory.Errorf(inventory.KindUnavailable, "etcd does not answer")
		if r = s.run(l, r.ID, 10*time.Minute, ended); r.Status != rollout.Running || r.Count().Waiting != 3 {
			t.Errorf("%s, %+v", r.Status, r.Count())
		}

		// A rule does not change by waiting.
		s.refuse = inventory.Errorf(inventory.KindRefused, "the rules forbid it").Do("ask somebody")

		r = s.run(l, r.ID, 10*time.Minute, func(r rollout.Record) bool { return r.Status == rollout.Stopped })
		if c := r.Count(); c.Failed != 1 || r.Nodes[0].Reason != "refused: the rules forbid it" {
			t.Errorf("%+v, %+v", c, r.Nodes[0])
		}

		decided := func(a access.Record) bool {
			return a.Action == "rollouts.decide" && a.Principal == "rollout:"+r.ID &&
				strings.Contains(a.Reason, "max_failures is 0")
		}
		if !slices.ContainsFunc(s.trail, decided) {
			t.Errorf("no audit record: %+v", s.trail)
		}
	})
}

// TestRepinRunning: a resume changes the playbooks of a rollout that was paused, with an event, and
// never those of one that goes on.
func TestRepinRunning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 2)
		l := s.leader()

		r, err := l.Start(t.Context(), ann, s.apply(nil))
		errtest.None(t, err)

		now := rollout.ActOptions{PlaybooksNow: true, Reason: "fixed"}

		_, err = l.Control(t.Context(), ann, r.ID, rollout.ActResume, now)
		if inventory.KindOf(err) != inventory.KindRefused || !strings.Contains(err.Error(), "different playbooks") {
			t.Error(err)
		}

		if is := s.rollouts()[0]; is.Playbooks != "now" || is.Revision != r.Revision {
			t.Errorf("it was changed: %+v", is)
		}

		// Without a change of the playbooks, a repetition does no harm.
		if _, err = l.Control(t.Context(), ann, r.ID, rollout.ActResume, rollout.ActOptions{}); err != nil {
			t.Error(err)
		}

		if _, err = l.Control(t.Context(), ann, r.ID, rollout.ActPause, rollout.ActOptions{}); err != nil {
			t.Fatal(err)
		}

		for range 2 {
			if r, err = l.Control(t.Context(), ann, r.ID, rollout.ActResume, now); err != nil {
				t.Fatal(err)
			}
		}

		const change = "the playbooks are later, and no longer now"

		// The second resume changed nothing.
		last, repinned := r.Events[len(r.Events)-1], r.Events[len(r.Events)-2]
		if repinned.Kind != rollout.EventRepinned || repinned.Actor != "ann" || repinned.Text != change {
			t.Errorf("%+v", r.Events)
		}

		// The first one was refused, and the second one without a reason.
		want := []string{"fixed", "", "fixed; " + change, "fixed"}
		if reasons := s.reasons("rollouts.resume"); !slices.Equal(reasons, want) {
			t.Errorf("audit: %q", reasons)
		}

		if r.Status != rollout.Running || r.Playbooks != "later" || last.Kind != rollout.EventResumed {
			t.Errorf("%s with %s, %+v", r.Status, r.Playbooks, last)
		}
	})
}

// TestExpire: the oldest rollouts that have ended are removed.
func TestExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 1)
		for i := range rollout.MaxKept + 5 {
			setRollout(s.view, rollout.Record{
				ID: rollout.NewID(), Status: rollout.Done, Created: time.Now().Add(time.Duration(i) * time.Second),
			})
		}

		// The oldest one has not ended, so it stays.
		oldest := *s.rollouts()[0]
		oldest.Status, oldest.Nodes = rollout.Paused, []rollout.Node{{Name: "w-0000", State: rollout.Waiting}}
		setRollout(s.view, oldest)

		first := oldest.ID

		s.run(s.leader(), first, time.Minute, ended)

		if list := s.rollouts(); len(list) != rollout.MaxKept || list[0].ID != first {
			t.Errorf("%d rollouts are left", len(list))
		}
	})
}
