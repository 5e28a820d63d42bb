// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/management/api"
)

// autoUpgrade is a policy for every host but the manager's, behind a canary.
const autoUpgrade = `
policies:
  upgrade:
    follow: {match: label!=host1, mode: upgrade, settle: 5s, canary: 1, max_unavailable: "2"}
`

// upgrades returns the rollouts of the policy, by commit.
func (w *world) upgrades() map[string][]api.Rollout {
	w.t.Helper()

	of := map[string][]api.Rollout{}

	for _, r := range decode[api.List[api.Rollout]](w, w.ctl("rollout", "list", "-o", "json")).Items {
		if r.Actor == "policy:follow" {
			of[r.Commit] = append(of[r.Commit], r)
		}
	}

	return of
}

// awaitUpgrade waits until the policy has a rollout of the commit with that status.
func (w *world) awaitUpgrade(commit, status string) api.Rollout {
	w.t.Helper()

	id := ""

	await(w.t, 2*time.Minute, "the policy rolls "+commit+" out", func() (bool, string) {
		if of := w.upgrades()[commit]; len(of) > 0 {
			id = of[0].ID
		}
		return id != "", w.tryCtl("policy", "show", "follow").String()
	})

	return w.awaitRollout(id, status)
}

// TestAutoUpgrade: a commit pushed to the repository rolls over four hosts by a policy. A bad
// one stops at the canary, all other hosts are untouched, and a manager that is killed does
// not try it again. The commit that mends it takes its place.
func TestAutoUpgrade(t *testing.T) {
	w := newWorld(t, setup{
		hosts: 5, config: "repository: {url: " + servedRepo + ", branch: main, interval: 10s}" + autoUpgrade,
	})
	hosts := []string{"host2", "host3", "host4", "host5"}

	repo := w.newRepo()
	w.sync(repo.push("first"))
	w.commission(master, "host2")
	w.commission(worker, "host3", "host4", "host5")
	w.ctl("policy", "enable", "follow", "--reason", "the playbooks are tested")

	site := readSite(t)
	noted := func(note string) string {
		return strings.Replace(site, "{{ note | default('') }}", note, 1)
	}

	repo.write("site.yml", noted("second"))
	second := repo.push("second")

	if r := w.awaitUpgrade(second, "Done"); r.Count.Done != len(hosts) || r.Spec.Canary != 1 {
		t.Errorf("%+v", r)
	}

	w.wantNotes("second", hosts...)

	// The names of the nodes begin with those of their hosts, so host2 is the canary.
	repo.write("site.yml", noted("third")+`
    - name: Fail everywhere
      ansible.builtin.fail: {msg: a bad commit}
`)
	bad := repo.push("bad")

	stopped := w.awaitUpgrade(bad, "Stopped")
	if stopped.Count.Failed != 1 || stopped.Count.Waiting != 3 {
		t.Errorf("after a bad canary: %+v", stopped.Count)
	}

	w.wantNotes("third", "host2")
	w.wantNotes("second", "host3", "host4", "host5")

	w.sh("host1", killDaemon)
	w.awaitHealthy()

	var text string

	await(t, time.Minute, "the policy says why it waits", func() (bool, string) {
		text = w.tryCtl("nodes", "explain", w.name("host3")).stdout
		return strings.Contains(text, "the commit is not tried again"), text
	})

	if !strings.Contains(text, "policy follow: rollout "+stopped.ID) {
		t.Errorf("the explanation is\n%s", text)
	}

	repo.write("site.yml", noted("fourth"))
	mended := repo.push("mended")
	w.awaitUpgrade(mended, "Done")
	w.wantNotes("fourth", hosts...)
	w.awaitRollout(stopped.ID, "Aborted")

	upgrades := w.upgrades()
	if len(upgrades) != 3 || len(upgrades[second]) != 1 || len(upgrades[bad]) != 1 || len(upgrades[mended]) != 1 {
		t.Errorf("the rollouts are %+v", upgrades)
	}

	visits := map[string]int{}

	for _, j := range w.jobs() {
		if j.Rollout == upgrades[second][0].ID && j.Verb == "apply" {
			visits[j.Nodes[0]]++
		}
	}

	for _, h := range hosts {
		if visits[w.name(h)] != 1 {
			t.Errorf("the visits are %v", visits)
		}
	}

	for _, d := range decode[api.Policy](w, w.ctl("policy", "show", "follow", "-o", "json")).Decisions {
		if d.Action == "upgrade" && d.Phase == "done" && d.Commit == mended {
			w.wantDecision(d, bad, mended)
			return
		}
	}

	t.Errorf("no decision about %s", mended)
}

// wantDecision requires the evidence of a decision: both commits and the difference.
func (w *world) wantDecision(d api.Decision, bad, mended string) {
	w.t.Helper()

	evidence := strings.Join(d.Evidence, "\n")
	if !strings.Contains(evidence, "commit "+mended+" is in use") || !strings.Contains(evidence, w.name("host3")) {
		w.t.Errorf("%+v", d)
	}

	diff := w.ctl("repo", "diff", d.From, d.Commit).stdout
	if d.From == bad || !strings.Contains(diff, "fourth") {
		w.t.Errorf("%s", fmt.Sprintf("the difference from %s is\n%s", d.From, diff))
	}
}
