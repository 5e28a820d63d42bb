// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// operator makes a token of that name, and returns the options of clusterctl that use it.
func (w *world) operator(name string) []string {
	w.t.Helper()

	file := "/root/" + name + ".token"
	w.ctl("token", "create", "--role", "operator", "--name", name, "--save", file)
	return []string{"--token-file", file}
}

// getRollout returns a rollout.
func (w *world) getRollout(id string) api.Rollout {
	w.t.Helper()
	return decode[api.Rollout](w, w.ctl("rollout", "show", id, "-o", "json"))
}

// awaitHeld waits until the job of the rollout on the host waits to be released, and returns its id.
func (w *world) awaitHeld(id, host string) string {
	w.t.Helper()

	name, job := w.name(host), ""

	w.awaitNodes(id, "the rollout begins "+host, func(r api.Rollout) bool {
		i := slices.IndexFunc(r.Nodes, func(n api.RolloutNode) bool { return n.Name == name })
		job = r.Nodes[i].Job
		return job != ""
	})
	w.awaitLog(job, holdTask)

	return job
}

// wantContents requires the content of the file of each of the hosts.
func (w *world) wantContents(content string, hosts ...string) {
	w.t.Helper()

	for _, h := range hosts {
		if got := strings.TrimSpace(w.sh(h, "cat /etc/systemtest").stdout); got != content {
			w.t.Errorf("%s has %q, want %q", h, got, content)
		}
	}
}

// TestRolloutActs: a rollout begins with the approval of another person only, and goes on after
// its canary once it is promoted. Paused, it begins no node, also after
// the manager was killed. An abort lets the job that runs finish, or cancels it, and an undo
// brings the nodes that were changed back to the playbooks before, and no other.
func TestRolloutActs(t *testing.T) {
	hosts := []string{"host2", "host3", "host4"}

	w := newWorld(t, setup{testPlaybooks: true})
	w.commission(master, hosts...)

	anna, bert := w.operator("anna"), w.operator("bert")

	w.approves(anna, bert)
	w.wantContents(master+" first", hosts...)

	w.sh("host1", "sed -i 's/{{ node_group }} /{{ node_group }} changed /' "+testPlaybooks+"/site.yml")

	id := w.pausesAndAborts()

	w.wantContents(master+" changed first", "host2", "host3")
	w.wantContents(master+" first", "host4")
	w.wantUndone(id)
	w.abortsWithJob()
}

// approves rolls out as one person, with the approval and the promotion by another one.
func (w *world) approves(anna, bert []string) {
	w.t.Helper()
	w.ctl("vars", "set", "--group", master, "note=first")

	id := decode[api.Rollout](w, w.ctl(append(anna, "rollout", "start", "--action", "apply", "-l", "group="+master,
		"--no-verify", "--require-approval", "--canary", "1", "--promote", "--yes", "-o", "json")...)).ID

	w.wantRefused(5, []string{"token:anna started rollout " + id, "another person has to approve it"},
		append(anna, "rollout", "approve", id)...)

	// A manager that starts looks at all rollouts anew.
	w.replaceProcess(daemonProcess, killDaemon)

	if r := w.getRollout(id); r.Status != "AwaitingApproval" || r.Approved != nil || len(w.visits(id)) != 0 {
		w.t.Errorf("without an approval it is %s with %+v", r.Status, r.Count)
	}

	w.ctl(append(bert, "rollout", "approve", id, "--reason", "as agreed")...)

	r := w.awaitRollout(id, "AwaitingPromotion")
	if r.Count.Done != 1 || r.Count.Waiting != 2 || r.Approved == nil || r.Approved.By != "token:bert" {
		w.t.Errorf("after its canary: %+v, approved %+v", r.Count, r.Approved)
	}

	w.wantRefused(5, []string{"its canary is done", "rollout promote " + id}, "rollout", "resume", id)
	w.wantContents(master+" first", "host2")
	w.wantContents(master, "host3", "host4")

	w.ctl(append(bert, "rollout", "promote", id)...)

	r = w.awaitRollout(id, "Done")
	if r.Promoted == nil || r.Promoted.By != "token:bert" || r.Actor != "token:anna" || len(w.visits(id)) != 3 {
		w.t.Errorf("promoted %+v, by %s, visits %v", r.Promoted, r.Actor, w.visits(id))
	}
}

