// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/backup"
	"github.com/contiv/cluster/management/client"
	store "github.com/contiv/cluster/management/etcd"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/restore"
	"github.com/contiv/cluster/management/state"
)

// backUp writes a backup to a file, and returns its path, and its records by their key.
func (s *site) backUp() (path string, records map[string]string) {
	s.t.Helper()

	var file bytes.Buffer
	s.must(s.Client.Backup(s.ctx(), &file))

	path = filepath.Join(s.dir, "backup")
	s.must(os.WriteFile(path, file.Bytes(), 0o600))

	records = map[string]string{}
	_, err := backup.Scan(&file, nil, func(part []byte) error {
		plain, err := record.Expand(part)
		s.must(err)

		return backup.Records(plain, func(key string, value []byte) error {
			records[key] = string(value)
			return nil
		})
	})
	s.must(err)

	return path, records
}

// restore restores a backup without a daemon.
func (s *site) restore(path string, tune ...func(*restore.Options)) error {
	o := restore.Options{File: path, Say: func(string, ...any) {}}
	for _, f := range tune {
		f(&o)
	}
	return Restore(s.t.Context(), s.options(), o)
}

func replacing(o *restore.Options) { o.Replace = true }

// raw returns all records of the etcd inside, without a daemon.
func (s *site) raw() map[string]string {
	s.t.Helper()

	server, err := etcd.StartServer(s.ctx(), etcd.ServerOptions{
		Dir: filepath.Join(s.dir, "d", "etcd"), NoSync: true, Log: s.options().Logger, MustExist: true,
	})
	s.must(err)

	c, err := server.Dial(s.ctx(), etcd.Keys(etcd.DefaultPrefix))
	s.must(err)

	resp, err := c.Get(s.ctx(), c.Prefix+"/", clientv3.WithPrefix())
	s.must(err)
	s.must(errors.Join(c.Close(), server.Close()))

	records := map[string]string{}
	for _, kv := range resp.Kvs {
		records[strings.TrimPrefix(string(kv.Key), c.Prefix+"/")] = string(kv.Value)
	}

	return records
}

// settled are the records that a restore writes itself, or leaves out.
var settled = regexp.MustCompile(`^(schema|v/(epoch|freeze|head|notified|jobs/2|nodes/c-1)|` +
	`x/(audit/.*|history/c-1/.*|log/2/.*|tail/2/.*|removed/.*|generations?.*|secrets))$`)

// TestRestore: a restored manager has every record of the backup, and nothing of later. What ran then is interrupted,
// and nothing acts before an operator says so.
func TestRestore(t *testing.T) {
	t.Parallel()

	s := begin(t)
	s.report("a b c")

	_, err := s.SetVars(s.ctx(), client.ScopeGlobal, api.Vars{"db_password": "hunter2", "color": "blue"})
	s.must(err)
	s.runJob(api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}, Group: inventory.GroupMaster})
	running, fifo := s.submitWaiting(api.JobRequest{
		Verb: inventory.VerbCommission, Nodes: []string{"c-1"}, Group: inventory.GroupWorker,
	})

	path, backedUp := s.backUp()
	manager := s.managerID()

	// After it: the job ends, and a node is added.
	s.release(fifo)
	s.until(running.ID, "complete", func(j api.Job) bool { return j.Status == api.Complete })
	s.report("a b c late")

	if err := s.restore(path); inventory.KindOf(err) != inventory.KindRefused ||
		!strings.Contains(err.Error(), "runs on the data directory") {
		t.Errorf("beside the daemon: %v", err)
	}

	s.down()

	before := s.raw()

	want := fmt.Sprintf("%d records already", len(before)-1)
	if err := s.restore(path); inventory.KindOf(err) != inventory.KindRefused || !strings.Contains(err.Error(), want) {
		t.Errorf("over a store: %v, want %q", err, want)
	}

	s.must(s.restore(path, func(o *restore.Options) { o.Verify = true }))

	if after := s.raw(); !maps.Equal(before, after) {
		t.Error("a refused restore, or --verify, has changed the store")
	}

	s.must(s.restore(path, replacing))

	restored := s.raw()

	for _, key := range slices.Sorted(maps.Keys(backedUp)) {
		if is, has := restored[key]; !settled.MatchString(key) && (!has || is != backedUp[key]) {
			t.Errorf("%s is %q, and was %q", key, is, backedUp[key])
		}
	}

	for key := range restored {
		if _, had := backedUp[key]; !had && !settled.MatchString(key) {
			t.Errorf("%s is not of the backup", key)
		}
	}

	kept, err := filepath.Glob(filepath.Join(s.dir, "d", "etcd.2*", "data", "member"))
	if s.must(err); len(kept) != 1 {
		t.Errorf("the former store is in %q", kept)
	}

	s.up()
	s.checkRestored(running.ID, manager)
}

