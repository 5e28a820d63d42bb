// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/configuration/repository"
	"github.com/contiv/cluster/inventory/errtest"
)

// TestTakenKeyLive: a host without a recorded key that shows the key of another node is
// refused before anything is run there, and the message has both names.
func TestTakenKeyLive(t *testing.T) {
	t.Parallel()
	needAnsible(t)

	s, p := startSSHD(t), &Prober{Dir: t.TempDir()}

	with := func(taken string) configuration.Host {
		h := s.host("new-1", liveAddrs[0])
		h.Taken = map[string]string{taken: "web-1", otherKey(t): "web-2"}
		return h
	}

	recorded := with(s.hostKey)
	recorded.HostKeys = []string{s.hostKey}

	for i, r := range p.Probe(t.Context(), []configuration.Host{with(s.hostKey), with(otherKey(t)), recorded}) {
		if r.OK() != (i > 0) {
			t.Errorf("probe of host %d: %+v", i, r)
		}

		if i == 0 && (!strings.Contains(r.Login, "new-1") || !strings.Contains(r.Login, "web-1") ||
			strings.Contains(r.Login, "web-2") || !configuration.AboutHostKey(r.Login)) {
			t.Errorf("message: %s", r.Login)
		}
	}

	// A scan shows the key nevertheless: an admin wants to see it.
	if keys, err := p.HostKeys(t.Context(), with(s.hostKey)); err != nil || len(keys) != 1 {
		t.Errorf("scan: %v, %v", keys, err)
	}

	base := t.TempDir()
	store := &repository.Store{Dir: filepath.Join(base, "playbooks")}

	digest, err := store.Keep(t.Context(), fstest.MapFS{"site.yml": {
		Data: []byte("- hosts: all\n  gather_facts: false\n  tasks:\n    - raw: 'touch " + base + "/touched'\n"),
	}})
	errtest.None(t, err)

	run := start(t, Spec{
		ID: "taken", Dir: filepath.Join(base, "run"), Playbooks: store.Path(digest), Playbook: "site.yml",
		Hosts: []configuration.Host{with(s.hostKey)}, Deadline: time.Now().Add(time.Hour),
	})

	exit, err := run.Wait(within(t, patience))
	if output := read(t, run.Output()); err != nil || exit.OK() || !strings.Contains(output, "revoked by file") {
		t.Errorf("%+v, %v:\n%s", exit, err, output)
	}

	if _, err := os.Stat(filepath.Join(base, "touched")); err == nil {
		t.Error("a task was run on the host of another node")
	}
}

// TestJumpKeyLive: the key of a jump host is recorded in the file of the manager, and
// checked from then on. The account's own known_hosts is not touched.
func TestJumpKeyLive(t *testing.T) {
	t.Parallel()
	needAnsible(t)

	s, file := startSSHD(t), filepath.Join(t.TempDir(), "known_hosts")
	p := &Prober{Dir: t.TempDir(), JumpKeys: file}

	h := s.host("web-1", liveAddrs[0])
	h.Connection.Jump = fmt.Sprintf("%s@%s:%d", s.user, liveAddrs[1], s.port)

	// of the account, which has no need for HOME
	me, err := user.Current()
	errtest.None(t, err)
	own := filepath.Join(me.HomeDir, ".ssh", "known_hosts")
	before, _ := os.ReadFile(own)

	if r := p.Probe(t.Context(), []configuration.Host{h})[0]; !r.OK() {
		t.Fatalf("%+v", r)
	}

	if after, _ := os.ReadFile(own); string(after) != string(before) {
		t.Errorf("%s was changed: %s", own, after)
	}

	entry := fmt.Sprintf("[%s]:%d %s\n", liveAddrs[1], s.port, s.hostKey)
	if got := read(t, file); got != entry {
		t.Errorf("recorded %q, want %q", got, entry)
	}
	changed := strings.Replace(entry, s.hostKey, otherKey(t), 1)
	errtest.None(t, os.WriteFile(file, []byte(changed), 0o600))

	r := p.Probe(t.Context(), []configuration.Host{h})[0]
	if r.OK() || !configuration.AboutJumpKey(r.Login) || !strings.Contains(r.Login, file) {
		t.Errorf("another key: %+v", r)
	}
}
