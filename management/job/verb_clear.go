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
		Helps:     true,
		Cleans:    true,
		Plan:      (*Planner).clear,
	})
}

func (p *Planner) clear() Step {
	// The operator has cleaned the host. The record keeps the residue nevertheless.
	if p.Force {
		return p.end("", "", p.each(func(t Target) inventory.Outcome {
			return inventory.Outcome{
				Status: p.row.Success, Residue: carried(t), Reason: "cleared without a cleanup: " + p.Reason,
			}
		}))
	}

	cleanup := p.worstCleanup()
	if p.stop == "" && (cleanup == nil || done(cleanup)) {
		if step := p.clean(PhaseCleanup, carried); len(step.Hosts) > 0 {
			return step
		}
	}

	cause, message := p.failure(cleanup)
	dirty := false

	outcomes := p.each(func(t Target) inventory.Outcome {
		// A target that carries nothing is clean without a run, unless the job was stopped.
		cleaned := len(p.uncleaned(t)) == 0 && (cleanup != nil || p.stop == "")
		if cleaned {
			return inventory.Outcome{Status: p.row.Success}
		}

		dirty = true
		why := hostFailure(cleanup, t.Name, message)

		return inventory.Outcome{
			Status: p.row.Failed, Group: t.FromGroup, Residue: t.Residue, Error: why, Reason: why,
		}
	})

	// A stop after the last cleanup changes nothing.
	if !dirty {
		cause, message = "", ""
	}

	step := p.end(cause, message, outcomes)
	step.Note = p.describeCleared(outcomes)

	return step
}

// describeCleared lists the groups of which each cleared target was cleaned.
func (p *Planner) describeCleared(outcomes map[string]inventory.Outcome) string {
	const most = 8 // targets in one note

	var parts []string
	for _, t := range p.Targets {
		switch groups := carried(t); {
		case outcomes[t.Name].Error != "":
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
