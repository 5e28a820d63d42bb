// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/management/api"
)

// rollout starts an apply of the workers, and returns its id.
func (w *world) rollout(options ...string) string {
	w.t.Helper()

	r := decode[api.Rollout](w, w.ctl(append([]string{
		"rollout", "start", "--action", "apply", "-l", "group=" + worker, "--yes", "-o", "json",
	}, options...)...))

	return r.ID
}

// awaitNodes waits until the rollout meets the condition, and returns it.
func (w *world) awaitNodes(id, what string, ok func(api.Rollout) bool) (r api.Rollout) {
	w.t.Helper()
	await(w.t, 4*time.Minute, what, func() (bool, string) {
		r = decode[api.Rollout](w, w.ctl("rollout", "show", id, "-o", "json"))
		return ok(r), fmt.Sprintf("%s %+v, reason %q, waits %q", r.Status, r.Count, r.Reason, r.Waits)
	})

	return r
}

// awaitRollout waits until the rollout has that status, and returns it.
func (w *world) awaitRollout(id, status string) api.Rollout {
	w.t.Helper()
	return w.awaitNodes(id, "rollout "+id+" is "+status, func(r api.Rollout) bool { return string(r.Status) == status })
}

// wantNotes requires the note in the file of each of the hosts.
func (w *world) wantNotes(note string, hosts ...string) {
	w.t.Helper()

	for _, h := range hosts {
		if got := w.sh(h, "cat /etc/systemtest").stdout; !strings.Contains(got, note) {
			w.t.Errorf("%s has %q, want the note %s", h, got, note)
		}
	}
}

// TestRollout: a change rolls over the workers behind a canary; a bad one stops at the
// canary and leaves the others alone, and goes on once it is corrected. A manager that is
// killed in the middle goes on, and visits each node once. An undo brings the former playbooks back.
func TestRollout(t *testing.T) {
	w := newWorld(t, setup{hosts: 5, testPlaybooks: true})
	w.commission(master, "host2")
	w.commission(worker, "host3", "host4", "host5")

	w.ctl("vars", "set", "--group", worker, "note=first")
	w.awaitRollout(w.rollout("--canary", "1", "--max-unavailable", "2"), "Done")
	w.wantNotes("first", "host3", "host4", "host5")

	// The nodes go in the order of their names, so host3 is the canary.
	label, _, _ := strings.Cut(w.name("host3"), "-")
	w.ctl("vars", "set", "--group", worker, "note=second", "fail_on="+label)

	id := w.rollout("--canary", "1", "--max-unavailable", "2", "--max-failures", "2")
	if r := w.awaitRollout(id, "Stopped"); r.Count.Failed != 1 || r.Count.Waiting != 2 {
		t.Errorf("after a bad canary: %+v", r.Count)
	}

	w.wantNotes("first", "host4", "host5")
	w.ctl("vars", "unset", "--group", worker, "fail_on")
	w.ctl("rollout", "retry", id)
	w.awaitRollout(id, "Done")
	w.wantNotes("second", "host3", "host4", "host5")

	w.ctl("vars", "set", "--group", worker, "note=third", "hold=gate")
	w.release("gate", "host3", "host5")

	id = w.rollout("--max-unavailable", "2", "--no-verify")

	// The run on host4 waits at the gate, and no other one is about to begin.
	w.awaitNodes(id, "the others are done", func(r api.Rollout) bool { return r.Count.Done == 2 })
	w.awaitLog(w.node("host4").Job, holdTask)
	w.sh("host1", killDaemon)
	w.awaitHealthy()
	w.release("gate", "host4")
	w.awaitRollout(id, "Done")
	w.wantNotes("third", "host3", "host4", "host5")

	visits := map[string]int{}
	for _, j := range w.jobs() {
		if j.Rollout == id {
			visits[j.Nodes[0]]++
		}
	}

	for _, h := range []string{"host3", "host4", "host5"} {
		if visits[w.name(h)] != 1 {
			t.Errorf("the visits are %v", visits)
		}
	}

	w.sh("host1", "sed -i 's/{{ node_group }} /{{ node_group }} changed /' "+testPlaybooks+"/site.yml")
	id = w.rollout("--no-verify")
	w.awaitRollout(id, "Done")
	w.wantNotes("changed third", "host3", "host4", "host5")
	w.awaitRollout(decode[api.Rollout](w, w.ctl("rollout", "undo", id, "--yes", "-o", "json")).ID, "Done")
	w.wantNotes(worker+" third", "host3", "host4", "host5")
}
