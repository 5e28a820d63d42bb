// SPDX-License-Identifier: Apache-2.0

package job

import (
	"slices"
	"testing"

	"github.com/contiv/cluster/inventory"
)

// TestInterrupted: whatever the verb and the step, every target leaves its in-progress status for one that the row has,
// with the reason, and nothing that may be on a host is forgotten.
func TestInterrupted(t *testing.T) {
	const reason = "the store was restored"

	// By the lifecycle table, as a person reads it.
	want := map[inventory.Verb]inventory.Status{
		inventory.VerbManage: inventory.Enrolled, inventory.VerbInspect: inventory.Manageable,
		inventory.VerbInstall: inventory.Quarantined,
		inventory.VerbProvide: inventory.Quarantined, inventory.VerbCommission: inventory.Quarantined,
		inventory.VerbUpdate: inventory.Quarantined, inventory.VerbApply: inventory.Allocated,
		inventory.VerbReapply: inventory.Allocated, inventory.VerbMaintenance: inventory.Allocated,
		inventory.VerbVerify: inventory.Allocated, inventory.VerbDecommission: inventory.Decommissioned,
		inventory.VerbClear: inventory.Quarantined, inventory.VerbPower: inventory.Enrolled,
		inventory.VerbForget: inventory.Enrolled,
	}

	for _, row := range inventory.Lifecycle {
		for _, runs := range [][]Run{nil, {{Phase: PhaseConfigure, Hosts: []string{"a-1"}}}} {
			from := inventory.Allocated
			if len(row.From) > 0 {
				from = row.From[0]
			}

			j := Job{
				ID: "7", Verb: row.Verb, Status: Running, Runs: runs, PlaybookDigest: "now",
				Targets: []Target{{
					Name: "a-1", From: from, FromGroup: "old", Group: "new", Residue: []string{"rest"}, Applied: "3",
					Playbooks: map[string]string{"old": "then", "rest": "before"},
				}},
			}

			got := j.Interrupted(reason)
			if got.Cause != CauseInterrupted || got.Message != reason || got.Outcomes == nil {
				t.Errorf("%s: %s, %q", row.Verb, got.Cause, got.Message)
			}

			for i, r := range got.Runs {
				if r.Exit != string(CauseInterrupted) || j.Runs[i].Exit != "" {
					t.Errorf("%s: a run ended %q, and %q before", row.Verb, r.Exit, j.Runs[i].Exit)
				}
			}

			if !row.ChangesStatus() {
				if len(got.Outcomes) > 0 {
					t.Errorf("%s: %+v, but it holds no node", row.Verb, got.Outcomes)
				}
				continue
			}

			o := got.Outcomes["a-1"]
			if o.Status != want[row.Verb] || o.Status.InProgress() || o.Error != reason || o.Reason != reason {
				t.Errorf("%s: %s (%s), want %s", row.Verb, o.Status, o.Error, want[row.Verb])
			}

			carries := append(slices.Clone(o.Residue), o.Group)
			if !slices.Contains(carries, "old") || !slices.Contains(carries, "rest") {
				t.Errorf("%s: of the groups on the host it keeps %q", row.Verb, carries)
			}

			configures := row.Verb == inventory.VerbCommission || row.Verb == inventory.VerbUpdate
			if configures != (o.Group == "new") && o.Status == inventory.Quarantined &&
				row.Success == inventory.Allocated {
				t.Errorf("%s: the group is %q", row.Verb, o.Group)
			}

			if !row.Looks && row.Success != inventory.AsBefore && o.Applied != "" {
				t.Errorf("%s: it counts as configured by job %s", row.Verb, o.Applied)
			}
		}
	}
}
