// SPDX-License-Identifier: Apache-2.0

package job

import (
	"slices"

	"github.com/contiv/cluster/inventory"
)

func init() {
	// Reapply cleans nodes in service and configures them again in their own group.
	// Whatever fails, they stay in it, so that it can be repeated.
	register(Verb{
		Name:       inventory.VerbReapply,
		Playbooks:  []string{PlaybookSite, PlaybookCleanup},
		Joins:      true,
		Leaves:     true,
		Helps:      true,
		Cleans:     true,
		GroupAfter: func(_ Job, n inventory.Node) string { return n.Group },
		plan:       (*planner).reapply,
	})
}

func (p *planner) reapply() Step {
	cleaned, configured := p.worstCleanup(), p.last(PhaseConfigure)

	// The failure of one host takes no other out of service: each that was cleaned is
	// configured again. Only a stop, or a run that broke off, ends the job.
	onlyHosts := cleaned == nil || done(cleaned) || failedOn(cleaned)
	if p.stop == "" && configured == nil && onlyHosts {
		step := p.clean(PhaseCleanup, func(t Target) []string { return []string{t.FromGroup} })
		if len(step.Hosts) > 0 {
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

// reapplied returns the outcome of a target. why is the failure of the job.
func (p *planner) reapplied(t Target, configured *Run, why string) inventory.Outcome {
	if configured != nil && configured.succeeded(t.Name) {
		return p.inService(t)
	}

	o := inventory.Outcome{Status: p.row.Failed, Group: t.FromGroup, Applied: t.Applied, Reason: why}

	var cleanup *Run
	if runs := p.attempts(PhaseCleanup, t, t.FromGroup); len(runs) > 0 {
		cleanup = runs[len(runs)-1]
	}

	switch {
	case cleanup == nil || cleanup.NotBegun,
		!cleanup.succeeded(t.Name) && !cleanup.Results[t.Name].mayHaveChanged():
		o.Error = hostFailure(cleanup, t.Name, "not configured again: "+why)

		return o
	case !cleanup.succeeded(t.Name):
		o.Error = "the cleanup broke off: " + hostFailure(cleanup, t.Name, why)
	case configured == nil || configured.NotBegun || !slices.Contains(configured.Hosts, t.Name):
		o.Error = "cleaned, and not configured again: " + why
	default:
		o.Error = "cleaned, and not configured to the end: " + hostFailure(configured, t.Name, why)
	}

	o.Applied = ""

	return o
}