// checkRestored expects a manager that waits for an operator, and a running job that is interrupted.
func (s *site) checkRestored(running, manager string) {
	s.t.Helper()

	if s.managerID() != manager {
		s.t.Errorf("the manager is %s, and was %s", s.managerID(), manager)
	}

	j, err := s.Job(s.ctx(), running)
	s.must(err)

	if j.Status != api.Errored || j.Cause != "interrupted" || !strings.Contains(j.Message, "restored") {
		s.t.Errorf("the job that ran is %s, %s: %s", j.Status, j.Cause, j.Message)
	}

	n, err := s.Node(s.ctx(), "c-1")
	s.must(err)

	if n.Status != inventory.Quarantined || n.Job != "" || !strings.Contains(n.LastError, "restored") {
		s.t.Errorf("its node is %s, held by %q: %s", n.Status, n.Job, n.LastError)
	}

	if n, err := s.Node(s.ctx(), "a-1"); err != nil || n.Status != inventory.Allocated {
		s.t.Errorf("a node in service is %s, %v", n.Status, err)
	}

	if _, err := s.Node(s.ctx(), "late-1"); inventory.KindOf(err) != inventory.KindNotFound {
		s.t.Errorf("a node of later: %v", err)
	}

	if got := s.value("db_password"); got != "hunter2" {
		s.t.Errorf("the secret is %v", got)
	}

	s.eventually("automation is paused", func() bool {
		_, all := state.AutomationOf(s.store.View()).Paused[state.AllPolicies]
		return all
	})

	if epoch := state.EpochOf(s.store.View()); epoch == 0 {
		s.t.Error("the epoch did not rise")
	}

	waiting, err := s.Client.Submit(s.ctx(), api.JobRequest{
		Verb: inventory.VerbMaintenance, Nodes: []string{"a-1"}, Group: "",
	})
	s.must(err)
	s.until(waiting.ID, "held by the freeze", func(j api.Job) bool {
		return j.Status == api.Queued && strings.Contains(j.WaitReason, "restored")
	})

	_, err = s.LiftFreeze(s.ctx(), "compared")
	s.must(err)
	s.until(waiting.ID, "complete", func(j api.Job) bool { return j.Status == api.Complete })
}

// TestRestoreRefusals: what cannot be restored changes nothing.
func TestRestoreRefusals(t *testing.T) {
	t.Parallel()

	s := begin(t)
	s.report("a")

	_, err := s.SetVars(s.ctx(), client.ScopeGlobal, api.Vars{"db_password": "hunter2"})
	s.must(err)

	path, _ := s.backUp()
	s.down()

	before := s.raw()
	file, err := os.ReadFile(path)
	s.must(err)

	damaged := filepath.Join(s.dir, "damaged")
	refuse := func(name string, content []byte, says string) {
		t.Helper()
		s.must(os.WriteFile(damaged, content, 0o600))

		if err := s.restore(damaged, replacing); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", name, err, says)
		}
	}

	for _, end := range []int{0, 5, 100, len(file) / 3, len(file) / 2, len(file) - 40, len(file) - 1} {
		refuse(fmt.Sprintf("the first %d bytes", end), file[:end], "incomplete")
	}

	flipped := bytes.Clone(file)
	flipped[len(file)/2] ^= 4
	refuse("a flipped bit", flipped, "damaged")

	change := func(is, becomes string) []byte {
		if !bytes.Contains(file, []byte(is)) {
			t.Fatalf("the backup has no %s", is)
		}
		return bytes.Replace(file, []byte(is), []byte(becomes), 1)
	}
	refuse("a newer format", change("clusterm-backup 1\n", "clusterm-backup 2\n"), `version "2" of the format`)
	refuse("newer records", change(`"schema":"3"`, `"schema":"9"`), "have version")
	refuse("another manager", change(`"manager":"`, `"manager":"ff`), "belongs to the manager")
	refuse("another key", change(`"secrets_key":"`, `"secrets_key":"ff`), "need the key")

	if after := s.raw(); !maps.Equal(before, after) {
		t.Error("a refused restore has changed the store")
	}

	s.up()
}

