// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"fmt"
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

// followers is a site of which all nodes follow the repository, at commit 1.
func followers(t *testing.T, nodes int) *site {
	s := newSite(t, nodes)
	s.settings.Upgrade = []UpgradeRule{{
		Name: "follow", Match: func(n *inventory.Node) bool { return n.Label == "n" }, Selector: "label=n",
		Mode: UpgradeRun, Settle: time.Minute, Spec: rollout.Spec{Action: inventory.VerbApply, Canary: 1},
	}}
	s.settings.Playbooks = func(v *state.View) state.Playbooks { return state.PlaybooksOf(v, "here") }

	s.move("1")

	for _, n := range s.view.Nodes() {
		n.Configured = configured("1")
	}

	return s
}

func configured(commit string) *inventory.Configured {
	return &inventory.Configured{Configuration: inventory.Configuration{Playbooks: "d" + commit, Commit: commit}}
}

// move makes another commit the one in use.
func (s *site) move(commit string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.publish(func(v *state.View) {
		v.View = record.Set(v.View, &state.InstancePlaybooks, "here", &state.Playbooks{
			Digest: "d" + commit, Commit: commit, Since: time.Now(),
		})
	})
}

// Start stores a rollout of the commit in use.
func (s *site) Start(_ context.Context, c access.Caller, r rollout.Request) (started rollout.Record, err error) {
	err = s.operate(func() error {
		if id, done := s.results[c.Key.ID]; done {
			started = *record.Get(s.view, &rollout.Kind, id)
			return nil
		}

		if err := c.Precondition(s.view); err != nil {
			return err
		}

		if refusal := s.refusal; refusal != nil {
			s.refusal = nil
			return refusal
		}

		made, err := rollout.Make(s.view.Snapshot, s.settings.Groups, record.List(s.view, &rollout.Kind), r, time.Now())
		if err != nil {
			return err
		}

		in := state.PlaybooksOf(s.view, "here")
		if in.Digest != r.Playbooks {
			s.t.Errorf("playbooks %q are asked for, and %q are in use", r.Playbooks, in.Digest)
		}

		made.ID = fmt.Sprintf("r%08d", len(record.List(s.view, &rollout.Kind)))
		made.Playbooks, made.Commit = in.Digest, in.Commit
		started = made.Begin(c.Principal, time.Now())
		s.results[c.Key.ID] = started.ID
		s.replace(started)

		return nil
	})

	return started, err
}

// Control aborts a rollout. Its nodes in hand take a minute.
func (s *site) Control(_ context.Context, c access.Caller, id string, _ rollout.Act, o rollout.ActOptions) (
	aborted rollout.Record, err error,
) {
	err = s.operate(func() error {
		if _, done := s.results[c.Key.ID]; done {
			return nil
		}

		if err := c.Precondition(s.view); err != nil {
			return err
		}

		found := record.Get(s.view, &rollout.Kind, id)

		aborted, err = found.Abort(rollout.Mark{By: c.Principal, At: time.Now(), Reason: o.Reason}, o.Cancel)
		if err != nil {
			return err
		}

		s.results[c.Key.ID] = id
		s.replace(aborted)
		time.AfterFunc(time.Minute, func() { s.conclude(id, rollout.Aborted, "") })

		return nil
	})

	return aborted, err
}

// replace stores a rollout. The caller holds the lock.
func (s *site) replace(r rollout.Record) {
	s.publish(func(v *state.View) { v.View = record.Set(v.View, &rollout.Kind, r.ID, &r) })
}

// conclude gives a rollout a status; its nodes get the commit, unless that is empty.
func (s *site) conclude(id string, status rollout.Status, commit string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	r := *record.Get(s.view, &rollout.Kind, id)
	r.Status = status
	s.replace(r)

	if commit == "" {
		return
	}

	s.publish(func(v *state.View) {
		for _, n := range v.Nodes() {
			m := n.Clone()
			m.Configured = configured(commit)
			v.PutNode(&m)
		}
	})
}

// rollouts returns the rollouts as COMMIT STATUS NODES.
func (s *site) rollouts() string {
	var out []string
	for _, r := range record.All(s.View(), &rollout.Kind) {
		out = append(out, fmt.Sprintf("%s %s %d", r.Commit, r.Status, len(r.Nodes)))
	}

	return strings.Join(out, ", ")
}

