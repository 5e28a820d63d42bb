// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"testing"

	"github.com/contiv/cluster/inventory"
)

// TestRolloutOfHopelessBudget: a rollout whose first node the budget can never allow is refused
// with the budget and the remedy, and nothing is stored.
func TestRolloutOfHopelessBudget(t *testing.T) {
	t.Parallel()
	s := begin(t, `groups: [{name: service-master, budget: {min_available: 2}}]`)
	names, _ := s.fleet("a b")

	_, previewed := s.Rollouts().Preview(s.ctx(), ann, apply(names, nil))
	_, started := s.Rollouts().Start(s.ctx(), ann, apply(names, nil))

	for _, err := range []error{previewed, started} {
		checkError(t, err, inventory.KindRefused,
			"service-master must keep 2 nodes available (min_available), and 1 of 2 would be")
		checkError(t, err, inventory.KindRefused, "add a node to the group, or lower min_available")
	}

	if v := s.View(); len(v.Rollouts) > 0 || len(v.Jobs) != 1 {
		t.Errorf("%d rollouts, %d jobs", len(v.Rollouts), len(v.Jobs))
	}
}
