// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/configuration/repository"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
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
	errtest.None(t, err)
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
	errtest.None(t, os.WriteFile(plain, []byte("open sesame\n"), 0o600))
	errtest.None(t, writeProgram(script, "#!/bin/sh\necho other secret\n"))

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
	errtest.None(t, err)

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
	if err := prepare(s); inventory.KindOf(err) != inventory.KindInvalid {
		t.Errorf("a bad vault id: %v", err)
	}
}

// vaultFolders are folders with the files that CheckEncrypted names, for the group web
// and the host web-1. In a file, VAULT is an encrypted mapping.
var vaultFolders = []struct {
	name  string
	files map[string]string
	want  string
}{
	{"nothing", map[string]string{"group_vars/all": "a: 1"}, ""},
	{"all", map[string]string{"group_vars/all": "VAULT"}, "group_vars/all"},
	{"an extension", map[string]string{"group_vars/all.yaml": "VAULT"}, "group_vars/all.yaml"},
	{"a folder", map[string]string{"group_vars/all/a/b.json": "VAULT", "group_vars/all/c": "a: 1"},
		"group_vars/all/a/b.json"},
	{"a group", map[string]string{"group_vars/web.yml": "VAULT"}, "group_vars/web.yml"},
	{"the group of the targets", map[string]string{"group_vars/job_targets.yml": "VAULT"},
		"group_vars/job_targets.yml"},
	{"a host", map[string]string{"host_vars/web-1/a.yml": "VAULT"}, "host_vars/web-1/a.yml"},
	{"another group", map[string]string{"group_vars/web2": "VAULT"}, ""},
	{"another host", map[string]string{"host_vars/web-2": "VAULT"}, ""},
	{"a file behind a folder", map[string]string{"group_vars/all/a": "a: 1", "group_vars/all.yml": "VAULT"}, ""},
	{"files that are not loaded", map[string]string{
		"group_vars/all/.a": "VAULT", "group_vars/all/a~": "VAULT", "group_vars/all/a.txt": "VAULT",
		"group_vars/all.txt": "VAULT",
	}, ""},
	{"a file for a task", map[string]string{"files/key": "VAULT"}, ""},
	{"a value", map[string]string{"group_vars/all": "a: !vault |\n  VALUE"}, ""},
}

// writeVaultFolder writes the files with two texts, and a playbook.
func writeVaultFolder(t *testing.T, files map[string]string, mapping, value string) (folder string) {
	t.Helper()

	folder = t.TempDir()
	value = strings.ReplaceAll(strings.TrimSpace(value), "\n", "\n  ")

	for name, text := range files {
		text = strings.NewReplacer("VAULT", mapping, "VALUE", value).Replace(text)
		path := filepath.Join(folder, name)

		errtest.None(t, os.MkdirAll(filepath.Dir(path), 0o755))

		errtest.None(t, os.WriteFile(path, []byte(text), 0o600))
	}

	return folder
}

func TestCheckEncrypted(t *testing.T) {
	const mark = "$ANSIBLE_VAULT;1.1;AES256\n3133\n"

	for _, tt := range vaultFolders {
		err := CheckEncrypted(writeVaultFolder(t, tt.files, mark, mark), []string{"web"}, []string{"web-1"})

		if tt.want == "" {
			if err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}

			continue
		}

		if inventory.KindOf(err) != inventory.KindRefused || !strings.Contains(err.Error(), ": "+tt.want+";") {
			t.Errorf("%s: %v", tt.name, err)
		}
	}

	many := map[string]string{}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		many["group_vars/all/"+name] = "VAULT"
	}

	err := CheckEncrypted(writeVaultFolder(t, many, mark, mark), nil, nil)
	if err == nil || !strings.Contains(err.Error(), "all/a, group_vars/all/b, group_vars/all/c and 2 more files") {
		t.Errorf("many files: %v", err)
	}

	// A link to a folder above ends.
	loop := writeVaultFolder(t, map[string]string{"group_vars/all/a": "a: 1"}, "", "")
	errtest.None(t, os.Symlink("..", filepath.Join(loop, "group_vars/all/loop")))
	if err := CheckEncrypted(loop, nil, nil); err != nil {
		t.Errorf("a loop: %v", err)
	}
}

// TestLiveEncrypted: the real ansible-playbook breaks off for want of a password with
// those folders that CheckEncrypted refuses, and with no other.
func TestLiveEncrypted(t *testing.T) {
	t.Parallel()
	needAnsible(t)

	password := filepath.Join(t.TempDir(), "password")
	errtest.None(t, os.WriteFile(password, []byte("open sesame\n"), 0o600))
	mapping, value := string(encrypt(t, password, "a: 1\n")), string(encrypt(t, password, "1"))

	for _, tt := range vaultFolders {
		t.Run(tt.name, func(t *testing.T) {
			files := maps.Clone(tt.files)
			files["site.yml"] = "- hosts: all\n  connection: local\n  gather_facts: false\n  tasks: [{meta: noop}]\n"

			s := fakeSpec(t, "prints-and-fails")
			s.AnsiblePlaybook, s.Playbooks = "", writeVaultFolder(t, files, mapping, value)
			s.Hosts = []configuration.Host{
				{Name: "web-1", Addr: "127.0.0.1", Group: "web", Role: configuration.RoleTarget},
			}

			run := start(t, s)
			exit, out := wait(t, run), read(t, run.Output())

			if exit.OK() != (tt.want == "") || !exit.OK() && !strings.Contains(out, vaultMissing) {
				t.Errorf("exit %+v:\n%s", exit, out)
			}
		})
	}

	// The syntax check finds the files of vars_files.
	files := map[string]string{"site.yml": "- hosts: all\n  vars_files: [a.yml]\n", "a.yml": "VAULT"}
	err := (&SyntaxChecker{}).Check(t.Context(), writeVaultFolder(t, files, mapping, value), "site.yml", "")

	if e, ok := errors.AsType[*inventory.Error](err); !ok || e.Remedy != remedyVault {
		t.Errorf("an encrypted file of vars_files: %v", err)
	}
}
