// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// TestVerify: a node that the bundled playbooks configured is clean; a file changed by
// hand, a stopped service and a lost program are drift with their differences, which an
// apply mends.
func TestVerify(t *testing.T) {
	w := newWorld(t, setup{hosts: 3})
	w.commission(master, "host2")
	w.commission(worker, "host3")

	both := []string{w.name("host2"), w.name("host3")}
	before := w.node("host2")

	// Check mode judges every task of the bundled playbooks on a clean node.
	j := w.do(append([]string{"nodes", "verify", "--strict"}, both...)...)
	if j.Message != "2 nodes verified clean" || len(j.Runs) != 2 {
		t.Errorf("%q, %d runs, note %q", j.Message, len(j.Runs), j.Note)
	}

	w.wantVerdict("host2", inventory.Clean)
	w.wantVerdict("host3", inventory.Clean)

	if n := w.node("host2"); n.Applied != before.Applied || n.Status != before.Status || n.Group != before.Group {
		t.Errorf("the verification left %+v, before %+v", n, before)
	}

	for _, c := range []struct {
		name, host, damage string
		words              []string // in the answer of nodes diff
		still              string   // holds as long as nothing mends the host
	}{
		{
			"a file changed by hand", "host3", "echo GATEWAY_RETRY_DELAY=99s >> /etc/clusterm/etcd-gateway.env",
			[]string{"Configure the service", "-GATEWAY_RETRY_DELAY=99s", "roles/etcd/tasks/configure.yml:"},
			"grep -q 99s /etc/clusterm/etcd-gateway.env",
		},
		{
			"a stopped service", "host2", "systemctl stop clusterm-etcd.service",
			[]string{"Run the member", "clusterm-etcd.service is inactive"},
			"! systemctl is-active --quiet clusterm-etcd.service",
		},
		{
			"a lost program of a package", "host3", "rm /usr/bin/etcdctl",
			[]string{"Install the packages again if a program is missing"}, "! test -e /usr/bin/etcdctl",
		},
	} {
		w.sh(c.host, c.damage)

		j, stderr := w.doFails(append([]string{"nodes", "verify"}, both...)...)
		if j.Cause != api.CauseDrifted || !strings.Contains(j.Message, w.name(c.host)) ||
			!strings.Contains(stderr, "nodes diff "+w.name(c.host)) {
			t.Errorf("%s: %s (%s), %q", c.name, j.Message, j.Cause, stderr)
		}

		w.wantVerdict(c.host, inventory.Drifted)
		w.sh(c.host, c.still)

		text := w.ctl("nodes", "diff", w.name(c.host)).stdout
		for _, word := range c.words {
			if !strings.Contains(text, word) {
				t.Errorf("%s: %q is not in\n%s", c.name, word, text)
			}
		}

		w.do("nodes", "apply", w.name(c.host))

		if n := w.node(c.host); n.Verification != nil {
			t.Errorf("%s: after apply the verdict is %+v", c.name, n.Verification)
		}

		if j := w.do(append([]string{"nodes", "verify"}, both...)...); j.Status != api.Complete {
			t.Errorf("%s: after apply %s: %s", c.name, j.Status, j.Message)
		}
	}

	var e api.NodeExplanation
	if err := json.Unmarshal([]byte(w.ctl("nodes", "explain", w.name("host2"), "-o", "json").stdout), &e); err != nil ||
		!strings.HasPrefix(e.Summary, "it is in service; verified clean ") {
		t.Errorf("%q, %v", e.Summary, err)
	}
}

func (w *world) wantVerdict(host string, want inventory.VerdictResult) {
	w.t.Helper()

	if v := w.node(host).Verification; v == nil || v.Result != want {
		w.t.Errorf("the verdict on %s is %+v, want %s", host, v, want)
	}
}
