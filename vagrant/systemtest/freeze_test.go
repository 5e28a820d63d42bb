// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/management/api"
)

// TestFreeze: a freeze holds jobs and rollouts, shows its author and its reason, and survives the
// kill of the manager. Verifications go on, and so do jobs that override it with a reason, which
// is in the history and in the audit trail. It ends at its time, or with a word.
func TestFreeze(t *testing.T) {
	const year, emergency = "the end of the year", "CVE-2026-0001 is exploited"

	w := newWorld(t, setup{hosts: 3, testPlaybooks: true})
	w.commission(master, "host2", "host3")
	w.wantRefused(2, []string{"needs a reason"}, "freeze", "on")
	w.ctl("freeze", "on", "--reason", year)

	held := w.submit("nodes", "apply", w.name("host2"), "-e", "note=held")
	id := w.rollOver([]string{"host3"}, "-e", "note=rolled")
	frozen := func() {
		t.Helper()

		if why := w.ctl("job", "why", held).stdout; !strings.Contains(why, "root froze all changes") ||
			!strings.Contains(strings.Join(strings.Fields(why), " "), year) {
			t.Errorf("why does the job wait: %s", why)
		}

		r := w.awaitNodes(id, "the rollout waits for the end of the freeze", func(r api.Rollout) bool {
			return strings.Contains(r.Waits, year)
		})
		if r.Status != "Running" || r.Count.Waiting != 1 || w.job(held).Status != api.Queued {
			t.Errorf("the rollout is %s with %+v, and the job %s", r.Status, r.Count, w.job(held).Status)
		}
	}

	frozen()

	// These jobs come later, and end before the one that waits.
	w.do("nodes", "verify", w.name("host3"))
	w.wantRefused(2, []string{"--override-window needs a reason"},
		"nodes", "apply", "--override-window", w.name("host3"))

	j := w.do("nodes", "apply", "--override-window", "--reason", emergency, "-e", "note=emergency", w.name("host3"))
	if !j.OverrideWindow || j.Reason != emergency {
		t.Errorf("the job overrides: %t, for %q", j.OverrideWindow, j.Reason)
	}

	urgent := w.rollOver([]string{"host2"}, "--override-window", "--reason", emergency, "-e", "note=emergency")
	w.awaitRollout(urgent, "Done")
	w.wantContents(master+" emergency", "host2", "host3")

	if history := w.history("host3"); !slices.ContainsFunc(history, func(e api.HistoryEntry) bool {
		return e.Job == j.ID && strings.Contains(e.Reason, emergency)
	}) {
		t.Errorf("the history lacks the reason: %+v", history)
	}

	trail := w.sh("host1", "clusterm audit --json").stdout
	for _, reason := range []string{year, emergency} {
		if !strings.Contains(trail, reason) {
			t.Errorf("the audit trail lacks %q", reason)
		}
	}

	w.replaceProcess(daemonProcess, killDaemon)
	frozen()
	w.endsInTime(held, id)
	w.endsWithAWord()
}

// endsInTime freezes changes for some seconds. The job and the rollout that wait begin by
// themselves, and not before.
func (w *world) endsInTime(held, id string) {
	w.t.Helper()

	on := w.ctl("freeze", "on", "--until", "10s", "--reason", "a moment", "-o", "json")
	freeze := decode[api.Freeze](w, on)

	if freeze.Until == nil || !strings.Contains(on.stderr, "the end of the year") {
		w.t.Fatalf("a second freeze: %s", on)
	}

	r := w.awaitRollout(id, "Done")
	for _, job := range []string{held, r.Nodes[0].Job} {
		if j := w.awaitJob(job); j.Status != api.Complete || j.Started.Before(*freeze.Until) {
			w.t.Errorf("job %s is %s, and began at %s; the freeze was until %s", job, j.Status, j.Started, freeze.Until)
		}
	}

	w.wantContents(master+" held", "host2")
	w.wantContents(master+" rolled", "host3")
}

// endsWithAWord freezes changes without an end, and lifts that.
func (w *world) endsWithAWord() {
	w.t.Helper()
	w.ctl("freeze", "on", "--reason", "until I say so")

	id := w.submit("nodes", "apply", w.name("host2"), "-e", "note=last")
	if j := w.job(id); j.Status != api.Queued || !strings.Contains(j.WaitReason, "until it is lifted: until I say so") {
		w.t.Errorf("job %s is %s: %s", id, j.Status, j.WaitReason)
	}

	w.ctl("freeze", "off", "--reason", "I say so")

	if j := w.awaitJob(id); j.Status != api.Complete {
		w.t.Errorf("job %s is %s: %s", id, j.Status, j.Message)
	}

	if decode[api.Freeze](w, w.ctl("freeze", "status", "-o", "json")).Active {
		w.t.Error("a freeze that was lifted is active")
	}

	w.wantContents(master+" last", "host2")
}
