// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/management/api"
)

// smoke is a command of a gate on the manager's host. It notes each call, and succeeds for a
// node once /root/well-NODE exists.
const smoke = `#!/bin/sh
echo "$1 $CLUSTERM_NODE $CLUSTERM_ADDR $CLUSTERM_GROUP $CLUSTERM_ROLLOUT" >>/root/smoke.log
test -e "/root/well-$CLUSTERM_NODE" || { echo "no quorum yet" >&2; exit 3; }
`

// rollOver starts an apply of the hosts, without a verification, and returns its id.
func (w *world) rollOver(hosts []string, options ...string) string {
	w.t.Helper()
	args := append([]string{"rollout", "start", "--action", "apply", "--no-verify", "--yes", "-o", "json"}, options...)
	return decode[api.Rollout](w, w.ctl(append(args, w.nodeNames(hosts...)...)...)).ID
}

// TestRolloutGates: a node is done once it answers the HTTP check, and once the command of the
// gate succeeds for it; until then no other begins.
func TestRolloutGates(t *testing.T) {
	w := newWorld(t, setup{hosts: 5, testPlaybooks: true})
	w.commission(master, "host2")
	w.commission(worker, "host3", "host4", "host5")
	w.gatesByHTTP()
	w.gatesByCommand()
}

// gatesByHTTP has a host that answers, and one that answers 404 at first.
func (w *world) gatesByHTTP() {
	w.t.Helper()

	for _, h := range []string{"host3", "host4", "host5"} {
		w.sh(h, "mkdir /srv/web && systemd-run --quiet --unit web python3 -m http.server -d /srv/web 8080")
	}

	w.sh("host3", "touch /srv/web/health")
	w.sh("host5", "touch /srv/web/health")

	id := w.rollOver([]string{"host3", "host4", "host5"},
		"--http-check", "http://:8080/health", "--http-timeout", "15s")

	r := w.awaitRollout(id, "Stopped")
	why := r.Nodes[1].Reason

	if r.Count.Done != 1 || r.Count.Failed != 1 || r.Count.Waiting != 1 ||
		!strings.Contains(why, "404") || !strings.Contains(why, "did not succeed within 15s") {
		w.t.Errorf("host4 answers 404, and it stopped with %+v: %s", r.Count, r.Reason)
	}

	if j := w.job(r.Nodes[1].Job); j.Status != api.Complete {
		w.t.Errorf("the job before the check is %s: %s", j.Status, j.Message)
	}

	w.sh("host4", "touch /srv/web/health")
	w.ctl("rollout", "retry", id)

	if r := w.awaitRollout(id, "Done"); r.Count.Done != 3 {
		w.t.Errorf("once host4 answers: %+v", r.Count)
	}
}

// gatesByCommand has a host for which the command succeeds, and one for which it does so late.
func (w *world) gatesByCommand() {
	w.t.Helper()

	const program = "/usr/local/bin/smoke"

	config := w.sh("host1", "cat "+configFile).stdout
	w.write("host1", program, smoke)
	w.write("host1", configFile, config+"\ngate_commands: {smoke: ["+program+", --quick]}\n")
	w.sh("host1", fmt.Sprintf("chmod 755 %s; touch /root/well-%s; systemctl reload clusterm", program, w.name("host3")))

	w.wantRefused(2, []string{"gate_commands in the configuration file has smoke"}, "rollout", "start", "--action",
		"apply", "--check-command", "other", "--yes", w.name("host3"))

	id := w.rollOver([]string{"host3", "host4", "host5"}, "--check-command", "smoke", "--command-timeout", "4m")
	call := func(host string) string {
		return fmt.Sprintf("--quick %s %s %s %s\n", w.name(host), addr(host), worker, id)
	}

	await(w.t, 2*time.Minute, "the command is repeated for host4", func() (bool, string) {
		log := w.try("host1", "cat /root/smoke.log")
		return strings.Count(log.stdout, call("host4")) >= 2, log.String()
	})

	r := decode[api.Rollout](w, w.ctl("rollout", "show", id, "-o", "json"))
	if r.Nodes[0].State != "done" || r.Nodes[1].State != "checking" || r.Nodes[2].State != "waiting" {
		w.t.Errorf("the command fails for host4: %+v", r.Nodes)
	}

	w.sh("host1", fmt.Sprintf("touch /root/well-%s /root/well-%s", w.name("host4"), w.name("host5")))

	if r := w.awaitRollout(id, "Done"); r.Count.Done != 3 {
		w.t.Errorf("once the command succeeds: %+v", r.Count)
	}

	log := w.sh("host1", "cat /root/smoke.log").stdout
	if !strings.HasPrefix(log, call("host3")) || strings.Count(log, call("host3")) != 1 ||
		!strings.HasSuffix(log, call("host5")) || strings.Contains(log, " other ") {
		w.t.Errorf("the calls of the command are\n%s", log)
	}
}
