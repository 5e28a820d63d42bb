// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"testing"

	"github.com/contiv/cluster/inventory"
)

// A script written for the first generation works against this one.
func TestScriptOfTheFirstGeneration(t *testing.T) {
	w := newWorld(t, setup{small: true, hosts: 3, settings: "plain_http: 127.0.0.1:9007"})
	w.lab("cp", "testdata/legacy.sh", "host1:/root/legacy.sh")
	r := w.sh("host1", "bash /root/legacy.sh "+w.name("host2")+" "+w.name("host3"))
	t.Log(r.stdout)
	w.is("host2", inventory.Allocated, master)
	w.is("host3", inventory.Decommissioned, "")
	// Nobody else can reach the port.
	if r := w.try("host2", "curl -s --max-time 3 http://"+addr("host1")+":9007/info/nodes"); r.code == 0 {
		t.Errorf("the port is open to other hosts: %s", r)
	}
}
