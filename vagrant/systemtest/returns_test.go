// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// quickReturns lets nodes settle for seconds, so that a test need not wait.
const quickReturns = "policies: {settle: 5s}\n" +
	"groups:\n" +
	"  - {name: service-master}\n" +
	"  - {name: service-worker, requires: {service-master: 1}, on_return: verify-and-repair}\n"

// decisions are the decisions of the policy on a host's node, the oldest first.
func (w *world) decisions(host string) []api.Decision {
	w.t.Helper()

	var on []api.Decision

	for _, d := range decode[api.Policy](w, w.ctl("policy", "show", "returns", "-o", "json")).Decisions {
		if d.Node == w.name(host) {
			on = append([]api.Decision{d}, on...)
		}
	}

	return on
}

// awaitDecision waits until the policy has decided on a host's node for the nth time and
// the job of the decision has ended, and returns both.
func (w *world) awaitDecision(host string, n int) (d api.Decision, j api.Job) {
	w.t.Helper()
	await(w.t, 3*time.Minute, fmt.Sprintf("decision %d on %s", n, host), func() (bool, string) {
		all := w.decisions(host)
		if len(all) < n || all[n-1].Job == "" {
			return false, fmt.Sprintf("%+v; %s", all, w.tryCtl("nodes", "explain", w.name(host)))
		}
		d = all[n-1]
		return true, ""
	})

	return d, w.awaitJob(d.Job)
}

// wantDecision requires action, case and evidence of a decision.
func wantDecision(t *testing.T, d api.Decision, action, happened string, evidence ...string) {
	t.Helper()

	if d.Action != action || d.Case != happened || d.Phase != "done" {
		t.Errorf("decided %s (%s, %s), want %s (%s): %q", d.Action, d.Case, d.Phase, action, happened, d.Evidence)
	}

	for _, part := range evidence {
		if all := strings.Join(d.Evidence, "\n"); !strings.Contains(all, part) {
			t.Errorf("the evidence lacks %q:\n%s", part, all)
		}
	}
}

// TestReturns: a host whose network was cut, one that was rebooted and one whose agent
// stopped are told apart, and each is verified once. A drift found so is repaired.
func TestReturns(t *testing.T) {
	w := newWorld(t, setup{testPlaybooks: true, config: quickReturns})
	w.commission(master, "host2")
	w.commission(worker, "host3", "host4")

	t.Run("network cut", func(t *testing.T) {
		w := w.forSubtest(t)
		w.labDo("cut", "host3")
		w.awaitState(inventory.Disappeared, "host3")
		w.awaitFinding("host3", "ssh did not reach it")
		w.labDo("heal")
		w.awaitState(inventory.Discovered, "host3")

		d, j := w.awaitDecision("host3", 1)
		wantDecision(t, d, "verify", "the network was cut and the services kept running",
			"ssh did not reach it", "its agent started at")
		w.wantVerification(j, "host3", inventory.Clean)
	})

	t.Run("only the agent", func(t *testing.T) {
		w := w.forSubtest(t)

		w.sh("host4", "systemctl kill -s KILL clusterm-agent; systemctl stop clusterm-agent")
		w.awaitState(inventory.Disappeared, "host4")
		w.awaitFinding("host4", "its agent has stopped or the gossip is cut, and the host is up")
		w.sh("host4", "systemctl start clusterm-agent")
		w.awaitState(inventory.Discovered, "host4")

		d, j := w.awaitDecision("host4", 1)
		// A host of the lab has the uptime of the machine below it: from here on the manager
		// knows its boot id.
		wantDecision(
			t,
			d,
			"verify",
			"only the agent stopped",
			"while the observers did not see it",
			"its agent started at",
		)
		w.wantVerification(j, "host4", inventory.Clean)
	})

	t.Run("reboot", func(t *testing.T) {
		w := w.forSubtest(t)

		w.labDo("reboot", "host4")
		w.awaitState(inventory.Discovered, "host4")

		d, j := w.awaitDecision("host4", 2)
		wantDecision(t, d, "verify", "the host was rebooted", "its boot id changed from")
		w.wantVerification(j, "host4", inventory.Clean)
	})

	t.Run("drift", func(t *testing.T) {
		w := w.forSubtest(t)

		w.labDo("cut", "host3")
		w.awaitState(inventory.Disappeared, "host3")
		w.sh("host3", "rm -r /etc/systemtest")
		w.labDo("heal")
		w.awaitState(inventory.Discovered, "host3")

		d, j := w.awaitDecision("host3", 2)
		wantDecision(t, d, "verify", "the network was cut and the services kept running")
		w.wantVerification(j, "host3", inventory.Drifted)

		d, j = w.awaitDecision("host3", 3)
		wantDecision(t, d, "repair", "the network was cut and the services kept running", "found it drifted")

		if j.Status != api.Complete || j.Actor != "policy:returns" || !w.hasFile("host3", "/etc/systemtest") {
			t.Errorf("the repair is %s by %s: %s", j.Status, j.Actor, j.Message)
		}

		w.wantNode("host3", inventory.Allocated, worker)
	})

	t.Run("a Decommissioned node stays", func(t *testing.T) {
		w := w.forSubtest(t)
		w.do("nodes", "decommission", w.name("host4"))

		count := len(w.jobs())

		w.labDo("reboot", "host4")
		w.awaitState(inventory.Discovered, "host4")
		w.awaitHistory("host4", "it returned, and stays Decommissioned")
		w.wantNode("host4", inventory.Decommissioned, "")

		if now := len(w.jobs()); now != count {
			t.Errorf("%d jobs, want %d", now, count)
		}
	})
}

