// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"fmt"
	"testing"
	"time"

	"github.com/contiv/cluster/management/api"
)

// startRollout starts an apply of a group, without a verification, and returns its id.
func (w *world) startRollout(group string, options ...string) string {
	w.t.Helper()

	r := decode[api.Rollout](w, w.ctl(append([]string{
		"rollout", "start", "--action", "apply", "-l", "group=" + group, "--no-verify", "--yes", "-o", "json",
	}, options...)...))

	return r.ID
}

// awaitNodes waits until the rollout meets the condition, and returns it.
func (w *world) awaitNodes(id, what string, ok func(api.Rollout) bool) api.Rollout {
	w.t.Helper()

	var r api.Rollout

	await(w.t, 3*time.Minute, what, func() (bool, string) {
		r = decode[api.Rollout](w, w.ctl("rollout", "show", id, "-o", "json"))
		return ok(r), fmt.Sprintf("%s %+v, reason %q, waits %q", r.Status, r.Count, r.Reason, r.Waits)
	})

	return r
}

// visits counts the jobs of a rollout by the name of their node.
func (w *world) visits(id string) map[string]int {
	w.t.Helper()

	count := map[string]int{}
	for _, j := range w.jobs() {
		if j.Rollout == id {
			count[j.Nodes[0]]++
		}
	}

	return count
}

// TestRolloutWindow: the window closes while two hosts are in progress. They finish, no other
// begins, and the rollout goes on when the window opens.
func TestRolloutWindow(t *testing.T) {
	hosts := []string{"host3", "host4", "host5", "host6"}

	w := newWorld(t, setup{hosts: 6, testPlaybooks: true})
	w.commission(master, "host2")
	w.commission(worker, hosts...)
	w.ctl("vars", "set", "--group", worker, "note=new", "hold=gate")

	id := w.startRollout(worker, "--max-unavailable", "2")
	r := w.awaitNodes(id, "two hosts begin", func(r api.Rollout) bool { return r.Count.InProgress == 2 })

	for _, n := range r.Nodes[:2] {
		w.awaitLog(n.Job, holdTask)
	}

	// It is open for the rest of this minute, and does not open again for an hour.
	w.window(time.Now(), "1m")
	await(t, 90*time.Second, "the window closes", func() (bool, string) {
		out := w.ctl("windows", "-o", "json")
		return !decode[api.Windows](w, out).Windows[0].Open, out.stdout
	})

	w.release("gate", hosts...)

	r = w.awaitNodes(id, "the two finish, and it waits", func(r api.Rollout) bool {
		return r.Count.Done == 2 && r.Count.InProgress == 0 && r.Waits != ""
	})
	if r.Status != "Running" || r.Count.Waiting != 2 || r.WaitsUntil == nil || len(w.visits(id)) != 2 {
		t.Errorf("%s, %+v, waits %q until %v", r.Status, r.Count, r.Waits, r.WaitsUntil)
	}

	w.wantNotes("new", "host3", "host4")

	// It opens with the next minute.
	w.window(time.Now().Add(time.Minute), "30m")
	w.awaitRollout(id, "Done")
	w.wantNotes("new", hosts...)

	for name, n := range w.visits(id) {
		if n != 1 {
			t.Errorf("%s was visited %d times", name, n)
		}
	}
}

// window sets the only window of the workers: it opens at the minute of that time.
func (w *world) window(opens time.Time, duration string) {
	w.t.Helper()
	w.ctl("config", "set", fmt.Sprintf(`windows=[{"name":"night","cron":"%d * * * *","duration":"%s","groups":["%s"]}]`,
		opens.UTC().Minute(), duration, worker))
}
