// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	bundled "github.com/contiv/cluster/ansible"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/step/playbook/program"
)

// listingPlaybook is an ansible-playbook that prints the file PLAYBOOK.list for
// --list-hosts.
const listingPlaybook = `#!/bin/sh
for playbook; do :; done
case "$*" in
*--version*) echo "ansible-playbook [core 2.16.3]" ;;
*--list-hosts*) cat "$playbook.list" ;;
*) if grep -q broken "$playbook"; then echo "ERROR! a line of $playbook is broken" >&2; exit 4; fi ;;
esac
`

// folderOf writes files below a new folder.
func folderOf(t *testing.T, files map[string]string) string {
	t.Helper()

	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		errtest.None(t, os.MkdirAll(filepath.Dir(path), 0o755))
		errtest.None(t, os.WriteFile(path, []byte(text), 0o644))
	}

	return dir
}

// problems lists the problems of a report, one per line.
func problems(r program.Report) string {
	var lines []string
	for _, p := range r.Problems {
		lines = append(lines, fmt.Sprintf("%s: %s: %s", p.Severity, p.File, p.Message))
	}

	return strings.Join(lines, "\n")
}

// TestCheckPlaybooks checks folders with an ansible-playbook of the test.
func TestCheckPlaybooks(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	config := filepath.Join(dir, "clusterm.yaml")
	text := "groups: [{name: web}, {name: db}]\nansible_playbook: " + dir + "/ansible-playbook\n"

	errtest.None(t, os.WriteFile(config, []byte(text), 0o600))

	errtest.None(t, writeProgram(dir+"/ansible-playbook", listingPlaybook))

	list := func(name, pattern string, hosts ...string) string {
		return fmt.Sprintf("  play #1 (%s): %s\tTAGS: []\n    pattern: ['%s']\n    hosts (%d):\n      %s\n",
			pattern, name, pattern, len(hosts), strings.Join(hosts, "\n      "))
	}

	folder := folderOf(t, map[string]string{
		"site.yml":                 "# broken",
		"ansible.cfg":              "",
		"files/run":                "#!/bin/sh\n",
		"library/module.py":        "#!/usr/bin/python\n",
		"rolling-upgrade.yml":      "",
		"verify.yml":               "",
		"rolling-upgrade.yml.list": list("Here", "localhost", "localhost") + list("Help", "job_helpers", "the-helper"),
		"verify.yml.list":          list("All", "all", "a-host-of-web", "a-host-of-db", "a-host-of-cluster-node"),
	})
	errtest.None(t, os.Chmod(filepath.Join(folder, "verify.yml"), 0o666))
	r, err := CheckPlaybooks(t.Context(), config, folder)
	errtest.None(t, err)

	// The tests may run as another account, which gets a warning.
	severity := program.SeverityWarning
	if os.Geteuid() == 0 {
		severity = program.SeverityError
	}

	want := `error: site.yml: the playbook site.yml does not parse:
ERROR! a line of site.yml is broken
error: cleanup.yml: it is missing; the manager runs it for decommission, clear, update, and after failures
warning: rolling-upgrade.yml: the play "Here" (hosts: localhost) acts on no host of a job
` + severity + ": : the playbook folder cannot be used: others than its owner can write " + folder +
		`/verify.yml (mode 0666)
warning: ansible.cfg: the manager does not use it
warning: files/run: it is a script without the permission to execute it`
	if got := problems(r); got != want || r.OK {
		t.Errorf("ok %t, with the problems\n%s\nwant\n%s", r.OK, got, want)
	}

	if help := r.Playbooks[2].Plays[1]; !help.Helpers || len(help.Groups) != 0 {
		t.Errorf("the play on the helper is %+v", help)
	}

	if all := r.Playbooks[3].Plays[0]; all.Helpers || !slices.Equal(all.Groups, []string{"web", "db", "cluster-node"}) {
		t.Errorf("the play on all is %+v", all)
	}

	// Warnings alone are no failure.
	folder = folderOf(t, map[string]string{
		"site.yml":         "",
		"site.yml.list":    list("Web", "web", "a-host-of-web"),
		"cleanup.yml":      "",
		"cleanup.yml.list": list("All", "all", "a-host-of-web", "a-host-of-db", "a-host-of-cluster-node"),
	})

	r, err = CheckPlaybooks(t.Context(), config, folder)
	errtest.None(t, err)

	want = `warning: rolling-upgrade.yml: it is missing; without it, the manager refuses maintenance
warning: site.yml: no play acts on the group db
warning: site.yml: no play acts on the group cluster-node`
	if got := problems(r); got != want || !r.OK {
		t.Errorf("ok %t, with the problems\n%s\nwant\n%s", r.OK, got, want)
	}

	if got := fmt.Sprint(
		r.Groups,
	); got != "[{web [site.yml cleanup.yml]} {db [cleanup.yml]} {cluster-node [cleanup.yml]}]" {
		t.Errorf("the groups are %s", got)
	}

	// Variables that need a password: an error without one, a warning if this account
	// cannot read it.
	for _, name := range []string{"group_vars/all.yml", "host_vars/web-1.yml"} {
		path := filepath.Join(folder, name)
		errtest.None(t, os.MkdirAll(filepath.Dir(path), 0o755))
		errtest.None(t, os.WriteFile(path, []byte("$ANSIBLE_VAULT;1.1;AES256\n"), 0o600))
	}

	r, err = CheckPlaybooks(t.Context(), config, folder)
	errtest.None(t, err)

	encrypted := "error: : variables in the playbook folder are encrypted with Ansible Vault, " +
		"and no password is configured: group_vars/all.yml, host_vars/web-1.yml"
	if got := problems(r); got != want+"\n"+encrypted || r.OK {
		t.Errorf("ok %t, with the problems\n%s", r.OK, got)
	}

	errtest.None(t, os.WriteFile(config, []byte(text+"vault_ids: [/nonexistent/password]\n"), 0o600))

	r, err = CheckPlaybooks(t.Context(), config, folder)
	errtest.None(t, err)

	unread := "warning: : a password of vault_ids cannot be read: open /nonexistent/password: no such file or directory"
	if got := problems(r); got != unread+"\n"+want || !r.OK {
		t.Errorf("ok %t, with the problems\n%s", r.OK, got)
	}

	// A folder that the manager could not copy.
	errtest.None(t, os.Symlink("/etc", filepath.Join(folder, "out")))

	_, err = CheckPlaybooks(t.Context(), config, folder)
	checkError(t, err, inventory.KindInvalid, "out")

	_, err = CheckPlaybooks(t.Context(), config, folder+"/none")
	checkError(t, err, inventory.KindInvalid, "cannot be read")
}

