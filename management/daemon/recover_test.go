// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/restore"
	"github.com/contiv/cluster/management/state"
)

// TestRecover loses the one of two instances that votes. The other one goes on with what was acknowledged, in a new
// epoch, and lets the lost host join anew.
func TestRecover(t *testing.T) {
	t.Parallel()

	key := keyPair(t)
	a, b := beside(t, "a", "127.0.3.6", key), beside(t, "b", "127.0.3.7", key)

	a.up()
	t.Cleanup(a.down)

	_, err := b.join(a)
	b.must(err)
	b.up()
	t.Cleanup(b.down)
	a.eventually("the second waits for a third", func() bool { return a.etcds() == "a voter, b learner" })

	a.report("m x")
	a.runJob(api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"m-1"}, Group: inventory.GroupMaster})
	_, err = b.PatchVars(b.ctx(), client.ScopeGlobal, api.Vars{"last": 1})
	b.must(err)

	recoverB := func(confirmed bool) error {
		return Recover(
			b.ctx(),
			Options{ConfigPath: b.file, Logger: logrus.New()},
			restore.Options{Say: t.Logf},
			confirmed,
		)
	}

	checkError(t, recoverB(true), inventory.KindRefused, "clusterm runs")
	b.down()
	checkError(t, recoverB(true), inventory.KindRefused, "another instance is there")
	a.down()
	checkError(t, recoverB(false), inventory.KindRefused, "clusterm recover --yes")
	b.must(recoverB(true))
	b.up()

	b.eventually("it leads alone", func() bool { return b.member.Leads() && b.etcds() == "b voter" })

	if vars, err := b.Vars(b.ctx(), client.ScopeGlobal); err != nil || fmt.Sprint(vars["last"]) != "1" {
		t.Errorf("the variables are %v, %v", vars, err)
	}
	if got := b.status("m-1"); got != "Allocated service-master" {
		t.Errorf("m is %s", got)
	}
	if epoch := state.EpochOf(b.store.View()); epoch == 0 {
		t.Error("the epoch is the former one")
	}

	trail, err := b.Audit(b.ctx(), client.AuditFilter{Verb: "instances.recover"}, 10)
	if err != nil || len(trail.Items) != 1 || len(trail.Items[0].Targets) != 1 {
		t.Errorf("the audit trail has %+v, %v", trail.Items, err)
	}

	b.runJob(api.JobRequest{Verb: inventory.VerbUpdate, Nodes: []string{"m-1"}})

	b.must(os.Rename(filepath.Join(a.dir, "d"), filepath.Join(a.dir, "lost")))
	_, err = a.join(b)
	a.must(err)
	a.up()
	b.eventually("the lost one is there again", func() bool { return b.etcds() == "b voter, a learner" })
}