func (s *site) want(when, want string) {
	s.t.Helper()

	if got := s.rollouts(); got != want {
		s.t.Errorf("%s: rollouts %q, want %q", when, got, want)
	}
}

// TestAutoUpgrade: several commits become one rollout, which begins after the settle time. A
// bad one is not tried again until the repository moves.
func TestAutoUpgrade(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := followers(t, 4)
		l := s.leader()

		s.move("2")
		s.run(l, time.Hour)
		s.want("off", "")

		if _, err := l.Enable(t.Context(), ann, "follow", false, "tested"); err != nil {
			t.Fatal(err)
		}

		s.run(l, time.Minute)
		s.want("on", "2 Running 4")
		s.conclude("r00000000", rollout.Done, "2")

		for _, commit := range []string{"3", "4", "5"} {
			s.move(commit)
			s.run(l, 50*time.Second)
			s.want("commit "+commit+" is new", "2 Done 4")
		}

		s.run(l, time.Minute)
		s.want("the commits have settled", "2 Done 4, 5 Running 4")

		// The canary fails. Neither the time nor a restart tries it again.
		s.conclude("r00000001", rollout.Stopped, "")
		s.run(l, time.Hour)
		s.run(s.leader(), time.Hour)
		s.want("the canary failed", "2 Done 4, 5 Stopped 4")

		s.move("6")
		s.run(l, 90*time.Second)
		s.want("a newer commit", "2 Done 4, 5 Aborting 4")
		s.run(l, 2*time.Minute)
		s.want("the nodes in hand are done", "2 Done 4, 5 Aborted 4, 6 Running 4")
		s.conclude("r00000002", rollout.Done, "6")

		for _, d := range state.AutomationOf(s.View()).Decisions {
			if d.Phase != state.PhaseDone || d.Policy != "follow" || len(d.Evidence) == 0 || d.Rollout == "" {
				t.Errorf("%+v", d)
			}
		}

		r := record.List(s.View(), &rollout.Kind)[2]
		if r.Actor != "policy:follow" || !strings.Contains(r.Spec.Reason, "6 came into use") {
			t.Errorf("%+v", r)
		}
	})
}

// TestAutoUpgradeAgain: an operator who turns the policy off and on again has the commit tried
// again. To turn it on while it is on changes nothing.
func TestAutoUpgradeAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := followers(t, 4)
		l := s.leader()

		enable := func() {
			t.Helper()

			if _, err := l.Enable(t.Context(), ann, "follow", false, ""); err != nil {
				t.Fatal(err)
			}
		}

		enable()
		s.move("2")
		s.run(l, 2*time.Minute)
		s.conclude("r00000000", rollout.Stopped, "")
		s.run(l, time.Hour)
		s.want("the canary failed", "2 Stopped 4")

		enable()
		s.run(l, 5*time.Minute)
		s.want("turned on while it is on", "2 Stopped 4")

		if _, err := l.Disable(t.Context(), ann, "follow", ""); err != nil {
			t.Fatal(err)
		}

		enable()
		s.run(l, 5*time.Minute)
		s.want("turned off and on", "2 Aborted 4, 2 Running 4")
		s.conclude("r00000001", rollout.Done, "2")
	})
}

// TestAutoUpgradeHeld: a pause, the brake and a rollout of a person hold the policy back, and
// earlier decisions are judged again.
func TestAutoUpgradeHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := followers(t, 4)
		l := s.leader()

		_, err := l.Enable(t.Context(), ann, "follow", false, "")
		errtest.None(t, err)

		if _, err = l.Pause(t.Context(), ann, state.AllPolicies, "an audit"); err != nil {
			t.Fatal(err)
		}

		s.move("2")
		s.run(l, time.Hour)
		s.want("paused", "")

		// A rollout of a person has one of the nodes.
		s.mu.Lock()
		s.publish(func(v *state.View) {
			v.View = record.WithList(v.View, &rollout.Kind, &rollout.Record{
				ID: "r0000000a", Actor: "ann", Status: rollout.Paused, Commit: "1",
				Nodes: []rollout.Node{{Name: name(2), State: rollout.Waiting}},
			})
		})
		s.mu.Unlock()

		if _, err = l.Resume(t.Context(), ann, state.AllPolicies, ""); err != nil {
			t.Fatal(err)
		}

		s.run(l, time.Hour)
		s.want("a rollout of a person", "1 Paused 1")
		s.conclude("r0000000a", rollout.Aborted, "")
		s.run(l, time.Minute)
		s.want("that has ended", "1 Aborted 1, 2 Running 4")
	})
}

