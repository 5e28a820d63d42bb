// SPDX-License-Identifier: Apache-2.0

package job

import (
	"slices"

	"github.com/contiv/cluster/inventory"
)

func init() {
	// Commission configures nodes and brings them into service. A batch is one
	// operation: if one node fails, all are cleaned, unless OnFailure limits that.
	Register(Verb{
		Name:         inventory.VerbCommission,
		Steps:        []StepKind{StepPlaybook},
		Playbooks:    []string{PlaybookSite, PlaybookCleanup},
		Joins:        true,
		Helps:        true,
		Cleans:       true,
		GroupAtClaim: true,
		GroupAfter:   func(j Job, _ inventory.Node) string { return j.Group },
		defaultGroup: true,
		defaults: func(j *Job) {
			if j.OnFailure == "" {
				j.OnFailure = inventory.OnFailureBatch
			}
		},
		Plan: (*Planner).commission,
	})
}

func (p *Planner) commission() Step {
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
		return p.OnFailure == inventory.OnFailureFailed && failedOn(configured) && configured.succeeded(t.Name)
	}

	// A host that ssh never reached is as it was, and the same request may be repeated.
	unreached := func(t Target) bool { return configured.unreached(t.Name) }
	dirty := func(t Target) bool { return !succeeded(t) && !unreached(t) }

	return p.undo(configured, newGroup, p.pinned, dirty, func(t Target) inventory.Outcome {
		if unreached(t) {
			return p.untouched(configured, t)
		}
		return p.inService(t)
	})
}

// beforeConfigure cleans residue of earlier verbs, group by group, and then
// configures the targets.
func (p *Planner) beforeConfigure() Step {
	// Residue of another group would break the new configuration.
	last := p.last(PhaseResidue)
	if last != nil && !done(last) {
		return p.notConfigured(last)
	}

	if p.stop != "" {
		return p.notConfigured(nil)
	}

	if step := p.clean(PhaseResidue, residue); len(step.Hosts) > 0 {
		return step
	}

	return p.run(PhaseConfigure, PlaybookSite, newGroup, everyTarget)
}

// notConfigured ends the job before any target was configured.
func (p *Planner) notConfigured(failed *Run) Step {
	cause, message := p.failure(failed)
	return p.end(cause, message, p.each(func(t Target) inventory.Outcome { return p.untouched(failed, t) }))
}

// untouched is the outcome of a target that was not configured, because of the run.
func (p *Planner) untouched(failed *Run, t Target) inventory.Outcome {
	_, message := p.failure(failed)

	return inventory.Outcome{
		Status:  p.row.Failed,
		Residue: p.residueLeft(t),
		Error:   hostFailure(failed, t.Name, message),
		Reason:  message,
	}
}

func residue(t Target) []string { return t.Residue }

// residueLeft returns the residue the target still carries.
func (p *Planner) residueLeft(t Target) []string {
	return slices.DeleteFunc(slices.Clone(t.Residue), func(g string) bool { return p.cleaned(PhaseResidue, t, g) })
}
