// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// plan makes a plan of a command.
func (w *world) plan(args ...string) api.Plan {
	w.t.Helper()
	return decode[api.Plan](w, w.ctl(append(args, "--plan", "-o", "json")...))
}

func (w *world) applyPlan(p api.Plan) api.Job {
	w.t.Helper()
	return w.do("apply", "--plan", p.ID)
}

func (w *world) wantPlanRefused(p api.Plan, words ...string) {
	w.t.Helper()

	jobs := len(w.jobs())
	w.wantRefused(5, append(words, p.ID, "make a new plan"), "apply", "--plan", p.ID)

	if now := len(w.jobs()); now != jobs {
		w.t.Errorf("%d jobs, %d before", now, jobs)
	}
}

// TestPlan: a plan does nothing, and shows what Ansible foresees. Applied, also after a
// crash of the manager, it does exactly what it says. After a change of a node or of the
// folder of playbooks it is refused with the change.
func TestPlan(t *testing.T) {
	w := newWorld(t, setup{testPlaybooks: true})
	w.commission(master, "host2")
	w.commission(worker, "host3", "host4")

	both := []string{w.name("host4"), w.name("host3")}
	file := func(host string) string { return w.sh(host, "cat /etc/systemtest").stdout }

	// Whatever changes a record changes its revision.
	world := func() string {
		revisions := map[string]int64{}
		for name, n := range w.nodes() {
			revisions[name] = n.Revision
		}

		return fmt.Sprint(revisions, len(w.jobs()), file("host3"), file("host4"))
	}

	// The plan of an update, with a selector and batches.
	before := world()

	p := w.plan("nodes", "update", "-l", "group=service-worker", "--serial", "1", "-e", "note=planned")
	if p.Status != api.PlanOpen || len(p.Targets) != 2 || p.Targets[1].Batch != 2 || p.PlaybookDigest == "" ||
		len(p.Service) != 1 || p.Service[0].AtOnce != 1 || len(p.Rules) != 1 ||
		p.Vars[p.Targets[0].Name]["note"].Origin != "request" {
		t.Errorf("%+v", p)
	}

	if after := world(); after != before {
		t.Errorf("the plan has changed\n%s\nto\n%s", before, after)
	}

	// The manager crashes between the plan and its application.
	w.replaceProcess(daemonProcess, killDaemon)

	j := w.applyPlan(p)
	if j.Plan != p.ID || j.Serial != "1" || !slices.Equal(j.Nodes, p.Request.Nodes) ||
		j.PlaybookDigest != p.PlaybookDigest {
		t.Errorf("%+v, planned %+v", j, p)
	}

	for _, host := range []string{"host3", "host4"} {
		if got := file(host); got != "service-worker planned\n" {
			t.Errorf("%s has %q", host, got)
		}
	}

	w.wantRefused(5, []string{"was applied already, as job " + j.ID}, "apply", "--plan", p.ID)

	// The next plan knows how long that took.
	if p = w.plan(append([]string{"nodes", "update"}, both...)...); p.Expected == nil || p.Expected.Jobs != 1 {
		t.Errorf("expected: %+v", p.Expected)
	}

	w.foreseen(both[1])

	// A node changes: another verb has configured it.
	p = w.plan(append([]string{"nodes", "apply"}, both...)...)
	changed := w.do("nodes", "apply", "-e", "note=since", both[1])
	w.wantPlanRefused(p, both[1]+": job "+changed.ID+" has configured it since")

	// A file of the folder. Nodes are cleaned with the playbooks that they carry, so a
	// decommission does not depend on it.
	p = w.plan(append([]string{"nodes", "apply"}, both...)...)
	cleanup := w.plan("nodes", "decommission", both[0])
	w.sh("host1", "echo '# edited' >> "+testPlaybooks+"/site.yml")
	w.wantPlanRefused(p, "the playbooks have changed", "site.yml")

	w.applyPlan(cleanup)
	w.wantNode("host4", inventory.Decommissioned, "")
}

// foreseen requires that a plan with a check shows the difference, and can be applied.
func (w *world) foreseen(name string) {
	w.t.Helper()

	p := w.plan("nodes", "apply", "--check", "-e", "note=foreseen", name)
	if p.Check == nil || p.Check.Status != api.Complete || len(p.Check.Nodes) != 1 {
		w.t.Fatalf("the check is %+v", p.Check)
	}

	var diffs []string
	for _, f := range p.Check.Nodes[0].Tasks {
		diffs = append(diffs, f.Diff)
	}

	if got := strings.Join(diffs, "\n"); !strings.Contains(got, "+service-worker foreseen") {
		w.t.Errorf("the findings are %+v", p.Check.Nodes)
	}

	if j := w.applyPlan(p); j.Check || w.sh("host3", "cat /etc/systemtest").stdout != "service-worker foreseen\n" {
		w.t.Errorf("%+v", j)
	}
}
