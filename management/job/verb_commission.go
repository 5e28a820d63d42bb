// SPDX-License-Identifier: Apache-2.0

package job

import (
	"slices"

	"github.com/contiv/cluster/inventory"
)

func init() {
	// Commission configures nodes and brings them into service. A batch is one
	// operation: if one node fails, all are cleaned, unless OnFailure limits that.
	register(Verb{
		Name:         inventory.VerbCommission,
		Playbooks:    []string{PlaybookSite, PlaybookCleanup},
		Joins:        true,
		Helps:        true,
		GroupAtClaim: true,
		GroupAfter:   func(j Job, _ inventory.Node) string { return j.Group },
		defaultGroup: true,
		defaults: func(j *Job) {
			if j.OnFailure == "" {
				j.OnFailure = OnFailureBatch
			}
		},
		plan: (*planner).commission,
	})
}

func (p *planner) commission() Step {
	configured := p.last(PhaseConfigure)

	switch {
	case configured == nil:
		return p.beforeConfigure()
	case done(configured):
		return p.end("", "", p.each(p.inService))
	case configured.NotBegun:
		// No host was touched, so there is nothing to clean.
		return p.notConfigured(configured)
	}

	// Only a failure of some hosts may spare the others. A stop cleans all.
	succeeded := func(t Target) bool {
		return p.OnFailure == OnFailureFailed && failedOn(configured) && configured.succeeded(t.Name)
	}

	return p.undo(configured, newGroup, func(t Target) bool { return !succeeded(t) }, p.inService)
}

// beforeConfigure cleans residue of earlier verbs, group by group, and then
// configures the targets.
func (p *planner) beforeConfigure() Step {
	// Residue of another group would break the new configuration.
	last := p.last(PhaseResidue)
	if last != nil && !done(last) {
		return p.notConfigured(last)
	}

	if p.stop != "" {
		return p.notConfigured(nil)
	}

	round := p.count(PhaseResidue)

	step := p.run(PhaseResidue, PlaybookCleanup,
		func(t Target) string { return t.Residue[round] },
		func(t Target) bool { return len(t.Residue) > round })
	if len(step.Hosts) > 0 {
		return step
	}

	return p.run(PhaseConfigure, PlaybookSite, newGroup, everyTarget)
}

// notConfigured ends the job before any target was configured.
func (p *planner) notConfigured(failed *Run) Step {
	cause, message := p.failure(failed)

	return p.end(cause, message, p.each(func(t Target) inventory.Outcome {
		return inventory.Outcome{
			Status:  p.row.Failed,
			Residue: p.residueLeft(t),
			Error:   hostFailure(failed, t.Name, message),
			Reason:  message,
		}
	}))
}

// residueLeft returns the residue the target still carries.
func (p *planner) residueLeft(t Target) []string {
	cleaned := 0
	for _, r := range p.Runs {
		if r.Phase == PhaseResidue && r.succeeded(t.Name) {
			cleaned++
		}
	}

	return slices.Clone(t.Residue[min(cleaned, len(t.Residue)):])
}
