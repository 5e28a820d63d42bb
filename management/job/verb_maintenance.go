// SPDX-License-Identifier: Apache-2.0

package job

import "github.com/contiv/cluster/inventory"

func init() {
	// Maintenance upgrades nodes in place. A failure cleans nothing.
	register(Verb{
		Name:       inventory.VerbMaintenance,
		Playbooks:  []string{PlaybookUpgrade},
		GroupAfter: func(_ Job, n inventory.Node) string { return n.Group },
		plan:       (*planner).maintenance,
	})
}

func (p *planner) maintenance() Step {
	upgraded := p.last(PhaseUpgrade)
	if upgraded == nil && p.stop == "" {
		return p.run(PhaseUpgrade, PlaybookUpgrade, newGroup, everyTarget)
	}

	cause, message := p.failure(upgraded)
	if done(upgraded) {
		cause, message = "", "" // the stop came after the end
	}

	return p.end(cause, message, p.each(func(t Target) inventory.Outcome {
		if upgraded != nil && upgraded.succeeded(t.Name) {
			return inventory.Outcome{Status: p.row.Success, Group: t.FromGroup, Applied: p.ID}
		}

		o := inventory.Outcome{Status: p.row.Failed, Group: t.FromGroup, Applied: t.Applied, Reason: message}
		o.Error = hostFailure(upgraded, t.Name, "not upgraded: "+message)

		// A half-done upgrade leaves an unknown configuration.
		if upgraded != nil && upgraded.Results[t.Name].Begun {
			o.Applied = ""
		}

		return o
	}))
}
