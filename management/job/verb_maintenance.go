// SPDX-License-Identifier: Apache-2.0

package job

import "github.com/contiv/cluster/inventory"

func init() {
	// Maintenance upgrades nodes in place. A failure cleans nothing.
	Register(Verb{
		Name:       inventory.VerbMaintenance,
		Steps:      []StepKind{StepPlaybook},
		Playbooks:  []string{PlaybookUpgrade},
		GroupAfter: func(_ Job, n inventory.Node) string { return n.Group },
		Plan: func(p *Planner) Step {
			return p.inPlace(PhaseUpgrade, PlaybookUpgrade, "not upgraded")
		},
	})
}
