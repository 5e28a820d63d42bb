// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"cmp"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
)

// TestLiveCheckVars: variables with which a run would break off before its first task
// are an error with the file, and all others are none.
func TestLiveCheckVars(t *testing.T) {
	t.Parallel()
	needAnsible(t)

	dir := t.TempDir()
	password, other := filepath.Join(dir, "password"), filepath.Join(dir, "other")

	for path, text := range map[string]string{password: "open sesame\n", other: "something else\n"} {
		errtest.None(t, os.WriteFile(path, []byte(text), 0o600))
	}

	mapping, value := string(encrypt(t, password, "a: 1\n")), string(encrypt(t, password, "1"))

	for _, tt := range []struct {
		name  string
		files map[string]string
		ids   []string
		want  []string // nil: accepted
		kind  inventory.Kind
	}{
		{name: "none", files: map[string]string{"site.yml": "[]"}},
		{name: "fine", files: map[string]string{
			"group_vars/all": "", "group_vars/web.yml": "a: {b: [1, '{{ c }}']}", "host_vars/web-1.json": `{"a": 1}`,
			"group_vars/job_targets.yml": "ansible_connection: ssh\nansible_host: 192.0.2.1",
		}},
		{
			name: "no YAML", files: map[string]string{"group_vars/web.yml": "a: b\n c: d\n"},
			want: []string{"'group_vars/web.yml': line 2", "correct it"},
		},
		{
			name:  "a list",
			files: map[string]string{"group_vars/web.yml": "a: 1", "group_vars/all/x": "- the secret\n"},
			want:  []string{"no names of variables: group_vars/all/x, group_vars/web.yml"},
		},
		{
			name: "a host", files: map[string]string{"host_vars/web-1/a.yml": "a: [\n"},
			want: []string{"host_vars/web-1/a.yml"},
		},
		{name: "another host", files: map[string]string{"host_vars/web-2.yml": "a: [\n"}},
		{name: "another group", files: map[string]string{"group_vars/db.yml": "a: [\n"}},
		{name: "another file", files: map[string]string{"group_vars/README.md": "a: [\n"}},
		{name: "the password", files: map[string]string{"group_vars/web.yml": "VAULT"}, ids: []string{password}},
		{
			name: "a wrong password", files: map[string]string{"group_vars/web.yml": "VAULT"}, ids: []string{other},
			want: []string{"Decryption failed", "group_vars/web.yml", "correct the passwords of vault_ids"},
			kind: inventory.KindRefused,
		},
		{
			name: "a value", files: map[string]string{"group_vars/web.yml": "a: !vault |\n  VALUE"},
			ids: []string{password},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			folder := writeVaultFolder(t, tt.files, mapping, value)
			c := &SyntaxChecker{VaultIDs: tt.ids, TempDir: t.TempDir()}
			err := c.CheckVars(t.Context(), folder, []string{"web"}, []string{"web-1", "web-3"})

			if tt.want != nil {
				tt.kind = cmp.Or(tt.kind, inventory.KindInvalid)
			}

			if inventory.KindOf(err) != tt.kind {
				t.Fatalf("%v is %q, want %q", err, inventory.KindOf(err), tt.kind)
			}

			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in: %v", want, err)
				}
			}

			if err != nil && (strings.Contains(err.Error(), folder) || strings.Contains(err.Error(), "the secret")) {
				t.Errorf("the error shows the path of the copy or the content: %v", err)
			}

			if left, err := os.ReadDir(c.TempDir); err != nil || len(left) > 0 {
				t.Errorf("left %v, %v", left, err)
			}
		})
	}
}

// TestCheckVarsRuns: ansible-playbook runs once for the same files, again after a failure,
// and never for a folder without variables.
func TestCheckVarsRuns(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	program := filepath.Join(dir, "ansible-playbook")

	script := "#!/bin/sh\necho run >>" + dir + "/runs\n" +
		"! [ -e " + dir + "/fails ] || { echo 'ERROR! no' >&2; exit 4; }\n"
	errtest.None(t, writeProgram(program, script))

	c := &SyntaxChecker{AnsiblePlaybook: program, TempDir: t.TempDir()}
	folder := writeVaultFolder(t, map[string]string{"group_vars/all": "a: 1", "host_vars/b-1": "a: 1"}, "", "")
	empty := writeVaultFolder(t, map[string]string{"site.yml": "[]"}, "", "")

	check := func(folder string, fails bool, runs int, hosts ...string) {
		t.Helper()

		if err := c.CheckVars(t.Context(), folder, nil, hosts); (err != nil) != fails {
			t.Errorf("%v", err)
		}

		b, _ := os.ReadFile(dir + "/runs")
		if got := strings.Count(string(b), "run"); got != runs {
			t.Errorf("ran %d times, want %d", got, runs)
		}
	}

	check(empty, false, 0, "a-1")

	errtest.None(t, os.WriteFile(dir+"/fails", nil, 0o600))

	check(folder, true, 1, "a-1")

	errtest.None(t, os.Remove(dir+"/fails"))

	check(folder, false, 2, "a-1")
	check(folder, false, 2, "a-1", "a-2")
	check(folder, false, 3, "a-1", "b-1")
	check(folder, false, 3, "b-1")
}

// TestFolderVars: the last file by name sets a variable; what cannot be read sets none.
func TestFolderVars(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{
		"web-1/a.yml": "color: blue\nn: 5\n", "web-1/b.json": `{"color": "green"}`,
		"web-1/c.yml": "s: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  61\n",
		"web-1/d.yml": "$ANSIBLE_VAULT;1.1;AES256\n61\n",
		"web-2.yml":   "color: red\n",
	} {
		path := filepath.Join(folder, "host_vars", name)
		errtest.None(t, os.MkdirAll(filepath.Dir(path), 0o700))
		errtest.None(t, os.WriteFile(path, []byte(text), 0o600))
	}

	want := map[string]configuration.FileVar{
		"color": {File: "host_vars/web-1/b.json", Value: "green"}, "n": {File: "host_vars/web-1/a.yml", Value: 5},
		"s": {File: "host_vars/web-1/c.yml"},
	}
	if got := FolderVars(folder, "web-1", "web").Host; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}

	if got := FolderVars(folder, "web-3", "db"); len(got.Host)+len(got.Group) > 0 {
		t.Errorf("%v", got)
	}
}

func TestHostsWithVars(t *testing.T) {
	t.Parallel()

	folder := writeVaultFolder(t, map[string]string{
		"host_vars/web-1.yml": "", "host_vars/web-2/a": "", "host_vars/192.0.2.1": "", "host_vars/README.md": "",
		"host_vars/.gitkeep": "", "group_vars/web-3": "",
	}, "", "")

	got, err := HostsWithVars(folder)
	if want := []string{"192.0.2.1", "web-1", "web-2"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}
