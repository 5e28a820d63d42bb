// SPDX-License-Identifier: Apache-2.0

package job

import "github.com/contiv/cluster/inventory"

func init() {
	// Inspect finds the hardware facts of nodes, and changes nothing on their hosts.
	Register(Verb{
		Name:       inventory.VerbInspect,
		Steps:      []StepKind{StepInspect},
		GroupAfter: func(_ Job, n inventory.Node) string { return n.Group },
		Plan:       func(p *Planner) Step { return p.OnceTo(StepInspect, PhaseInspect) },
	})
}
