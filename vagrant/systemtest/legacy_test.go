// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"testing"

	"github.com/contiv/cluster/inventory"
)

// TestFirstGenerationScript: a script for the first generation's contract works.
func TestFirstGenerationScript(t *testing.T) {
	w := newWorld(t, setup{testPlaybooks: true, hosts: 3, config: "plain_http: 127.0.0.1:9007\nplain_http_role: admin"})
	w.labDo("cp", "testdata/legacy.sh", "host1:/root/legacy.sh")
	r := w.sh("host1", "bash /root/legacy.sh "+w.name("host2")+" "+w.name("host3"))
	t.Log(r.stdout)
	w.wantNode("host2", inventory.Allocated, master)
	w.wantNode("host3", inventory.Decommissioned, "")
	// Other hosts cannot reach the port.
	if r := w.try("host2", "curl -s --max-time 3 http://"+addr("host1")+":9007/info/nodes"); r.code == 0 {
		t.Errorf("the port is open to other hosts: %s", r)
	}
}
