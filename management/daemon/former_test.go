// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// TestFormerPlaybooks: the answer to a change of the folder, by the API and by a
// reload, names the nodes that other playbooks configured. The content counts.
func TestFormerPlaybooks(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.report("a b")
	s.runJob(api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}})

	folders := map[string]string{"same": t.TempDir(), "other": t.TempDir()}
	for _, dir := range folders {
		s.must(os.CopyFS(dir, os.DirFS(filepath.Join(s.dir, "playbooks"))))
	}

	s.must(os.WriteFile(filepath.Join(folders["other"], "more.yml"), nil, 0o600))

	expect := func(when string, now api.Config, err error, want ...string) {
		t.Helper()
		s.must(err)

		for key, entry := range now {
			if key != "playbooks" && entry.Former != nil {
				t.Errorf("%s: %s has former nodes", when, key)
			}
		}

		if got := now["playbooks"].Former; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	patch := func(key string, value any) (api.Config, error) {
		return s.Client.PatchConfig(s.ctx(), map[string]any{key: value})
	}

	now, err := patch("playbooks", folders["same"])
	expect("the same content", now, err)
	now, err = patch("playbooks", folders["other"])
	expect("another folder", now, err, "a-1")
	now, err = patch("jobs.limit", 3)
	expect("another key", now, err)
	now, err = s.Config(s.ctx())
	expect("a read", now, err)
	now, err = patch("playbooks", nil)
	expect("back to the file", now, err)

	const logged = "still cleaned with the playbooks that configured them: a-1"
	if strings.Contains(s.log.String(), logged) {
		t.Error("the log names a-1 before the reload")
	}

	s.write("playbooks: " + folders["other"])
	now, err = s.ReloadConfig(s.ctx())
	expect("a reload with another folder", now, err, "a-1")

	if !strings.Contains(s.log.String(), logged) {
		t.Error("the log does not name a-1")
	}

	now, err = s.ReloadConfig(s.ctx())
	expect("a reload without a change of the folder", now, err)
}

// TestBrokenPlaybooks: a folder with a playbook that does not parse is refused when it
// is configured, at run time and by a reload, and the former one stays in force.
func TestBrokenPlaybooks(t *testing.T) {
	t.Parallel()
	s := begin(t)

	broken := func(name, file, text string) string {
		dir := filepath.Join(s.dir, name)
		s.must(os.CopyFS(dir, os.DirFS(filepath.Join(s.dir, "playbooks"))))

		if text == "" {
			s.must(os.Remove(filepath.Join(dir, file)))
		} else {
			s.must(os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o755))
			s.must(os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
		}

		return dir
	}
	former := filepath.Join(s.dir, "playbooks")

	const vars = "group_vars/service-worker.yml"

	for _, c := range []struct{ dir, problem string }{
		{broken("upgrade", "rolling-upgrade.yml", "broken\n"), "playbooks: the playbook rolling-upgrade.yml does not"},
		{broken("verify", "verify.yml", "broken\n"), "verify.yml does not parse"},
		{broken("cleanup", "cleanup.yml", ""), "cleanup.yml: it is missing"},
		{broken("vault", vars, "$ANSIBLE_VAULT;1.1;AES256\n"), "encrypted with Ansible Vault"},
		{broken("vars", vars, "broken\n"), "variables of the playbook folder cannot be loaded"},
	} {
		_, err := s.PatchConfig(s.ctx(), map[string]any{"playbooks": c.dir})
		checkError(t, err, inventory.KindInvalid, c.problem, "clusterm playbooks check "+c.dir)

		s.write("playbooks: " + c.dir)
		_, err = s.ReloadConfig(s.ctx())
		checkError(t, err, inventory.KindRefused, c.problem)
		checkError(t, CheckFile(t.Context(), s.file), inventory.KindInvalid, c.problem)

		now, err := s.Config(s.ctx())
		s.must(err)

		if now["playbooks"].Value != former {
			t.Errorf("%v is in force", now["playbooks"].Value)
		}

		if h, err := s.Health(s.ctx()); err != nil || !strings.Contains(fmt.Sprint(h), c.problem) {
			t.Errorf("health does not name %q: %+v, %v", c.problem, h, err)
		}
	}

	// A playbook that the manager can do without may be missing.
	_, err := s.PatchConfig(s.ctx(), map[string]any{"playbooks": broken("two", "rolling-upgrade.yml", "")})
	s.must(err)

	left, err := filepath.Glob(filepath.Join(s.dir, "d", "tmp", "*"))
	if s.must(err); len(left) > 0 {
		t.Errorf("the checks left %q", left)
	}
}
