// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"slices"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// TestLostNodes: the playbooks learn which nodes are lost from a commission by which a policy replaces one
// of them, and from no other job.
func TestLostNodes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.inService("a", "")
	b.see("b c")

	replaces := state.Decision{
		ID: "1", Policy: "site", Node: "b-1", Action: state.ActionCommission, Group: master, Replaces: "x-1",
		Lost: []string{"x-1", "y-1"}, Phase: state.PhaseDecided,
	}
	vacancy := replaces
	vacancy.ID, vacancy.Node, vacancy.Replaces, vacancy.Lost = "2", "c-1", "", nil

	a := state.AutomationOf(b.View()).With(replaces, vacancy)
	_, err := record.Replace(t.Context(), b.store, &state.Memory, "", a.Revision, &a)
	b.must(err)
	b.until("the decisions are seen", func(v *state.View) bool { return len(state.AutomationOf(v).Decisions) == 2 })

	lost := func(actor, label string) []any {
		t.Helper()

		r := job.Request{Verb: inventory.VerbCommission, Nodes: names(label), Group: master}
		j, err := b.Engine.Submit(t.Context(), access.Caller{Principal: actor}, r)
		b.must(err)
		b.end(j.ID, "Complete")

		specs := b.books.started()
		hosts := specs[len(specs)-1].Hosts
		list, _ := hosts[0].Extra["clusterm_lost"].([]any)

		if len(hosts) < 2 || hosts[1].Extra != nil {
			t.Errorf("%+v", hosts)
		}

		return list
	}

	if got := lost(state.PolicyPrincipal("site"), "b"); !slices.Equal(got, []any{"x-1", "y-1"}) {
		t.Errorf("a replacement: %v", got)
	}

	if got := lost(state.PolicyPrincipal("site"), "c"); got != nil {
		t.Errorf("a vacancy: %v", got)
	}

	// A person's retry of a replacement that failed, after one of the lost nodes came back.
	b.do(decommission, "b", "", "Complete")
	b.books.on(job.PlaybookSite, failsOn("b-1"))

	r := job.Request{Verb: inventory.VerbCommission, Nodes: names("b"), Group: master}
	failed, err := b.Engine.Submit(t.Context(), access.Caller{Principal: state.PolicyPrincipal("site")}, r)
	b.must(err)
	b.end(failed.ID, "Errored failed")

	b.books.on(job.PlaybookSite, succeeds)

	retried, err := b.Engine.Retry(t.Context(), access.Caller{Principal: "ann"}, failed.ID, job.RetryRequest{})
	b.must(err)
	b.end(retried.ID, "Complete")

	again := b.books.started()
	if got, _ := again[len(again)-1].Hosts[0].Extra["clusterm_lost"].([]any); !slices.Equal(got, []any{"x-1", "y-1"}) {
		t.Errorf("a retry of a replacement: %v", got)
	}

	b.do(decommission, "b", "", "Complete")
	b.do(commission, "b", master, "Complete")

	specs := b.books.started()
	if got := specs[len(specs)-1].Hosts[0].Extra; got != nil {
		t.Errorf("a person's commission: %v", got)
	}
}
