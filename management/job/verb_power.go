// SPDX-License-Identifier: Apache-2.0

package job

import (
	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
)

func init() {
	// Power switches nodes by their BMCs. It leaves their records as they were.
	Register(Verb{
		Name:       inventory.VerbPower,
		Steps:      []StepKind{StepPower},
		GroupAfter: func(_ Job, n inventory.Node) string { return n.Group },
		Plan:       func(p *Planner) Step { return p.Once(StepPower, PhasePower) },
	})
}

// PowerOff returns the request to turn a node off by its BMC, also in service.
func PowerOff(node, reason string) Request {
	r := Request{Verb: inventory.VerbPower, Nodes: []string{node}, Extra: configuration.Vars{"to": "off"}}
	r.Force, r.Reason = true, reason

	return r
}
