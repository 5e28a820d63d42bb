// SPDX-License-Identifier: Apache-2.0

package job

import "github.com/contiv/cluster/inventory"

func init() {
	// Update cleans nodes in service and configures them again, perhaps in another
	// group.
	register(Verb{
		Name:      inventory.VerbUpdate,
		Playbooks: []string{PlaybookSite, PlaybookCleanup},
		Joins:     true,
		Leaves:    true,
		Helps:     true,
		GroupAfter: func(j Job, n inventory.Node) string {
			if j.Group != "" {
				return j.Group
			}

			return n.Group
		},
		plan: (*planner).update,
	})
}

func (p *planner) update() Step {
	cleaned, configured := p.last(PhaseCleanup), p.last(PhaseConfigure)

	// A target stays in service until its cleanup begins.
	stays := func(t Target) inventory.Outcome {
		_, message := p.failure(cleaned)

		return inventory.Outcome{
			Status: t.From, Group: t.FromGroup, Applied: t.Applied, Error: message, Reason: message,
		}
	}

	switch {
	case cleaned == nil && p.stop != "":
		return p.end(p.stop, p.stopMessage, p.each(stays))
	case cleaned == nil:
		return p.run(PhaseCleanup, PlaybookCleanup, formerGroup, everyTarget)
	case !done(cleaned):
		// A half-done cleanup left a broken node: finish it.
		return p.undo(cleaned, formerGroup, func(t Target) bool { return cleaned.Results[t.Name].Begun }, stays)
	case configured == nil && p.stop != "":
		// Every target is clean, but the failure path ends the job by one rule.
		return p.undo(cleaned, formerGroup, everyTarget, nil)
	case configured == nil:
		return p.run(PhaseConfigure, PlaybookSite, newGroup, everyTarget)
	case done(configured):
		return p.end("", "", p.each(p.inService))
	case configured.NotBegun:
		// The former configuration is gone and the new one was not begun, so
		// the targets are clean.
		cause, message := p.failure(configured)

		return p.end(cause, message, p.each(func(Target) inventory.Outcome {
			return inventory.Outcome{Status: p.row.Failed, Error: message, Reason: message}
		}))
	}

	return p.undo(configured, newGroup, everyTarget, nil)
}
