// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// TestPlaybooksOfOthers: a folder that others can write is not used.
func TestPlaybooksOfOthers(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.report("a")

	request := api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}}
	site := filepath.Join(s.dir, "playbooks", "site.yml")
	s.must(os.Chmod(site, 0o666))

	_, err := s.Client.Submit(s.ctx(), request)
	checkError(t, err, inventory.KindInvalid, "site.yml (mode 0666)", "chmod -R go-w")

	h, err := s.Health(s.ctx())
	if err != nil || !strings.Contains(h.Checks["configuration"], "site.yml (mode 0666)") {
		t.Errorf("%+v, %v", h, err)
	}

	other := filepath.Join(s.dir, "other")
	s.must(os.CopyFS(other, os.DirFS(filepath.Join(s.dir, "playbooks"))))
	s.must(os.Chmod(filepath.Join(other, "site.yml"), 0o644))
	s.must(os.Chmod(other, 0o777))

	_, err = s.Client.PatchConfig(s.ctx(), map[string]any{"playbooks": other})
	checkError(t, err, inventory.KindInvalid, "other (mode 0777)")

	s.must(os.Chmod(site, 0o644))

	if j := s.runJob(request); j.Status != api.Complete {
		t.Errorf("%+v", j)
	}
}

// TestEditedCopy: a pinned copy that was edited does not run, unless the folder
// still has its content.
func TestEditedCopy(t *testing.T) {
	t.Parallel()

	for _, restorable := range []bool{true, false} {
		s := begin(t, "jobs: {limit: 1}")
		s.report("a b")

		_, gate := s.submitWaiting(api.JobRequest{
			Verb: inventory.VerbCommission, Nodes: []string{"a-1"}, Group: inventory.GroupMaster,
		})

		j, err := s.Client.Submit(s.ctx(), api.JobRequest{
			Verb: inventory.VerbCommission, Nodes: []string{"b-1"}, Group: inventory.GroupMaster,
		})
		s.must(err)

		jobs := s.View().Jobs()
		copied := filepath.Join(s.dir, "d", "playbooks", jobs[len(jobs)-1].PlaybookDigest, "cleanup.yml")
		s.must(os.WriteFile(copied, []byte("- hosts: all\n"), 0o600))

		if !restorable {
			s.must(os.WriteFile(filepath.Join(s.dir, "playbooks", "cleanup.yml"), []byte("- hosts: none\n"), 0o600))
		}

		s.release(gate)

		j, err = s.Client.WaitJob(s.ctx(), j.ID)
		s.must(err)

		switch {
		case restorable && j.Status != api.Complete:
			t.Errorf("the copy was not restored: %s %s", j.Status, j.Message)
		case !restorable && (j.Status != api.Errored || !strings.Contains(j.Message, "missing or damaged") ||
			s.status("b-1") != "Unallocated"):
			t.Errorf("%s %s, %s", j.Status, j.Message, s.status("b-1"))
		}
	}
}
