// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/restore"
	"github.com/contiv/cluster/management/setting"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/survivor"
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
	a.down() // before the one that votes
}

// TestSplit lets an instance start that was lost, and had accepted more than the one that went on. It exports that, and
// does not start again.
func TestSplit(t *testing.T) {
	t.Parallel()

	key := keyPair(t)
	a, b := beside(t, "a", "127.0.3.8", key), beside(t, "b", "127.0.3.9", key)

	a.up()
	t.Cleanup(a.down)

	_, err := b.join(a)
	b.must(err)
	b.up()
	t.Cleanup(b.down)
	a.eventually("the second waits for a third", func() bool { return a.etcds() == "a voter, b learner" })

	change := func(s *site, name string) {
		t.Helper()
		_, err := s.PatchVars(s.ctx(), client.ScopeGlobal, api.Vars{name: 1})
		s.must(err)
	}

	a.eventually("it remembers the other one", func() bool {
		m, err := etcd.ReadMember(filepath.Join(a.dir, "d", "etcd"))
		a.must(err)

		return len(m.Learners) == 1
	})
	change(a, "common")
	b.down()
	change(a, "accepted")
	self := a.identity.ID
	a.down()

	b.must(Recover(b.ctx(), Options{ConfigPath: b.file, Logger: logrus.New()}, restore.Options{Say: t.Logf}, true))
	b.up()
	change(b, "after")

	began := a.try(patience)

	split, ok := errors.AsType[*survivor.Split](began)
	if !ok || split.Since.Lost[self] == 0 {
		t.Fatalf("the lost one started: %v", began)
	}

	// What fails is tried again.
	o := Options{ConfigPath: a.file, Logger: logrus.New(), InProcess: true}
	file, err := setting.Load(a.file, adapters{})
	a.must(err)

	data := filepath.Join(a.dir, "d", "etcd", "data")
	a.must(os.Rename(data, data+".away"))
	host := o.host(file)

	if err := host.Stop(a.ctx(), *split); inventory.KindOf(err) != inventory.KindUnavailable {
		t.Errorf("got %v", err)
	}
	a.must(os.Rename(data+".away", data))

	for range 2 {
		stopped := host.Settle(a.ctx())
		checkError(t, stopped, inventory.KindRefused, "1 entry in accepted.jsonl")
	}

	folders, _ := filepath.Glob(filepath.Join(a.dir, "d", "split-*"))
	if len(folders) != 1 {
		t.Fatalf("there are %v", folders)
	}

	accepted, err := os.ReadFile(filepath.Join(folders[0], "accepted.jsonl"))
	a.must(err)

	if n := strings.Count(string(accepted), "\n"); n != 1 || !strings.Contains(string(accepted), "variables.patch") {
		t.Errorf("it accepted %s", accepted)
	}

	a.must(Restore(a.ctx(), Options{ConfigPath: b.file, Logger: logrus.New()}, restore.Options{
		File: filepath.Join(folders[0], "store.backup"), Verify: true, Say: t.Logf,
	}))

	checkError(t, Recover(a.ctx(), o, restore.Options{Say: t.Logf}, true), inventory.KindRefused, "went on without")

	// If the other side is lost after all, this one goes on from its export.
	b.down()
	a.must(Restore(a.ctx(), o, restore.Options{
		File: filepath.Join(folders[0], "store.backup"), Replace: true, Say: t.Logf,
	}))
	errtest.None(t, host.Settle(a.ctx()))
	a.up()

	vars, err := a.Vars(a.ctx(), client.ScopeGlobal)
	if want := "map[accepted:1 common:1]"; err != nil || fmt.Sprint(vars) != want {
		t.Errorf("the variables are %v, %v, want %s", vars, err, want)
	}
	a.down()
	b.up()

	// It joins again as any other host does.
	a.must(os.Rename(filepath.Join(a.dir, "d"), filepath.Join(a.dir, "lost")))
	_, err = a.join(b)
	a.must(err)
	a.up()
	b.eventually("the lost one is there again", func() bool { return b.etcds() == "b voter, a learner" })

	vars, err = a.Vars(a.ctx(), client.ScopeGlobal)
	if want := "map[after:1 common:1]"; err != nil || fmt.Sprint(vars) != want {
		t.Errorf("the variables are %v, %v, want %s", vars, err, want)
	}
	a.down() // before the one that votes
}