// pausesAndAborts pauses a rollout in its first node and aborts it in its second one. Both finish.
func (w *world) pausesAndAborts() (id string) {
	w.t.Helper()

	id = w.startRollout(master, "-e", "hold: gate")
	w.awaitHeld(id, "host2")
	w.wantRefused(5, []string{"have not ended", "abort it"}, "rollout", "undo", id, "--yes")
	w.ctl("rollout", "pause", id, "--reason", "lunch")
	w.release("gate", "host2")
	w.awaitNodes(id, "the node in progress finishes", func(r api.Rollout) bool { return r.Count.Done == 1 })

	// The next node would begin at once, and at the latest by the manager that starts.
	w.replaceProcess(daemonProcess, killDaemon)

	r := w.getRollout(id)
	if r.Status != "Paused" || !strings.Contains(r.Reason, "lunch") || r.Count.Waiting != 2 || len(w.visits(id)) != 1 {
		w.t.Errorf("paused it is %s (%s) with %+v, and visits %v", r.Status, r.Reason, r.Count, w.visits(id))
	}

	w.ctl("rollout", "resume", id)

	held := w.awaitHeld(id, "host3")
	w.ctl("rollout", "abort", id, "--reason", "enough")

	r = w.getRollout(id)
	if j := w.job(held); r.Status != "Aborting" || j.Status != api.Running || j.Cancel != 0 {
		w.t.Errorf("it is %s, and its job is %s", r.Status, j.Status)
	}

	w.release("gate", "host3")

	r = w.awaitRollout(id, "Aborted")
	if j := w.job(held); r.Count.Done != 2 || r.Count.Skipped != 1 || j.Status != api.Complete {
		w.t.Errorf("aborted with %+v, and its job is %s: %s", r.Count, j.Status, j.Message)
	}

	return id
}

// wantUndone takes a rollout of the first two hosts back.
func (w *world) wantUndone(id string) {
	w.t.Helper()

	undo := decode[api.Rollout](w, w.ctl("rollout", "undo", id, "--yes", "-o", "json"))
	r := w.awaitRollout(undo.ID, "Done")

	if r.UndoOf != id || r.Count.Total != 2 || r.Count.Done != 2 {
		w.t.Errorf("the undo of %q has %+v", r.UndoOf, r.Count)
	}

	w.wantContents(master+" first", "host2", "host3", "host4")

	if n := w.visits(undo.ID)[w.name("host4")]; n != 0 {
		w.t.Errorf("the undo visited host4, which was not changed, %d times", n)
	}

	w.wantRefused(5, []string{"is itself the undo of"}, "rollout", "undo", undo.ID, "--yes")
}

// abortsWithJob aborts a rollout together with its job, which leaves every node settled.
func (w *world) abortsWithJob() {
	w.t.Helper()

	id := w.startRollout(master, "-e", "hold: never")
	held := w.awaitHeld(id, "host2")
	w.ctl("rollout", "abort", id, "--cancel")

	r := w.awaitRollout(id, "Aborted")
	if j := w.job(held); j.Status != api.Cancelled || r.Count.Failed != 1 || r.Count.Skipped != 2 {
		w.t.Errorf("aborted with %+v, and its job is %s: %s", r.Count, j.Status, j.Message)
	}

	for _, h := range []string{"host2", "host3", "host4"} {
		if n := w.node(h); n.Job != "" || n.Status != inventory.Allocated {
			w.t.Errorf("%s is %s, held by %q: %s", h, n.Status, n.Job, n.LastError)
		}
	}

	if v := w.visits(id); len(v) != 1 {
		w.t.Errorf("it visited %v", v)
	}
}
