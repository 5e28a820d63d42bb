// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/configuration/repository"
	"github.com/contiv/cluster/inventory"
)

func TestVaultSettings(t *testing.T) {
	s := Spec{Dir: "/d", VaultIDs: []string{"/etc/vault", "prod@/etc/vault-prod"}}
	expectContains(t, "ansible.cfg", string(s.config()), "vault_identity_list = /etc/vault,prod@/etc/vault-prod\n")

	for id, good := range map[string]bool{
		"/etc/vault": true, "prod@/etc/v_1": true, "": false, "vault": false, "prod@vault": false, "/a,/b": false,
		"/a b": false, "a@b@/c": false, "/a/../b": false, "/a\nx = y": false, "@/a": false,
	} {
		if err := configuration.CheckVaultID(id); (err == nil) != good {
			t.Errorf("%q: %v", id, err)
		}
	}
}

// encrypt encrypts text with the real ansible-vault.
func encrypt(t *testing.T, passwordFile, text string) []byte {
	t.Helper()

	cmd := exec.CommandContext(t.Context(), "ansible-vault", "encrypt", "--vault-id", passwordFile, "--output", "-")
	cmd.Stdin = strings.NewReader(text)

	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}

	return out
}

// TestLiveVault: encrypted variables and files of the folder work with a password
// file and with a script, also in the syntax check. Without a password, Ansible's
// message is the error.
func TestLiveVault(t *testing.T) {
	t.Parallel()
	needAnsible(t)

	base := t.TempDir()

	plain, script := filepath.Join(base, "password"), filepath.Join(base, "script")
	if err := os.WriteFile(plain, []byte("open sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	if err := writeProgram(script, "#!/bin/sh\necho other secret\n"); err != nil {
		t.Fatal(err)
	}

	store := &repository.Store{Dir: filepath.Join(base, "playbooks")}

	digest, err := store.Keep(t.Context(), fstest.MapFS{
		"site.yml": {Data: []byte(`
- hosts: job_targets
  connection: local
  gather_facts: false
  vars_files: [secrets.yml]
  tasks:
    - ansible.builtin.debug: {msg: "{{ db_user }} {{ lookup('file', 'motd') }}"}
`), Mode: 0o644},
		"secrets.yml": {Data: encrypt(t, plain, "db_user: alice\n"), Mode: 0o644},
		"files/motd":  {Data: encrypt(t, "prod@"+script, "well met"), Mode: 0o644},
	})
	if err != nil {
		t.Fatal(err)
	}

	ids := []string{plain, "prod@" + script}
	folder := store.Path(digest)

	if err := (&SyntaxChecker{VaultIDs: ids}).Check(t.Context(), folder, "site.yml", ""); err != nil {
		t.Errorf("the syntax check with passwords: %v", err)
	}

	s := fakeSpec(t, "prints-and-fails")
	s.AnsiblePlaybook, s.Playbooks, s.VaultIDs = "", folder, ids

	run := start(t, s)
	if exit, out := wait(t, run), read(t, run.Output()); !exit.OK() || !strings.Contains(out, "alice well met") {
		t.Errorf("exit %+v:\n%s", exit, out)
	}

	if spec := read(t, filepath.Join(s.Dir, fileSpec)); strings.Contains(spec, "password") {
		t.Errorf("a password is on the command line:\n%s", spec)
	}

	s.Dir, s.VaultIDs = filepath.Join(base, "without"), nil

	run = start(t, s)
	if exit, out := wait(t, run), read(t, run.Output()); exit.OK() || !strings.Contains(out, "no vault secrets") {
		t.Errorf("exit %+v without passwords:\n%s", exit, out)
	}

	s.VaultIDs = []string{"not a path"}
	if err := Prepare(s); inventory.KindOf(err) != inventory.KindInvalid {
		t.Errorf("a bad vault id: %v", err)
	}
}
