// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/contiv/cluster/inventory/errtest"
)

// TestOutlineLookups: a lookup that acts on the host of the manager is named, wherever an
// expression may stand, and only for the play that may evaluate it.
func TestOutlineLookups(t *testing.T) {
	t.Parallel()

	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

	store := &Store{Dir: filepath.Join(t.TempDir(), "playbooks")}
	digest, err := store.Keep(t.Context(), fstest.MapFS{
		"site.yml": file(`
- hosts: a
  vars:
    &shared v: &piped "{{ lookup('pipe', 'date') }}"
  vars_files: [more.yml, "{{ which }}.yml", /etc/passwd, ../../x]
  tasks:
    # lookup('pipe', 'a comment')
    - command: echo {{ query( "ansible.builtin.lines", 'ls') }}
    - debug: {msg: "{{ lookup('file', 'pipe') }}, prelookup('pipe')"}
    - include_tasks: tasks/more.yml
    - command: x
      with_pipe: date
  roles: [own]
- hosts: b
  tasks:
    - command: echo {{ v }}
- hosts: c
  vars: {w: *piped}
`),
		"more.yml":       file("p: \"{{ q('password', '/x') }}\"\n# lookup('pipe')\n"),
		"tasks/more.yml": file("- command: x\n  when: lookup(\n    'pipe', 'true')\n"),
		"roles/own/tasks/main.yml": file("- template: {src: t.j2, dest: /x}\n" +
			"  with_ansible.builtin.lines: ls\n"),
		"roles/own/defaults/main.yml": file("a: 1\nb: \"{{ lookup('ansible.builtin.pipe', 'x') }}\"\n"),
		"roles/own/templates/t.j2":    file("x\n# {{ lookup('pipe', 'y') }}\n"),
		"roles/other/vars/main.yml":   file("a: \"{{ lookup('pipe', 'unused') }}\"\n"),
	})
	errtest.None(t, err)

	want := []string{
		"a: the lookup lines (roles/own/tasks/main.yml:2) manager",
		"a: the lookup lines (site.yml:8) manager",
		"a: the lookup password (more.yml:1) manager",
		"a: the lookup pipe (roles/own/defaults/main.yml:2) manager",
		"a: the lookup pipe (roles/own/templates/t.j2:2) manager",
		"a: the lookup pipe (site.yml:11) manager",
		"a: the lookup pipe (site.yml:4) manager",
		"a: the lookup pipe (tasks/more.yml:2) manager",
		"c: the lookup pipe (site.yml:4) manager",
	}

	got := executed(store.Outline(digest, "site.yml", t.TempDir()))
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestOutlineHugeTemplate: a file too large to be searched is named, too.
func TestOutlineHugeTemplate(t *testing.T) {
	t.Parallel()

	store := &Store{Dir: filepath.Join(t.TempDir(), "playbooks")}
	digest, err := store.Keep(t.Context(), fstest.MapFS{
		"site.yml":       {Data: []byte("- hosts: a\n  tasks: [{command: x}]\n")},
		"templates/huge": {Data: bytes.Repeat([]byte("x\n"), maxLookupBytes)},
	})
	errtest.None(t, err)

	want := []string{"a: lookups in the variables and templates of site.yml (site.yml) dynamic"}

	got := executed(store.Outline(digest, "site.yml", t.TempDir()))
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestOutlineLoses: a generated password in the folder is lost with the next edit of it.
func TestOutlineLoses(t *testing.T) {
	t.Parallel()

	for argument, want := range map[string]bool{
		"'credentials/db length=16'":          true,
		" '../credentials/db'":                true,
		"playbook_dir ~ '/credentials/db'":    true,
		"role_path + '/x'":                    true,
		"'/etc/clusterm/credentials/db'":      false,
		"'~/credentials/db'":                  false,
		"'/dev/null length=8'":                false,
		"password_file":                       false,
		"'{{ playbook_dir }}/credentials/db'": true,
		"'{{ credentials }}/db'":              false,
	} {
		store := &Store{Dir: filepath.Join(t.TempDir(), "playbooks")}
		digest, err := store.Keep(t.Context(), fstest.MapFS{"site.yml": {Data: []byte(
			"- hosts: a\n  vars:\n    secret: >-\n      {{ lookup('password'," + argument + ") }}\n")}})
		errtest.None(t, err)

		found := store.Outline(digest, "site.yml", t.TempDir()).Plays[0].Executed
		if len(found) != 1 || found[0].Loses != want {
			t.Errorf("%s: %+v, want %t", argument, found, want)
		}
	}

	// The other lookups keep nothing.
	store := &Store{Dir: filepath.Join(t.TempDir(), "playbooks")}
	digest, err := store.Keep(t.Context(), fstest.MapFS{"site.yml": {Data: []byte(
		"- hosts: a\n  vars: {x: \"{{ lookup('pipe', 'date') }}\"}\n")}})
	errtest.None(t, err)

	if found := store.Outline(digest, "site.yml", t.TempDir()).Plays[0].Executed; len(found) != 1 || found[0].Loses {
		t.Errorf("%+v", found)
	}
}
