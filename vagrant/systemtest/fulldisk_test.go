// SPDX-License-Identifier: Apache-2.0

package systemtest

import (
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// TestFullDisk: the file system under the data directory fills up, first below the room that a manager needs, and then
// to the last block. Reads go on, changes are refused at once with the reason, a job that ran ends truthfully, and all
// is whole again soon after space returns.
func TestFullDisk(t *testing.T) {
	w := newWorld(t, setup{playbooks: "testdata/chaos", noAgents: true, hosts: 1, disk: "512M"})
	w.awaitState(inventory.Discovered, "host1")
	w.commission(master, "host1")

	refusal := []string{"left on the file system of " + dataDir, "free some space"}
	wantReadsOnly := func(refused []string) {
		t.Helper()

		for range 5 {
			if r := w.wantRefused(6, refused, "vars", "set", "--global", "a=1"); r.took > 2*time.Second {
				t.Errorf("the refusal took %s", r.took)
			}

			if n := w.node("host1"); n.Group != master {
				t.Errorf("%s is in group %q", n.Name, n.Group)
			}
		}
	}
	wantWhole := func() {
		t.Helper()

		begun := time.Now()

		await(t, time.Minute, "changes are accepted again", func() (bool, string) {
			r := w.tryCtl("vars", "set", "--global", "a=1")
			return r.code == 0, r.String()
		})
		w.awaitHealthy()

		took := time.Since(begun)
		t.Logf("whole again after %s", took.Round(time.Millisecond))

		if took > 10*time.Second {
			t.Errorf("it took %s", took)
		}
	}

	// Room for the log of a running job is left.
	id := w.submit("nodes", "apply", w.name("host1"))
	w.sh("host1", "fallocate -l $(($(stat -fc '%a*%S' "+dataDir+") - (40 << 20))) "+dataDir+"/full")
	wantReadsOnly(refusal)

	if j := w.awaitJob(id); j.Status != api.Complete {
		t.Errorf("job %s is %s: %s", id, j.Status, j.Message)
	}

	w.sh("host1", "rm "+dataDir+"/full")
	wantWhole()

	// Nothing is left, and a job runs.
	id = w.submit("nodes", "apply", w.name("host1"))
	w.sh("host1", "! dd if=/dev/zero of="+dataDir+"/full bs=1M 2>/dev/null")
	wantReadsOnly(nil)
	w.sh("host1", "rm "+dataDir+"/full")
	wantWhole()

	if j := w.awaitJob(id); !j.Status.Ended() || j.Status != api.Complete && j.Message == "" {
		t.Errorf("job %s is %s: %s", id, j.Status, j.Message)
	}

	w.awaitHealthy()
	w.sh("host1", "clusterm store check")
}