// TestExportPlaybooks: an export has all files, and replaces none without force.
func TestExportPlaybooks(t *testing.T) {
	t.Parallel()

	dir := filepath.Join(t.TempDir(), "new", "playbooks")

	files, err := program.Export(dir, false)
	if err != nil || files < 10 {
		t.Fatalf("%d files, %v", files, err)
	}

	same := func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}

		want, err := fs.ReadFile(bundled.FS(), path)
		if err != nil {
			return err
		}
		if got, err := os.ReadFile(filepath.Join(dir, path)); err != nil || string(got) != string(want) {
			t.Errorf("%s differs: %v", path, err)
		}

		return nil
	}
	if err := fs.WalkDir(bundled.FS(), ".", same); err != nil {
		t.Error(err)
	}

	site, own := filepath.Join(dir, "site.yml"), filepath.Join(dir, "own.yml")
	for _, path := range []string{site, own} {
		errtest.None(t, os.WriteFile(path, []byte("mine"), 0o600))
	}

	_, err = program.Export(dir, false)
	checkError(t, err, inventory.KindRefused, "is not empty; nothing was written", "--force")

	if text, err := os.ReadFile(site); err != nil || string(text) != "mine" {
		t.Errorf("it was written all the same: %v", err)
	}

	if _, err := program.Export(dir, true); err != nil {
		t.Error(err)
	}

	if err := fs.WalkDir(bundled.FS(), ".", same); err != nil {
		t.Error(err)
	}

	if text, err := os.ReadFile(own); err != nil || string(text) != "mine" {
		t.Errorf("force removed another file: %v", err)
	}

	_, err = program.Export(site, false)
	checkError(t, err, inventory.KindInvalid, "cannot be read")
}