// TestAutoUpgradeNotNow: a rollout of which no node could begin is tried again; one that is
// refused for another reason is not.
func TestAutoUpgradeNotNow(t *testing.T) {
	t.Parallel()

	refused := inventory.Errorf(inventory.KindRefused, "n-000 is Maintenance: job 9 holds it")

	for _, c := range []struct {
		refusal error
		phase   state.Phase
		want    string
	}{
		{&rollout.NotNowError{Err: refused}, state.PhaseWithdrawn, "2 Running 2"},
		{inventory.Errorf(inventory.KindPrecondition, "the playbooks changed: job 9 holds it"),
			state.PhaseWithdrawn, "2 Running 2"},
		{refused, state.PhaseRefused, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := followers(t, 2)
			l := s.leader()

			if _, err := l.Enable(t.Context(), ann, "follow", false, ""); err != nil {
				t.Fatal(err)
			}

			s.refusal = c.refusal
			s.move("2")
			s.run(l, 5*time.Minute)
			s.want(string(c.phase), c.want)

			d := state.AutomationOf(s.View()).Decisions[0]
			if d.Phase != c.phase || !strings.Contains(d.Result, "job 9 holds it") {
				t.Errorf("%+v", d)
			}
		})
	}
}

// TestAutoUpgradeKilled at each of its operations: one rollout of each commit, and never two
// at once.
func TestAutoUpgradeKilled(t *testing.T) {
	t.Parallel()

	killedAnywhere(t, 2, func(t *testing.T, crash int, late bool) bool {
		s := followers(t, 3)
		if _, err := s.leader().Enable(t.Context(), ann, "follow", false, ""); err != nil {
			t.Fatal(err)
		}
		s.crash, s.late = crash, late

		s.move("2")
		s.run(s.leader(), 10*time.Minute)
		s.move("3")
		s.run(s.leader(), 10*time.Minute)

		reached := s.revive()
		s.run(s.leader(), time.Hour)

		// A manager that was dead before its first rollout has missed commit 2.
		got := s.rollouts()
		if got != "2 Aborted 3, 3 Running 3" && (got != "3 Running 3" || crash > 3) {
			t.Errorf("rollouts %q", got)
		}

		if at := s.ops; !reached && at < 6 {
			t.Errorf("only %d operations", at)
		}

		return reached
	})
}

// TestRemovedPolicy: the name of a policy that was removed can be paused, resumed and turned off
// as long as a rollout of it is open.
func TestRemovedPolicy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := followers(t, 2)
		l := s.leader()

		if _, err := l.Enable(t.Context(), ann, "follow", false, ""); err != nil {
			t.Fatal(err)
		}

		s.move("2")
		s.run(l, 2*time.Minute)
		s.want("on", "2 Running 2")

		s.mu.Lock()
		s.settings.Upgrade = nil
		s.mu.Unlock()

		if _, err := l.Enable(t.Context(), ann, "follow", false, ""); inventory.KindOf(err) != inventory.KindNotFound {
			t.Errorf("a removed policy is turned on: %v", err)
		}

		if _, err := l.Pause(t.Context(), ann, "follow", ""); err != nil {
			t.Error(err)
		}

		if _, err := l.Disable(t.Context(), ann, "follow", "it is removed"); err != nil {
			t.Error(err)
		}

		if a := state.AutomationOf(s.View()); a.Switches["follow"].On || a.Paused["follow"].Actor != "ann" {
			t.Errorf("%+v", a)
		}

		s.conclude("r00000000", rollout.Aborted, "")

		if _, err := l.Resume(t.Context(), ann, "follow", ""); err != nil {
			t.Error(err)
		}

		if _, err := l.Disable(t.Context(), ann, "follow", ""); inventory.KindOf(err) != inventory.KindNotFound {
			t.Errorf("nothing is left of the policy: %v", err)
		}
	})
}
