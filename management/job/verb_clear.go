// SPDX-License-Identifier: Apache-2.0

package job

import (
	"strings"

	"github.com/contiv/cluster/inventory"
)

func init() {
	// Clear cleans quarantined nodes and trusts them again. Force skips
	// the cleanup and needs the operator's reason.
	Register(Verb{
		Name:      inventory.VerbClear,
		Steps:     []StepKind{StepPlaybook},
		Playbooks: []string{PlaybookCleanup},
		Optional:  []string{PlaybookClean},
		Helps:     true,
		Cleans:    true,
		Plan:      (*Planner).clear,
		// A broken folder keeps no node from a cleanup that does not need it.
		OnlyUncleaned: true,
	})
}

func (p *Planner) clear() Step {
	// The operator has cleaned the host. The record keeps the residue nevertheless.
	if p.Force {
		return p.end("", "", p.each(func(t Target) inventory.Outcome {
			return inventory.Outcome{
				Status: p.row.Success, Residue: carried(t), Trusted: true,
				Reason: "cleared without a cleanup: " + p.Reason,
			}
		}))
	}

	cleanup := p.worstCleanup()
	if p.stop == "" && (cleanup == nil || done(cleanup)) {
		if step := p.clean(PhaseCleanup, carried); len(step.Hosts) > 0 {
			return step
		}
	}

	if p.stop == "" {
		if step := p.run(PhaseClean, PlaybookClean, noGroup, p.mayCleanAgain); len(step.Hosts) > 0 {
			return step
		}
	}

	failed := cleanup
	for _, t := range p.Targets {
		if (failed == nil || done(failed)) && !p.cleared(t) {
			failed = p.lastOf(PhaseClean, t, "")
		}
	}

	cause, message := p.failure(failed)
	dirty := false

	outcomes := p.each(func(t Target) inventory.Outcome {
		if p.cleared(t) {
			return inventory.Outcome{Status: p.row.Success, Trusted: p.cleaned(PhaseClean, t, "")}
		}

		dirty = true
		o := inventory.Outcome{Status: p.row.Failed}

		if len(p.uncleaned(t)) > 0 {
			o.Group, o.Residue = t.FromGroup, t.Residue
			o.Error = hostFailure(cleanup, t.Name, message)
		} else {
			o.Error = "not cleaned: " + hostFailure(p.lastOf(PhaseClean, t, ""), t.Name, message)
		}
		o.Reason = o.Error

		return o
	})

	// A stop after the last cleanup changes nothing.
	if !dirty {
		cause, message = "", ""
	}

	step := p.end(cause, message, outcomes)
	step.Note = p.describeCleared(outcomes)

	return step
}

// mayCleanAgain reports whether clean.yml is to run on the target now, because an earlier cleaning failed.
func (p *Planner) mayCleanAgain(t Target) bool {
	return t.Uncleaned && t.Addr != "" && len(p.uncleaned(t)) == 0 && p.isDue(PhaseClean, t)
}

// cleared reports whether the target may be trusted again. One that carries nothing is clean without a run, unless the
// job was stopped.
func (p *Planner) cleared(t Target) bool {
	switch {
	case len(p.uncleaned(t)) > 0:
		return false
	case t.Uncleaned:
		return p.cleaned(PhaseClean, t, "")
	}

	return p.stop == "" || len(p.Runs) > 0
}

// describeCleared lists the groups of which each cleared target was cleaned.
func (p *Planner) describeCleared(outcomes map[string]inventory.Outcome) string {
	const most = 8 // targets in one note

	var parts []string
	for _, t := range p.Targets {
		switch groups := carried(t); {
		case outcomes[t.Name].Error != "":
		case len(groups) == 0 && t.Uncleaned:
			parts = append(parts, t.Name+" was cleaned by "+PlaybookClean)
		case len(groups) == 0:
			parts = append(parts, t.Name+" carried no configuration")
		default:
			parts = append(parts, t.Name+" was cleaned of "+strings.Join(groups, " and "))
		}
	}

	if more := len(parts) - most; more > 0 {
		parts = append(parts[:most], "and "+inventory.Count(more, "more node", "more nodes"))
	}

	return strings.Join(parts, "; ")
}
