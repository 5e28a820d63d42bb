// SPDX-License-Identifier: Apache-2.0

package job

import "github.com/contiv/cluster/inventory"

func init() {
	// Power switches nodes by their BMCs. It leaves their records as they were.
	Register(Verb{
		Name:       inventory.VerbPower,
		Steps:      []StepKind{StepPower},
		GroupAfter: func(_ Job, n inventory.Node) string { return n.Group },
		Plan:       func(p *Planner) Step { return p.Once(StepPower, PhasePower) },
	})
}
