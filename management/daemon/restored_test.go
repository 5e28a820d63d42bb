// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
)

// TestRestoredIsPaused: after a restore of a backup, as the documents describe it, the manager decides
// nothing by itself until an operator has looked.
func TestRestoredIsPaused(t *testing.T) {
	t.Parallel()

	s := begin(t)
	names, _ := s.fleet("a b")

	// It watches its first node, and would begin the second one in an hour.
	r, err := s.Rollouts().Start(s.ctx(), access.Caller{Principal: "anna"}, apply(names, func(r *rollout.Request) {
		r.MaxUnavailable, r.Soak = "1", time.Hour
	}))
	s.must(err)
	s.reach(r.ID, "its first node is soaking", func(r rollout.Record) bool {
		return r.Nodes[0].State == rollout.Soaking
	})

	expect := func(when string, paused bool) {
		t.Helper()

		isPaused := func() bool {
			_, all := state.AutomationOf(s.store.View()).Paused[state.AllPolicies]
			return all
		}
		if paused {
			s.eventually(when+" the policies are paused", isPaused)
		}

		h, err := s.Health(s.ctx())
		s.must(err)

		says := func(w string) bool { return strings.Contains(w, "clusterctl policy resume all") }
		if isPaused() != paused || slices.ContainsFunc(h.Warnings, says) != paused {
			t.Errorf("%s: paused %t, warnings %q, want %t", when, isPaused(), h.Warnings, paused)
		}
	}

	// The place is recorded by the first start, and a restart finds it again.
	s.eventually("the place is recorded", func() bool {
		_, err := os.Stat(filepath.Join(s.dir, "d", "instance.place"))
		return err == nil
	})
	s.restart()
	expect("after a restart", false)

	if is := s.rollout(r.ID); is.Status != rollout.Running {
		t.Errorf("after a restart the rollout is %s", is.Status)
	}

	s.down()

	backup := exec.Command("sh", "-ec", "tar -cf b.tar --exclude=client.sock d; rm -rf d; tar -xf b.tar")
	backup.Dir = s.dir

	if out, err := backup.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	s.up()
	expect("after a restore", true)
	s.reach(r.ID, "it is paused", func(r rollout.Record) bool { return r.Status == rollout.Paused })

	// It stays paused over a restart, and a resume is for good.
	s.restart()
	expect("after a restore and a restart", true)

	_, err = s.policies.Resume(s.ctx(), access.Caller{Principal: "anna"}, state.AllPolicies, "I have looked")
	s.must(err)
	s.restart()
	expect("after a resume and a restart", false)
}
