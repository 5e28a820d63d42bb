// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// outdatedNodes returns the names of the outdated nodes, sorted.
func (w *world) outdatedNodes() []string {
	w.t.Helper()

	var names []string
	for name, n := range w.nodes() {
		if n.Outdated != nil && *n.Outdated {
			names = append(names, name)
		}
	}

	slices.Sort(names)

	return names
}

// wantOutdated requires exactly the nodes of these hosts to be outdated.
func (w *world) wantOutdated(when string, hosts ...string) {
	w.t.Helper()

	want := slices.Sorted(slices.Values(w.nodeNames(hosts...)))
	if got := w.outdatedNodes(); !slices.Equal(got, want) {
		w.t.Errorf("%s: outdated are %v, want %v", when, got, want)
	}
}

// awaitOutdated waits until exactly the nodes of these hosts are outdated: the folder of
// playbooks is looked at every few seconds.
func (w *world) awaitOutdated(hosts ...string) {
	w.t.Helper()

	want := slices.Sorted(slices.Values(w.nodeNames(hosts...)))

	await(w.t, time.Minute, strings.Join(want, " ")+" are outdated", func() (bool, string) {
		got := w.outdatedNodes()
		return slices.Equal(got, want), strings.Join(got, " ")
	})
}

// TestOutdated changes variables and playbooks: exactly the nodes concerned are outdated,
// and apply and reapply mend them. A reapply survives the death of the manager; one whose
// runner dies leaves the node in its group, with an unknown configuration.
func TestOutdated(t *testing.T) {
	w := newWorld(t, setup{hosts: 3, testPlaybooks: true})
	w.commission(master, "host2")
	w.commission(worker, "host3")
	w.wantOutdated("after the commission")

	if n := w.node("host3"); n.Outdated == nil || n.Configured == nil || n.Configured.Variables == "" {
		t.Fatalf("the configuration is not known: %+v", n)
	}

	w.ctl("vars", "set", "--group", worker, "note=of-the-group")
	w.wantOutdated("variables of a group", "host3")

	var e api.NodeExplanation
	if err := json.Unmarshal([]byte(w.ctl("nodes", "explain", w.name("host3"), "-o", "json").stdout), &e); err != nil ||
		!strings.HasPrefix(e.Summary, "it is in service; outdated (variables)") ||
		!strings.Contains(e.Findings[0].Message, "note (group/service-worker), since ") {
		t.Errorf("%+v, %v", e, err)
	}

	w.do("nodes", "apply", w.name("host3"))
	w.wantOutdated("after apply")
	w.sh("host3", "grep -q of-the-group /etc/systemtest")

	w.ctl("vars", "set", "--node", w.name("host2"), "--secret", "note=a-secret")
	w.wantOutdated("a secret of a master, which the workers see", "host2", "host3")
	w.do("nodes", "apply", "-l", "outdated=true")
	w.wantOutdated("after apply of what is outdated")

	// The variables of a request are applied, and kept by nothing.
	w.do("nodes", "apply", w.name("host3"), "-e", "note=of-the-request")
	w.wantOutdated("variables of a request", "host3")

	if n := w.node("host3"); !slices.Equal(n.Configured.ExtraVars, []string{"note"}) {
		t.Errorf("%+v", n.Configured)
	}

	w.do("nodes", "apply", w.name("host3"), "--check")
	w.wantOutdated("after a check", "host3")
	w.do("nodes", "apply", w.name("host3"))
	w.wantOutdated("after an apply without them")

	w.sh("host1", "echo '# changed' >> "+testPlaybooks+"/site.yml")
	w.awaitOutdated("host2", "host3")

	w.sh("host3", "echo by hand > /etc/systemtest")

	j := w.do("nodes", "apply", "--clean", w.name("host3"))
	if len(j.Runs) != 2 || j.Runs[0].Playbook != "cleanup.yml" || j.Runs[1].Playbook != "site.yml" {
		t.Errorf("the runs of a reapply: %+v", j.Runs)
	}

	w.wantOutdated("after reapply of one", "host2")
	w.wantNode("host3", inventory.Allocated, worker)
	w.sh("host3", "grep -q of-the-group /etc/systemtest")
	w.do("nodes", "apply", w.name("host2"))
	w.wantOutdated("after apply of the other")
}
