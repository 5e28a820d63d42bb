// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// TestFreeze: a freeze holds jobs and rollouts, shows its author and its reason, and survives the
// kill of the manager. Verifications go on, and so do jobs that override it with a reason, which
// is in the history and in the audit trail. Budgets and windows hold jobs as well.
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
	w.wantNotes("emergency", "host2", "host3")

	if history := w.history("host3"); !slices.ContainsFunc(history, func(e inventory.HistoryEntry) bool {
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

	w.ctl("freeze", "off", "--reason", "the year is over")
	w.awaitRollout(id, "Done")
	w.wantComplete(held)
	w.wantNotes("held", "host2")
	w.wantNotes("rolled", "host3")

	// A budget refuses what it can never allow.
	w.ctl("config", "set", `groups=[{"name":"service-master","budget":{"min_available":1}},{"name":"service-worker"}]`)
	w.wantRefused(5, []string{"service-master must keep 1 node available"},
		append([]string{"nodes", "apply"}, w.nodeNames("host2", "host3")...)...)

	// A window that has just closed opens in an hour, unless it is taken away.
	w.ctl("config", "set", fmt.Sprintf(`windows=[{"name":"night","cron":"%d * * * *","duration":"1m","groups":["%s"]}]`,
		time.Now().UTC().Add(-2*time.Minute).Minute(), master))
	waiting := w.submit("nodes", "apply", w.name("host2"))
	if j := w.job(waiting); j.Status != api.Queued || !strings.Contains(j.WaitReason, "night") {
		t.Errorf("job %s is %s: %q", waiting, j.Status, j.WaitReason)
	}

	w.ctl("config", "unset", "windows")
	w.wantComplete(waiting)
}

// wantComplete waits for the end of the job, and requires its success.
func (w *world) wantComplete(id string) {
	w.t.Helper()

	if j := w.awaitJob(id); j.Status != api.Complete {
		w.t.Errorf("job %s is %s: %s", id, j.Status, j.Message)
	}
}
