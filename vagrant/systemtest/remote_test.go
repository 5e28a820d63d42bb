// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
)

// TestRemoteOperator: an operator on another machine logs in once with a token, commissions
// a node over HTTPS, and can do nothing beyond the role; a revoked token ends that.
func TestRemoteOperator(t *testing.T) {
	w := newWorld(t, setup{hosts: 2, config: "listen: 0.0.0.0:9443\n"})
	url := "https://" + addr("host1") + ":9443"

	w.labDo("cp", filepath.Join(suite.bin, "clusterctl"), "host2:/usr/local/bin/clusterctl")

	fingerprint := strings.TrimSpace(w.sh("host1", "clusterm ca fingerprint").stdout)
	token := w.ctl("token", "create", "--role", "operator", "--name", "anna").stdout
	w.write("host2", "/root/anna.token", token)

	remote := func(args string) result { return w.try("host2", "clusterctl "+args) }
	wants := func(code int, words, args string) {
		t.Helper()

		r := remote(args)
		if r.code != code || !strings.Contains(r.stdout+r.stderr, words) {
			t.Errorf("clusterctl %s: want status %d and %q\n%s", args, code, words, r)
		}
	}

	// Nothing is sent to a manager with another CA.
	other := "sha256:" + strings.Repeat("0", 64)
	if r := remote("login " + url + " --fingerprint " + other + " --token-file /root/anna.token"); r.code == 0 ||
		!strings.Contains(r.stderr, "another CA") {
		t.Errorf("the login with a wrong fingerprint: %s", r)
	}

	wants(0, "logged in", "login "+url+" --fingerprint "+fingerprint+" --token-file /root/anna.token")
	w.sh("host2", "rm /root/anna.token")

	wants(0, w.name("host2"), "nodes get")
	wants(0, "Complete", "nodes commission --yes -g "+master+" "+w.name("host2"))
	w.wantNode("host2", inventory.Allocated, master)

	if j := w.jobs()[len(w.jobs())-1]; j.Actor != "token:anna" {
		t.Errorf("the job is of %q", j.Actor)
	}

	wants(5, "admin", "config set jobs.limit=2")
	wants(5, "admin", "token list")

	if trail := w.sh("host1", "clusterm audit").stdout; !strings.Contains(trail, "token:anna") {
		t.Errorf("the audit trail does not name the operator:\n%s", trail)
	}

	w.ctl("token", "revoke", "anna")

	if r := remote("nodes get"); r.code == 0 || !strings.Contains(r.stderr, "token") {
		t.Errorf("with a revoked token: %s", r)
	}

	w.sh("host1", "clusterm audit verify")
}
