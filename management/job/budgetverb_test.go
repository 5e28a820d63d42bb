// SPDX-License-Identifier: Apache-2.0

package job_test

import (
	"testing"

	"github.com/contiv/cluster/inventory"
	. "github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/job/jobtest"
)

// TestBudgetOfEveryVerb: a verb that may take a node in service is held by the budget of its
// group, unless it changes no host. So a verb that is added later is held as well.
func TestBudgetOfEveryVerb(t *testing.T) {
	t.Parallel()

	groups := inventory.Groups{
		{Name: inventory.GroupMaster, Budget: inventory.Budget{MinAvailable: 2}},
		{Name: inventory.GroupWorker},
	}
	held := 0

	for _, verb := range Verbs() {
		v := jobtest.Snapshot(t, "a m Allocated Discovered", "b m Allocated Discovered")
		j := jobtest.Planned(verb.Name, inventory.GroupWorker, "a-1 Allocated service-master")

		if verb.Row.TakesAddrs || verb.Row.Check(*v.Nodes()[0]) != nil {
			continue
		}

		j.ID, j.Status = "1", Queued
		v.PutJob(&j)

		turn := TurnOf(*v, groups, 4, j)
		if verb.Row.Verifies != turn.Claim {
			t.Errorf("%s: %+v", verb.Name, turn)
		}
		if !turn.Claim {
			held++
		}
	}

	if held < 5 {
		t.Errorf("%d verbs are held", held)
	}
}
