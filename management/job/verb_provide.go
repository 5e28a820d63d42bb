// SPDX-License-Identifier: Apache-2.0

package job

import (
	"slices"

	"github.com/contiv/cluster/inventory"
)

func init() {
	// Provide cleans nodes and offers them for use. Each node has its own end: one that fails keeps no other back.
	Register(Verb{
		Name:      inventory.VerbProvide,
		Steps:     []StepKind{StepPlaybook},
		Playbooks: []string{PlaybookCleanup},
		Optional:  []string{PlaybookClean},
		Helps:     true,
		Cleans:    true,
		Plan:      (*Planner).provide,
	})
}

func noGroup(Target) string { return "" }

func bundled(Target, string) string { return PlaybooksBundled }

func (p *Planner) provide() Step {
	// The playbooks that left residue remove it. clean.yml then finds nothing of it.
	if p.stop == "" {
		if step := p.clean(PhaseResidue, residue); len(step.Hosts) > 0 {
			return step
		}
		if step := p.runOf(bundled, PhaseErase, PlaybookErase, noGroup, p.mayErase); len(step.Hosts) > 0 {
			return step
		}
		if step := p.run(PhaseClean, PlaybookClean, noGroup, p.mayClean); len(step.Hosts) > 0 {
			return step
		}
	}

	var failed *Run
	for _, t := range p.Targets {
		if failed == nil && !p.provided(t) {
			failed = p.notCleaned(t)
		}
	}

	cause, message := p.failure(failed)
	if !slices.ContainsFunc(p.Targets, func(t Target) bool { return !p.provided(t) }) {
		cause, message = "", "" // the stop came after the end
	}

	step := p.end(cause, message, p.each(func(t Target) inventory.Outcome {
		if p.provided(t) {
			return inventory.Outcome{Status: p.row.Success, Trusted: p.cleaned(PhaseClean, t, "")}
		}

		o := inventory.Outcome{Status: p.row.Failed, Residue: p.residueLeft(t)}
		if p.mayHaveChanged(t.Name) {
			o.Status, o.Uncleaned = p.row.Dirty, true
		}
		o.Error = "not cleaned: " + hostFailure(p.notCleaned(t), t.Name, message)
		o.Reason = o.Error

		return o
	}))
	step.Note = p.describeUncleaned(step.Outcomes)

	return step
}

// mayErase reports whether the disks of the target are to be erased now.
func (p *Planner) mayErase(t Target) bool {
	return p.Erase != "" && t.Addr != "" && len(p.residueLeft(t)) == 0 && p.isDue(PhaseErase, t)
}

// mayClean reports whether clean.yml is to run on the target now.
func (p *Planner) mayClean(t Target) bool {
	erased := p.Erase == "" || p.cleaned(PhaseErase, t, "")
	return t.Addr != "" && len(p.residueLeft(t)) == 0 && erased && p.isDue(PhaseClean, t)
}

// isDue reports whether the phase has not run on the target yet, or is repeated because it was interrupted.
func (p *Planner) isDue(phase Phase, t Target) bool {
	runs := p.attempts(phase, t, "")
	return len(runs) == 0 || runs[len(runs)-1].Exit == string(CauseInterrupted) && len(runs) < undoAttempts
}

// provided reports whether the target may be offered for use. Nothing was ever put on a machine that ssh has no address
// of, so there is nothing to clean.
func (p *Planner) provided(t Target) bool {
	if t.Addr == "" && len(t.Residue) == 0 && !t.Uncleaned {
		return p.stop == "" || len(p.Runs) > 0
	}
	return p.cleaned(PhaseClean, t, "")
}

// notCleaned returns the run that failed on the target, or nil if none began.
func (p *Planner) notCleaned(t Target) *Run {
	for _, g := range p.residueLeft(t) {
		if r := p.lastOf(PhaseResidue, t, g); r != nil {
			return r
		}
	}
	if p.Erase != "" && !p.cleaned(PhaseErase, t, "") {
		return p.lastOf(PhaseErase, t, "")
	}
	return p.lastOf(PhaseClean, t, "")
}

// describeUncleaned names the nodes that are offered without a cleaning.
func (p *Planner) describeUncleaned(outcomes map[string]inventory.Outcome) string {
	var names []string
	for _, t := range p.Targets {
		if t.Addr == "" && outcomes[t.Name].Error == "" {
			names = append(names, t.Name)
		}
	}

	if len(names) == 0 {
		return ""
	}
	return "not cleaned, because ssh has no address of it, so nothing was ever put there: " + ShortList(names)
}
