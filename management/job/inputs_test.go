// SPDX-License-Identifier: Apache-2.0

package job_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	. "github.com/contiv/cluster/management/job"
)

// TestInputsOfSeveralGroups: a node with the residue of several groups has the variables of each.
func TestInputsOfSeveralGroups(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		verb             inventory.Verb
		force            bool
		from, to, groups string
	}{
		{inventory.VerbDecommission, false, "", "", "x y"},
		{inventory.VerbDecommission, false, "z", "", "z x y"},
		{inventory.VerbCommission, false, "", "y", "y x"},
		{inventory.VerbClear, false, "z", "", "z x y"},
		{inventory.VerbClear, true, "", "", ""},
		{inventory.VerbApply, false, "z", "z", "z"},
	} {
		target := Target{Name: "a-1", FromGroup: c.from, Group: c.to, Residue: []string{"x", "y"}}
		j := Job{Verb: c.verb, JobOptions: inventory.JobOptions{Force: c.force}, Targets: []Target{target}}

		groups := j.InputGroups(target)
		if got := strings.Join(groups, " "); got != c.groups {
			t.Errorf("%s from %q to %q: groups %q, want %q", c.verb, c.from, c.to, got, c.groups)
		}

		var in Inputs
		for i, group := range groups {
			in.Set("a-1", group, map[string]configuration.Var{"v": {Value: group}}, configuration.Connection{Port: i})
		}

		// Its record is renewed when the job begins.
		target.FromGroup = "elsewhere"

		for i, group := range groups {
			vars, connection, known := in.Of(target, group)
			if fmt.Sprint(vars["v"].Value) != group || connection.Port != i || !known {
				t.Errorf("%s: %q has %v, %v, %v", c.verb, group, vars, connection, known)
			}
		}

		if _, _, known := in.Of(target, "elsewhere"); known {
			t.Errorf("%s: a group without inputs has some", c.verb)
		}
	}
}