// TestLivePlaybooks checks the bundled playbooks and the minimal folder of the
// documentation with the real Ansible, and runs the latter on this host.
func TestLivePlaybooks(t *testing.T) {
	if os.Getenv("CLUSTERM_LAB") != "1" {
		t.Skip("runs the real Ansible; set CLUSTERM_LAB=1, as make system does")
	}

	t.Parallel()

	config := filepath.Join(t.TempDir(), "clusterm.yaml")
	errtest.None(t, os.WriteFile(config, nil, 0o600))

	exported := filepath.Join(t.TempDir(), "exported")
	if _, err := program.Export(exported, false); err != nil {
		t.Fatal(err)
	}
	r, err := CheckPlaybooks(t.Context(), config, exported)
	if err != nil || !r.OK || len(r.Problems) > 0 || len(r.Playbooks[0].Plays) < 3 {
		t.Errorf("the bundled playbooks: %+v, %v", r, err)
	}

	document, err := os.ReadFile(filepath.Join(root, "docs/playbooks.md"))
	errtest.None(t, err)

	block := regexp.MustCompile("(?s)```yaml\n# ([a-z-]+\\.yml)\n(.*?)```")
	files := map[string]string{}

	for _, m := range block.FindAllStringSubmatch(string(document), -1) {
		files[m[1]] = m[2]
	}

	folder := folderOf(t, files)

	r, err = CheckPlaybooks(t.Context(), config, folder)

	const missing = "warning: rolling-upgrade.yml: it is missing; without it, the manager refuses maintenance"
	if err != nil || !r.OK || problems(r) != missing {
		t.Fatalf("the minimal folder of the document: %+v, %v", r, err)
	}

	note := filepath.Join(t.TempDir(), "note")
	inv := filepath.Join(t.TempDir(), "inventory.yml")
	host := "all: {children: {service-worker: {hosts: {web-1: {ansible_connection: local, node_name: web-1, " +
		"node_group: service-worker, note_file: " + note + "}}}}}\n"

	errtest.None(t, os.WriteFile(inv, []byte(host), 0o600))

	run := func(playbook, recap string) {
		t.Helper()

		cmd := exec.CommandContext(t.Context(), "ansible-playbook", "-i", inv, filepath.Join(folder, playbook))
		cmd.Env = append(os.Environ(), "ANSIBLE_ROLES_PATH="+filepath.Join(exported, bundled.RolesDir),
			"ANSIBLE_LOCAL_TEMP="+t.TempDir(), "LC_ALL=C.UTF-8")

		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), recap) {
			t.Errorf("%s: %v\n%s", playbook, err, out)
		}
	}
	run("site.yml", "changed=1 ")
	run("site.yml", "changed=0 ")

	if text, err := os.ReadFile(note); err != nil || string(text) != "web-1 is in service-worker\n" {
		t.Errorf("%q, %v", text, err)
	}

	run("cleanup.yml", "changed=1 ")
	run("cleanup.yml", "changed=0 ")
}

// TestCheckPlaybooksOfPersons: what a person at a terminal would notice is a warning.
func TestCheckPlaybooksOfPersons(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	config := filepath.Join(dir, "clusterm.yaml")

	errtest.None(t, os.WriteFile(config, []byte("ansible_playbook: "+dir+"/ansible-playbook\n"), 0o600))

	errtest.None(t, writeProgram(dir+"/ansible-playbook", listingPlaybook))

	folder := folderOf(t, map[string]string{
		"site.yml": "- hosts: all\n  vars_prompt: [{name: release}, {name: sure, default: x}]\n" +
			"  tasks:\n    - debug: {msg: \"{{ lookup('password', 'credentials/db') }}\"}\n",
		"cleanup.yaml": "",
		"site.yml.list": "  play #1 (all): all\tTAGS: []\n    pattern: ['all']\n    hosts (3):\n" +
			"      a-host-of-service-master\n      a-host-of-service-worker\n      a-host-of-cluster-node\n",
	})

	r, err := CheckPlaybooks(t.Context(), config, folder)
	errtest.None(t, err)

	const want = `warning: site.yml: it asks for release (vars_prompt), and nobody answers in a job
warning: site.yml: the lookup password keeps its file in the manager's copy of the folder (site.yml:4), ` +
		`so it makes another password after each edit of the folder
error: cleanup.yml: it is missing; the manager runs it for decommission, clear, update, and after failures
warning: rolling-upgrade.yml: it is missing; without it, the manager refuses maintenance`
	if got := problems(r); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}

	if got := r.Problems[2].Remedy; got != "rename cleanup.yaml" {
		t.Errorf("the remedy is %q", got)
	}
}

// TestCheckPlaybooksAtRunTime: a group that was set at run time is one of the groups of the check.
func TestCheckPlaybooksAtRunTime(t *testing.T) {
	t.Parallel()

	s := begin(t)

	now, err := s.Client.Config(s.ctx())
	s.must(err)

	groups, _ := now["groups"].Value.([]any)
	_, err = s.Client.PatchConfig(s.ctx(), map[string]any{
		"groups": append(slices.Clone(groups), map[string]any{"name": "cache"}),
	})
	s.must(err)

	has := func(r program.Report) bool {
		return slices.ContainsFunc(r.Groups, func(g program.CheckedGroup) bool { return g.Name == "cache" })
	}

	r, err := CheckPlaybooks(s.ctx(), s.file, filepath.Join(s.dir, "playbooks"))
	if err != nil || !has(r) {
		t.Errorf("while the manager runs: %+v, %v", r, err)
	}

	s.down()

	// Without a manager, the groups are those of the file.
	r, err = CheckPlaybooks(s.ctx(), s.file, filepath.Join(s.dir, "playbooks"))
	if err != nil || has(r) {
		t.Errorf("without a manager: %+v, %v", r, err)
	}
}
