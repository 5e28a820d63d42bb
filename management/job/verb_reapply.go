// SPDX-License-Identifier: Apache-2.0

package job

import (
	"slices"

	"github.com/contiv/cluster/inventory"
)

func init() {
	// Reapply cleans nodes in service and configures them again in their own group.
	// Whatever fails, they stay in it, so that it can be repeated.
	Register(Verb{
		Name:       inventory.VerbReapply,
		Steps:      []StepKind{StepPlaybook},
		Playbooks:  []string{PlaybookSite, PlaybookCleanup},
		Joins:      true,
		Leaves:     true,
		Helps:      true,
		Cleans:     true,
		GroupAfter: func(_ Job, n inventory.Node) string { return n.Group },
		Plan:       (*Planner).reapply,
	})
}

func (p *Planner) reapply() Step {
	cleaned, configured := p.worstReapplyCleanup(), p.last(PhaseConfigure)

	// The result of one host takes no other out of service: each that was cleaned is
	// configured again, even if the cleanup of others broke off. Only a stop ends the job.
	if p.stop == "" && configured == nil {
		if step := p.cleanToReapply(); len(step.Hosts) > 0 {
			return step
		}

		isClean := func(t Target) bool { return p.cleaned(PhaseCleanup, t, t.FromGroup) }
		if slices.ContainsFunc(p.Targets, isClean) {
			return p.run(PhaseConfigure, PlaybookSite, newGroup, isClean)
		}
	}

	failed := configured
	if configured == nil || done(configured) && !done(cleaned) {
		failed = cleaned
	}
	cause, message := p.failure(failed)
	if done(configured) && done(cleaned) {
		cause, message = "", "" // the stop came after the end
	}
	return p.end(cause, message, p.each(func(t Target) inventory.Outcome {
		return p.reapplied(t, configured, message)
	}))
}

// cleanToReapply returns the next cleanup. An interrupted one is repeated, because it may
// have left its hosts half clean. After one that broke off for good, no other begins.
func (p *Planner) cleanToReapply() Step {
	interrupted := func(t Target) bool {
		runs := p.attempts(PhaseCleanup, t, t.FromGroup)
		return len(runs) > 0 && len(runs) < undoAttempts && runs[len(runs)-1].Exit == string(CauseInterrupted)
	}

	brokeOff := slices.ContainsFunc(p.Targets, func(t Target) bool {
		r := p.lastOf(PhaseCleanup, t, t.FromGroup)
		return r != nil && !done(r) && !failedOn(r) && !interrupted(t)
	})

	due := func(t Target) bool {
		return interrupted(t) || !brokeOff && p.lastOf(PhaseCleanup, t, t.FromGroup) == nil
	}

	return p.runOf(p.own, PhaseCleanup, PlaybookCleanup, formerGroup, due)
}

// worstReapplyCleanup returns the first cleanup that was not repeated and failed, else
// the last one.
func (p *Planner) worstReapplyCleanup() *Run {
	for _, t := range p.Targets {
		if r := p.lastOf(PhaseCleanup, t, t.FromGroup); r != nil && !done(r) {
			return r
		}
	}

	return p.last(PhaseCleanup)
}

// reapplied returns the outcome of a target. why is the failure of the job.
func (p *Planner) reapplied(t Target, configured *Run, why string) inventory.Outcome {
	if configured != nil && configured.succeeded(t.Name) {
		return p.inService(t)
	}

	o := inventory.Outcome{Status: p.row.Failed, Group: t.FromGroup, Applied: t.Applied, Reason: why}
	cleanup, isClean := p.lastOf(PhaseCleanup, t, t.FromGroup), p.cleaned(PhaseCleanup, t, t.FromGroup)

	switch {
	case !isClean && !p.mayHaveChanged(t.Name):
		o.Error = hostFailure(cleanup, t.Name, "not configured again: "+why)
		return o
	case !isClean:
		o.Error = "the cleanup broke off: " + hostFailure(cleanup, t.Name, why)
	case configured == nil || configured.NotBegun || !slices.Contains(configured.Hosts, t.Name):
		o.Error = "cleaned, and not configured again: " + why
	default:
		o.Error = "cleaned, and not configured to the end: " + hostFailure(configured, t.Name, why)
	}

	o.Applied, o.Cleaned = "", true

	return o
}
