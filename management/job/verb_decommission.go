// SPDX-License-Identifier: Apache-2.0

package job

import "github.com/contiv/cluster/inventory"

func init() {
	// Decommission takes nodes out of service and cleans them. The cleanup is best
	// effort: a dead host can be decommissioned, and its residue is remembered.
	Register(Verb{
		Name:      inventory.VerbDecommission,
		Steps:     []StepKind{StepPlaybook},
		Playbooks: []string{PlaybookCleanup},
		Leaves:    true,
		Helps:     true,
		Cleans:    true,
		Plan:      (*Planner).decommission,
	})
}

func (p *Planner) decommission() Step {
	cleanup := p.worstCleanup()

	// Best effort: the failure of one round does not spare the next.
	if p.stop == "" && (cleanup == nil || done(cleanup) || failedOn(cleanup)) {
		if step := p.clean(PhaseCleanup, carried); len(step.Hosts) > 0 {
			return step
		}
	}

	cause, message := p.failure(cleanup)
	dirty := false

	outcomes := p.each(func(t Target) inventory.Outcome {
		o := inventory.Outcome{Status: p.row.Success, Residue: p.uncleaned(t)}
		if len(o.Residue) > 0 {
			dirty = true
			o.Status = p.row.Dirty
			o.Error = "not cleaned: " + hostFailure(cleanup, t.Name, message)
			o.Reason = o.Error
		}

		return o
	})

	switch {
	case !dirty && cause == CauseFailed:
		// The nodes are clean, so a helper has failed.
		step := p.end("", "", outcomes)
		step.Message = message
		return step
	case !dirty:
		return p.end("", "", outcomes) // a stop came after the end
	case cause == CauseFailed:
		// The nodes are out of service, so the job is complete.
		step := p.end("", "", outcomes)
		step.Message = "not everything could be cleaned: " + message
		return step
	}

	return p.end(cause, message, outcomes)
}
