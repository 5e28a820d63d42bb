// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
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

	if v := s.View(); len(record.List(v, &rollout.Kind)) > 0 || len(v.Jobs()) != 1 {
		t.Errorf("%d rollouts, %d jobs", len(record.List(v, &rollout.Kind)), len(v.Jobs()))
	}
}

// TestRolloutRepairsWithinBudget: a node that uses the budget up does not keep a rollout from its repair,
// wherever it stands among the nodes.
func TestRolloutRepairsWithinBudget(t *testing.T) {
	t.Parallel()
	s := begin(t, `groups: [{name: service-master, budget: {max_unavailable: 1}}]`)
	names, fault := s.fleet("a b c")

	// The cleanup succeeded, and the configuration after it did not.
	s.must(os.WriteFile(fault, []byte("c-1\n"), 0o600))
	s.runJob(api.JobRequest{Verb: inventory.VerbReapply, Nodes: names[2:]})
	s.must(os.Remove(fault))

	if n, _ := s.View().Lookup("c-1"); n.Available() {
		t.Fatalf("%+v", n)
	}

	_, err := s.Rollouts().Preview(s.ctx(), ann, apply(names[:2], nil))
	checkError(t, err, inventory.KindRefused, "unavailable already: c-1")

	_, err = s.Rollouts().Preview(s.ctx(), ann, apply(names, nil))
	s.must(err)
}
