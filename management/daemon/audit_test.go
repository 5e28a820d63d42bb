// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/audit"
)

// TestAuditTrail: an accepted change is in the trail before its answer, a refusal soon
// after, and both survive a restart in one chain.
func TestAuditTrail(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.report("a")

	entries := func(f audit.Filter) (found []string) {
		t.Helper()
		s.must(ReadAudit(s.file, f, func(e audit.Entry) error {
			found = append(found, strings.Join([]string{e.Verb, strings.Join(e.Targets, ","), e.Job, e.Result}, " "))

			if e.Who == "" || e.Instance == "" || e.Time.IsZero() {
				t.Errorf("%+v", e)
			}

			return nil
		}))

		return found
	}

	j := s.runJob(api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}})

	want := fmt.Sprintf("jobs.submit.commission a-1 %s done", j.ID)
	if got := entries(audit.Filter{Job: j.ID, Verb: "jobs.submit"}); !slices.Equal(got, []string{want}) {
		t.Errorf("got %q, want %q", got, want)
	}

	_, err := s.Client.Submit(s.ctx(), api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"nosuch-1"}})
	if err == nil {
		t.Fatal("an unknown node is commissioned")
	}

	before := len(entries(audit.Filter{}))

	s.restart()

	got := entries(audit.Filter{Target: "nosuch-1"})
	if len(got) != 1 || got[0] != "jobs.submit.commission nosuch-1  not-found" {
		t.Errorf("the refusal is %q", got)
	}

	r, err := VerifyAudit(s.file)
	if err != nil || len(r.Problems) > 0 || r.Lost > 0 || r.Entries < uint64(before) || r.First != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}
