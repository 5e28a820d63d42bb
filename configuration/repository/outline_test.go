// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory/errtest"
)

// executed returns the tasks of an outline, one line each.
func executed(o configuration.Outline) []string {
	var lines []string
	for _, p := range o.Plays {
		for _, task := range p.Executed {
			line := fmt.Sprintf("%s: %s (%s)", strings.Join(p.Hosts, ","), task.Name, task.Path)
			if task.Reads {
				line += " reads"
			}
			if task.Dynamic {
				line += " dynamic"
			}

			if task.Manager {
				line += " manager"
			}

			lines = append(lines, line)
		}
	}

	return lines
}

func TestOutline(t *testing.T) {
	t.Parallel()

	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	bundled := t.TempDir()

	errtest.None(t, os.CopyFS(bundled, fstest.MapFS{
		"base/tasks/main.yml": file("- name: bundled\n  command: x\n  check_mode: no\n"),
		"own/tasks/main.yml":  file("- name: hidden by the role of the folder\n  command: x\n  check_mode: no\n"),
	}))

	store := &Store{Dir: filepath.Join(t.TempDir(), "playbooks")}
	digest, err := store.Keep(t.Context(), fstest.MapFS{
		"site.yml": file(`
- hosts: a
  tasks:
    - name: plain
      command: x
    - name: runs
      ansible.builtin.command: x
      check_mode: false
    - shell: y
      check_mode: "{{ later }}"
      changed_when: false
    - name: checked all the same
      command: x
      check_mode: true
    - block:
        - name: in a block
          command: x
      rescue:
        - include_tasks: more.yml
      check_mode: false
    - import_tasks: {file: parts/more.yml}
      check_mode: false
    - include_tasks: "{{ which }}.yml"
    - include_role: {name: company.collection.role}
  roles: [base, {role: own, check_mode: false}, missing]
- hosts: b
  check_mode: false
  handlers:
    - name: handle
      service: {}
- import_playbook: parts/loop.yml
`),
		"more.yml":                     file("- name: more\n  command: x\n"),
		"parts/more.yml":               file("- name: part\n  command: x\n- import_tasks: more.yml\n"),
		"parts/loop.yml":               file("- hosts: c\n  tasks: &all\n    - block: *all\n    - block: *all\n"),
		"roles/own/tasks/main.yml":     file("- import_tasks: sub/deep.yml\n"),
		"roles/own/tasks/sub/deep.yml": file("- name: deep\n  command: x\n- import_tasks: other.yml\n"),
		"roles/own/tasks/other.yml":    file("- name: other\n  command: x\n"),
		"roles/own/meta/main.yml":      file("dependencies: [own]\n"),
	})
	errtest.None(t, err)

	want := []string{
		"a: runs (site.yml:6)",
		"a: shell, whose check_mode is an expression (site.yml:9) dynamic",
		"a: in a block (site.yml:16)",
		"a: more (more.yml:1)",
		"a: part (parts/more.yml:1)",
		"a: {{ which }}.yml (site.yml:23) dynamic",
		"a: the role company.collection.role (site.yml:24) dynamic",
		"a: bundled (roles/base/tasks/main.yml:1)",
		"a: deep (roles/own/tasks/sub/deep.yml:1)",
		"a: other (roles/own/tasks/other.yml:1)",
		"a: the role missing (site.yml:25) dynamic",
		"b: handle (site.yml:29)",
		"c: tasks beyond the first ones of parts/loop.yml (parts/loop.yml) dynamic",
	}

	outline := store.Outline(digest, "site.yml", bundled)
	if got := executed(outline); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if outline.Missing || !store.Outline(digest, "verify.yml", bundled).Missing {
		t.Error("the outline does not tell a missing playbook")
	}
}

// TestOutlineNamesTheUnknown: a part that only Ansible can resolve is named, and never taken
// for tasks that respect check mode.
func TestOutlineNamesTheUnknown(t *testing.T) {
	t.Parallel()

	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

	store := &Store{Dir: filepath.Join(t.TempDir(), "playbooks")}
	digest, err := store.Keep(t.Context(), fstest.MapFS{
		"site.yml": file(`
- hosts: a
  tasks:
    - include_tasks: secret.yml
    - include_tasks: missing.yml
    - include_role: {name: known, tasks_from: "{{ part }}"}
    - include_role: {name: known, tasks_from: missing}
    - own: {}
    - own: {}
    - site.tools.other: {}
    - include_role: {name: "../elsewhere"}
    - &loop {<<: *loop, command: x, check_mode: false}
    - {name: any, action: "{{ what }}"}
    - include_role: {name: known}
- import_playbook: "{{ which }}.yml"
- import_playbook: missing.yml
`),
		"secret.yml":                           file("$ANSIBLE_VAULT;1.1;AES256\n6162\n"),
		"roles/known/tasks/main.yml":           file("- inside: {}\n"),
		"roles/known/action_plugins/inside.py": file(""),
		"action_plugins/own.py":                file(""),
		"collections/ansible_collections/site/tools/plugins/action/other.py": file(""),
	})
	errtest.None(t, err)

	want := []string{
		"a: secret.yml (secret.yml:1) dynamic",
		"a: missing.yml (site.yml:5) dynamic",
		"a: the role known (site.yml:6) dynamic",
		"a: the file missing of the role known (site.yml:7) dynamic",
		"a: the action plugin own (action_plugins/own.py) dynamic",
		"a: the action plugin site.tools.other (" + collections + "/site/tools/plugins/action/other.py) dynamic",
		"a: the role ../elsewhere (site.yml:11) dynamic",
		"a: command (site.yml:12)",
		"a: any, whose module is an expression (site.yml:13) dynamic",
		"a: the action plugin inside (roles/known/action_plugins/inside.py) dynamic",
		": the playbook {{ which }}.yml (site.yml:15) dynamic",
		": the playbook missing.yml (site.yml:16) dynamic",
	}
	if got := executed(store.Outline(digest, "site.yml", t.TempDir())); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