// TestInterruptedRestore: wherever a restore ended, no daemon starts on half a store, and a repetition makes it whole.
func TestInterruptedRestore(t *testing.T) {
	t.Parallel()

	s := begin(t)
	s.report("a b")

	path, _ := s.backUp()
	s.down()

	refused := func(when string) {
		t.Helper()

		err := s.try(patience)
		if inventory.KindOf(err) != inventory.KindRefused || !strings.Contains(err.Error(), "clusterm restore FILE") {
			t.Errorf("%s the daemon starts with %v", when, err)
			s.down()
		}
	}

	// Before the new store is whole, and between the two renamings.
	half := filepath.Join(s.dir, "d", "etcd.restoring")
	s.must(os.MkdirAll(filepath.Join(half, "data", "member"), 0o700))
	refused("with a half filled store beside")

	s.must(os.Rename(filepath.Join(s.dir, "d", "etcd"), filepath.Join(s.dir, "d", "etcd.aside")))
	refused("without a store")

	s.must(s.restore(path))
	s.up()

	nodes, err := s.Client.Nodes(s.ctx(), client.NodeFilter{})
	if s.must(err); len(nodes.Items) != 2 {
		t.Errorf("%d nodes", len(nodes.Items))
	}
}

// TestRestoreExisting: the same below the prefix of an existing etcd, where the records are replaced in place.
func TestRestoreExisting(t *testing.T) {
	t.Parallel()

	sites, _ := instances(t, "one")
	s := sites[0]
	s.up()
	t.Cleanup(s.down)
	s.report("a b")

	path, _ := s.backUp()
	s.report("a b late")

	if err := s.restore(path, replacing); inventory.KindOf(err) != inventory.KindRefused {
		t.Errorf("beside the daemon: %v", err)
	}

	endpoint := s.etcd.Endpoints()[0]

	s.down()

	if err := s.restore(path); inventory.KindOf(err) != inventory.KindRefused ||
		!strings.Contains(err.Error(), "records already") {
		t.Errorf("over a store: %v", err)
	}

	// It ends in the middle: the connection breaks while the records are written.
	direct, err := etcd.DialToRestore(s.ctx(), etcd.Existing{Endpoints: []string{endpoint}, Prefix: etcd.DefaultPrefix},
		s.options().Logger)
	s.must(err)

	file, err := os.ReadFile(path)
	s.must(err)
	s.must(store.BeginRestore(s.ctx(), direct, state.Epoch{Number: 7}))

	broken := io.MultiReader(bytes.NewReader(file[:len(file)-100]), iotest.ErrReader(errors.New("broken")))
	if err := store.RestoreRecords(s.ctx(), direct, broken); err == nil {
		t.Error("a restore of half a file succeeds")
	}

	s.must(direct.Close())

	if err := s.try(patience); inventory.KindOf(err) != inventory.KindRefused ||
		!strings.Contains(err.Error(), "clusterm restore FILE") {
		t.Errorf("after half a restore the daemon starts with %v", err)
	}

	s.must(s.restore(path)) // it is known that the rest is of no use
	s.up()

	if _, err := s.Client.Node(s.ctx(), "late-1"); inventory.KindOf(err) != inventory.KindNotFound {
		t.Errorf("a node of later: %v", err)
	}

	if _, err := s.Client.Node(s.ctx(), "b-1"); err != nil {
		t.Error(err)
	}

	if epoch := state.EpochOf(s.store.View()); epoch <= 7 {
		t.Errorf("the epoch is %d", epoch)
	}
}
