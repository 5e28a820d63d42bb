// SPDX-License-Identifier: Apache-2.0

package job

import (
	"slices"

	"github.com/contiv/cluster/inventory"
)

func init() {
	// Install writes an image to the disks of nodes, brings their agents up, and waits until these speak. Each node has
	// its own end: one that fails keeps no other back.
	Register(Verb{
		Name:          inventory.VerbInstall,
		Steps:         []StepKind{StepInstall, StepPlaybook, StepAppear},
		Playbooks:     []string{PlaybookSite},
		InstallsAgent: true,
		Plan:          (*Planner).install,
	})
}

func (p *Planner) install() Step {
	installed, configured, appeared := p.last(PhaseInstall), p.last(PhaseConfigure), p.last(PhaseAppear)

	if p.stop == "" {
		next := Step{}

		switch {
		case installed == nil:
			next = p.run(PhaseInstall, "", formerGroup, everyTarget)
			next.Kind = StepInstall
		case configured == nil:
			next = p.run(PhaseConfigure, PlaybookSite, prepareGroup, func(t Target) bool {
				return installed.succeeded(t.Name)
			})
		case appeared == nil:
			next = p.run(PhaseAppear, "", prepareGroup, func(t Target) bool { return configured.succeeded(t.Name) })
			next.Kind = StepAppear
		}

		if len(next.Hosts) > 0 {
			return next
		}
	}

	// failed is the step in which a target failed, or nil if it was not begun.
	failed := func(t Target) *Run {
		for _, r := range []*Run{installed, configured, appeared} {
			if r == nil || !r.succeeded(t.Name) {
				return r
			}
		}

		return appeared
	}
	ready := func(t Target) bool { return appeared != nil && appeared.succeeded(t.Name) }

	var worst *Run
	if i := slices.IndexFunc(p.Targets, func(t Target) bool { return !ready(t) }); i >= 0 {
		worst = failed(p.Targets[i])
	}

	cause, message := p.failure(worst)
	if !slices.ContainsFunc(p.Targets, func(t Target) bool { return !ready(t) }) {
		cause, message = "", "" // the stop came after the end
	}

	return p.end(cause, message, p.each(func(t Target) inventory.Outcome {
		if ready(t) {
			return inventory.Outcome{Status: p.row.Success, Trusted: true}
		}

		o := inventory.Outcome{Status: p.row.Failed, Trusted: true}

		switch {
		case installed == nil || !installed.Results[t.Name].mayHaveChanged():
			// It is as it was.
			o = inventory.Outcome{Status: t.From, Group: t.FromGroup, Residue: t.Residue, Uncleaned: t.Uncleaned}
			o.Error = "not installed: " + hostFailure(installed, t.Name, message)
		case !installed.succeeded(t.Name):
			o = inventory.Outcome{Status: p.row.Dirty}
			o.Error = "not installed: " + hostFailure(installed, t.Name, message)
		default:
			o.Error = "installed, and its agent is missing: " + hostFailure(failed(t), t.Name, message)
		}
		o.Reason = o.Error

		return o
	}))
}
