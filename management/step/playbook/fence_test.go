// SPDX-License-Identifier: Apache-2.0

package playbook

import (
	"testing"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/cluster"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/step"
)

// TestFenceOf: the token of a run is that of the owner, and grows from run to run of one owner.
func TestFenceOf(t *testing.T) {
	t.Parallel()

	j := job.Job{ID: "7", Runs: make([]job.Run, 3), JobOptions: inventory.JobOptions{TakeOver: true}}
	owner := cluster.Token{Epoch: 2, Revision: 40}

	for i := range j.Runs {
		want := configuration.Fence{
			Token:   configuration.FenceToken{Epoch: 2, Revision: 40, Run: i},
			Manager: "00000000000000aa", Job: "7", Claim: true,
		}
		if got := fenceOf(owner, step.New(nil, nil, j, i), "00000000000000aa"); got != want {
			t.Errorf("run %d: %+v", i, got)
		}
	}
}
