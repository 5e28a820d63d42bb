// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

// TestRefusedForAWhile: a job that a rule refuses for two hours, when it is submitted or when its turn comes, is done
// after that, with few attempts, and the policy stays on.
func TestRefusedForAWhile(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name     string
		reaction inventory.Reaction
		verb     inventory.Verb // that is refused
		want     string
	}{
		{"a verification", inventory.ReactionVerify, inventory.VerbVerify, "verify " + name(2)},
		{"a repair", inventory.ReactionRepair, inventory.VerbReapply, "reapply " + name(2)},
		{
			"a repair after a verification", inventory.ReactionVerifyAndRepair, inventory.VerbApply,
			"verify " + name(2) + ", apply " + name(2),
		},
		{"a commission", inventory.ReactionRecord, inventory.VerbCommission, "commission " + name(0)},
	} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, late %t", c.name, late), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { refusedForAWhile(t, c.reaction, c.verb, late, c.want) })
			})
		}
	}
}

func refusedForAWhile(t *testing.T, reaction inventory.Reaction, verb inventory.Verb, late bool, want string) {
	s := newcomers(t, 8, 1)
	s.settings.Groups = inventory.Groups{{Name: inventory.GroupWorker, OnReturn: reaction}}
	s.verdict = inventory.Drifted
	begun := time.Now()
	refuses := func(v inventory.Verb) bool { return v == verb && time.Since(begun) < 2*time.Hour }

	if late {
		s.lapses = func(j *job.Job) bool { return refuses(j.Verb) }
	} else {
		s.forbids = func(r job.Request) error {
			if !refuses(r.Verb) {
				return nil
			}
			return inventory.Errorf(inventory.KindRefused, "one node is down already")
		}
	}

	l := s.leader()

	if verb == inventory.VerbCommission {
		if _, err := l.Enable(t.Context(), ann, "workers", false, ""); err != nil {
			t.Fatal(err)
		}
	}

	s.see(false, 2)
	s.run(l, time.Minute)
	s.see(true, 2)
	s.run(l, 4*time.Hour)

	if got := s.completed(); got != want {
		t.Errorf("completed %q, want %q", got, want)
	}

	if attempts := s.refused + len(s.View().Jobs()); attempts < 3 || attempts > 14 {
		t.Errorf("%d attempts in two hours", attempts)
	}

	if status := l.Status().Policies[1]; verb == inventory.VerbCommission && !status.On {
		t.Errorf("the policy is off: %s", status.Halted)
	}
}

// TestHeldForADay: decisions that a pause held back until they were too old are taken anew, and are no failures that
// turn a policy off.
func TestHeldForADay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newcomers(t, 8, 2)
		s.stuck = true
		l := s.leader()

		if _, err := l.Enable(t.Context(), ann, "workers", false, ""); err != nil {
			t.Fatal(err)
		}

		s.run(l, 10*time.Minute)

		if _, err := l.Pause(t.Context(), ann, "workers", "a move"); err != nil {
			t.Fatal(err)
		}

		if n := len(state.AutomationOf(s.View()).Decisions); n != 2 {
			t.Fatalf("%d decisions", n)
		}

		s.stuck = false
		s.run(l, forget+time.Hour)

		if _, err := l.Resume(t.Context(), ann, "workers", ""); err != nil {
			t.Fatal(err)
		}

		s.run(l, time.Hour)

		want := "commission " + name(0) + ", commission " + name(1)
		if status := l.Status().Policies[1]; s.completed() != want || !status.On {
			t.Errorf("completed %q, want %q; %s", s.completed(), want, status.Halted)
		}
	})
}
