// SPDX-License-Identifier: Apache-2.0

package job

import "github.com/contiv/cluster/inventory"

func init() {
	// Apply configures nodes in service again, without a cleanup first. A failure
	// cleans nothing.
	Register(Verb{
		Name:       inventory.VerbApply,
		Steps:      []StepKind{StepPlaybook},
		Playbooks:  []string{PlaybookSite},
		Helps:      true,
		GroupAfter: func(_ Job, n inventory.Node) string { return n.Group },
		Plan: func(p *Planner) Step {
			return p.inPlace(PhaseApply, PlaybookSite, "not configured again")
		},
	})
}
