// SPDX-License-Identifier: Apache-2.0

package daemon

import (
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

	// The change stands, though the folder is gone when it is read.
	s.must(os.RemoveAll(folders["other"]))

	if names := s.former(s.ctx()); names != nil {
		t.Errorf("without a folder: %q", names)
	}
}