// awaitFinding waits until the explanation of a host's node contains the text.
func (w *world) awaitFinding(host, text string) {
	w.t.Helper()
	await(w.t, 90*time.Second, fmt.Sprintf("the explanation of %s has %q", host, text), func() (bool, string) {
		r := w.ctl("nodes", "explain", w.name(host), "-o", "json")
		return strings.Contains(r.stdout, text), r.stdout
	})
}

// awaitHistory waits until a reason in the history of a host's node contains the text.
func (w *world) awaitHistory(host, text string) {
	w.t.Helper()
	await(w.t, 90*time.Second, fmt.Sprintf("the history of %s has %q", host, text), func() (bool, string) {
		r := w.ctl("nodes", "history", w.name(host), "-o", "json")
		return strings.Contains(r.stdout, text), r.stdout
	})
}

// wantVerification requires that the job is one of the policy, and its verdict.
func (w *world) wantVerification(j api.Job, host string, want inventory.VerdictResult) {
	w.t.Helper()

	if j.Verb != inventory.VerbVerify || j.Actor != "policy:returns" || !strings.HasPrefix(j.Reason, "it returned: ") {
		w.t.Errorf("job %s is a %s by %s: %q", j.ID, j.Verb, j.Actor, j.Reason)
	}

	if v := w.node(host).Verification; v == nil || v.Job != j.ID || v.Result != want {
		w.t.Errorf("the verdict of %s is %+v, want %s by job %s; %s", host, v, want, j.ID, j.Message)
	}
}

// TestBrake: when the manager itself is cut off, all nodes vanish. Automation stops and
// says so, keeps that over a restart, and goes on after a release. People can act.
func TestBrake(t *testing.T) {
	w := newWorld(t, setup{testPlaybooks: true, config: quickReturns})
	w.commission(master, "host2")
	w.commission(worker, "host3", "host4")

	w.labDo("cut", "host1")
	w.awaitState(inventory.Disappeared, "host2", "host3", "host4")
	w.awaitBrake(true)
	w.labDo("heal")
	w.awaitState(inventory.Discovered, w.hosts...)

	r := w.ctl("status")
	for _, part := range []string{"automation is stopped since", "3 of 4 nodes vanished", "clusterctl policy release"} {
		if !strings.Contains(r.stderr, part) {
			t.Errorf("the health lacks %q: %s", part, r)
		}
	}

	w.sh("host1", "systemctl restart clusterm")
	w.awaitHealthy()
	w.awaitBrake(true)
	w.awaitFinding("host3", "the brake holds automation since")
	w.do("nodes", "maintenance", w.name("host3"))

	for _, host := range []string{"host2", "host4"} {
		if all := w.decisions(host); len(all) > 0 {
			t.Errorf("decided under the brake: %+v", all)
		}
	}

	w.ctl("policy", "release", "--reason", "the cable is back")
	w.awaitBrake(false)

	for _, host := range []string{"host2", "host4"} {
		d, j := w.awaitDecision(host, 1)
		wantDecision(t, d, "verify", "the network was cut and the services kept running")
		w.wantVerification(j, host, inventory.Clean)
	}

	// The maintenance has configured it since.
	if all := w.decisions("host3"); len(all) > 0 {
		t.Errorf("%+v", all)
	}
}

func (w *world) awaitBrake(engaged bool) {
	w.t.Helper()
	await(w.t, time.Minute, fmt.Sprintf("the brake is engaged: %t", engaged), func() (bool, string) {
		r := w.ctl("policy", "list", "-o", "json")
		return decode[api.Policies](w, r).Brake.Engaged == engaged, r.stdout
	})
}
