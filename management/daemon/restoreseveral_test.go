// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/restore"
)

// TestRestoreSeveral: a backup of three instances is restored on one of them once none is alive, and never beside
// living ones. The others join anew.
func TestRestoreSeveral(t *testing.T) {
	t.Parallel()

	key := filepath.Join(t.TempDir(), "key")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}

	a, b, c := beside(t, "a", "127.0.3.4", key), beside(t, "b", "127.0.3.5", key), beside(t, "c", "127.0.3.6", key)
	fresh := beside(t, "fresh", "127.0.3.7", key)

	a.up()
	t.Cleanup(a.down)

	alone, _ := a.backUp()
	a.must(os.Rename(alone, alone+".alone"))

	for _, s := range []*site{b, c} {
		_, err := s.join(a)
		s.must(err)
		s.up()
		t.Cleanup(s.down)
	}
	a.eventually("all vote", func() bool { return a.etcds() == "a voter, b voter, c voter" })

	path, backedUp := a.backUp()
	if len(backedUp["v/members/"+a.identity.ID]) == 0 {
		t.Fatal("the backup has no members")
	}

	a.eventually("the first knows the others at its next start", func() bool {
		m, err := etcd.ReadMember(filepath.Join(a.dir, "d", "etcd"))
		return err == nil && len(m.Endpoints) == 2
	})
	a.report("late")
	a.down()

	var said strings.Builder
	replacing := func(o *restore.Options) {
		o.Replace, o.WithoutSecrets = true, true
		o.Say = func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) }
	}

	// The data directory knows them, or the backup.
	for file, s := range map[string]*site{alone + ".alone": a, path: fresh} {
		checkError(t, s.restore(file, replacing), inventory.KindRefused, "another instance of the manager is alive",
			"127.0.3.5:", "stop clusterm on each host first")
	}
	b.down()
	checkError(t, a.restore(path, replacing), inventory.KindRefused, "is alive", "127.0.3.6:")
	c.down()
	checkError(t, a.restore(path), inventory.KindRefused, "this is one of several instances", "127.0.3.5, 127.0.3.6")

	for _, s := range []*site{a, fresh} {
		if left, err := filepath.Glob(filepath.Join(s.dir, "d", "etcd.*")); err != nil || len(left) > 0 {
			t.Errorf("a refused restore has left %v, %v", left, err)
		}
	}

	a.must(a.restore(path, replacing))

	for _, want := range []string{
		"the manager had several instances: 127.0.3.4, 127.0.3.5, 127.0.3.6\n",
		"move " + filepath.Join(a.dir, "d") + " away",
	} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("%q is missing in %q", want, said.String())
		}
	}

	a.up()

	if got := a.etcds(); got != "a alone" {
		t.Errorf("after the restore: %s", got)
	}
	if _, err := a.Client.Node(a.ctx(), "late-1"); inventory.KindOf(err) != inventory.KindNotFound {
		t.Errorf("a node of later: %v", err)
	}

	// The others are of the former life, and come back as new ones.
	b.must(errors.Join(os.RemoveAll(filepath.Join(b.dir, "d")), os.MkdirAll(filepath.Join(b.dir, "d"), 0o700)))
	_, err := b.join(a)
	b.must(err)
	b.up()
	a.eventually("the second has joined anew", func() bool { return b.etcds() == "a voter, b learner" })

	// Whoever has lost its data is no new one under the same identity.
	id := b.identity.ID
	b.down()
	b.must(os.RemoveAll(filepath.Join(b.dir, "d", "etcd", "data")))
	_, err = b.join(a)
	checkError(t, err, inventory.KindRefused, "has started already", "clusterctl instance remove "+id)
}
