// SPDX-License-Identifier: Apache-2.0

package job

import (
	"slices"

	"github.com/contiv/cluster/inventory"
)

func init() {
	// Update cleans nodes in service and configures them again, perhaps in another
	// group.
	Register(Verb{
		Name:      inventory.VerbUpdate,
		Steps:     []StepKind{StepPlaybook},
		Playbooks: []string{PlaybookSite, PlaybookCleanup},
		Joins:     true,
		Leaves:    true,
		Helps:     true,
		Cleans:    true,
		RetryAs:   inventory.VerbCommission,
		GroupAfter: func(j Job, n inventory.Node) string {
			if j.Group != "" {
				return j.Group
			}
			return n.Group
		},
		Plan: (*Planner).update,
	})
}

func (p *Planner) update() Step {
	cleaned, configured := p.worstCleanup(), p.last(PhaseConfigure)

	// A target stays in service until its cleanup begins.
	stays := func(t Target) inventory.Outcome {
		_, message := p.failure(cleaned)

		return inventory.Outcome{
			Status: t.From, Group: t.FromGroup, Applied: t.Applied, Error: message, Reason: message,
		}
	}
	begun := func(t Target) bool {
		return slices.ContainsFunc(p.attempts(PhaseCleanup, t, t.FromGroup), func(r *Run) bool {
			return done(r) || r.Results[t.Name].Begun
		})
	}

	switch {
	case cleaned == nil && p.stop != "":
		return p.end(p.stop, p.stopMessage, p.each(stays))
	case cleaned != nil && !done(cleaned), configured == nil && p.stop != "":
		// A half-done cleanup left a broken node: finish it. Clean targets go the
		// same way, so that the failure path ends the job by one rule.
		return p.undo(cleaned, formerGroup, p.own, begun, stays)
	}

	// Targets that different playbooks configured are cleaned one after the other.
	step := p.clean(PhaseCleanup, func(t Target) []string { return []string{t.FromGroup} })

	switch {
	case configured == nil && len(step.Hosts) > 0:
		return step
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

	// A host that the new configuration never reached is clean already.
	dirty := func(t Target) bool { return !configured.unreached(t.Name) }

	return p.undo(configured, newGroup, p.pinned, dirty, func(t Target) inventory.Outcome {
		return p.untouched(configured, t)
	})
}
