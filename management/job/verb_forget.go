// SPDX-License-Identifier: Apache-2.0

package job

import "github.com/contiv/cluster/inventory"

func init() {
	// Forget removes the agent from nodes, then their records. Records alone are
	// removed without a job.
	Register(Verb{
		Name:         inventory.VerbForget,
		Steps:        []StepKind{StepPlaybook},
		Playbooks:    []string{PlaybookCleanup},
		Helps:        true,
		RemovesAgent: true,
		Plan:         (*Planner).forget,
	})
}

func (p *Planner) forget() Step {
	removed := p.last(PhaseCleanup)
	if removed == nil && p.stop == "" {
		// In this group cleanup.yml undoes the preparation of the host by site.yml.
		return p.run(PhaseCleanup, PlaybookCleanup, prepareGroup, everyTarget)
	}

	cause, message := p.failure(removed)
	if done(removed) {
		cause, message = "", ""
	}

	return p.end(cause, message, p.each(func(t Target) inventory.Outcome {
		if removed != nil && removed.succeeded(t.Name) {
			return inventory.Outcome{Status: p.row.Success}
		}

		// The host still announces itself, so the record must stay.
		why := "its agent was not removed: " + hostFailure(removed, t.Name, message)

		return inventory.Outcome{
			Status: t.From, Group: t.FromGroup, Applied: t.Applied, Residue: t.Residue, Error: why, Reason: why,
		}
	}))
}
