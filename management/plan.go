// SPDX-License-Identifier: Apache-2.0

package management

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
)

// The files of a configuration repository, by what they are run for.
const (
	PlaybookSite    = "site.yml"
	PlaybookCleanup = "cleanup.yml"
	PlaybookVerify  = "verify.yml"
	PlaybookUpgrade = "rolling-upgrade.yml"
)

// undoAttempts bounds how often the failure path is begun again after it
// was interrupted.
const undoAttempts = 2

// Step is what a Running job does next: one run of a playbook, waiting for
// hosts to appear, or its end.
type Step struct {
	Phase    Phase // empty: the job ends
	Playbook string
	Hosts    []string
	Groups   []string // parallel to Hosts

	// The rest is set where the job ends.
	Status   JobStatus
	Cause    Cause
	Reason   string
	Outcomes map[string]inventory.Outcome
}

// playbooks are the files that a verb may run, in the order it runs them.
func playbooks(v inventory.Verb) []string {
	switch v {
	case inventory.VerbCommission, inventory.VerbUpdate:
		return []string{PlaybookSite, PlaybookCleanup}
	case inventory.VerbMaintenance:
		return []string{PlaybookUpgrade}
	case inventory.VerbDiscover:
		return []string{PlaybookSite}
	}

	return []string{PlaybookCleanup}
}

// plan decides the next step of a Running job from its record alone, so that
// whoever finds the job can go on with it. Every run in j.Runs has ended. leave
// tells whether cleaning these nodes would break a group rule.
func plan(j Job, now time.Time, leave func(names []string) error) Step {
	p := planner{Job: j, leave: leave}
	switch {
	case j.Cancel > 0:
		p.stop, p.why = CauseCancelled, "cancelled by "+orSomeone(j.CancelBy)
	case !j.Deadline.IsZero() && now.After(j.Deadline):
		p.stop, p.why = CauseDeadline, fmt.Sprintf("it ran longer than %s", j.Timeout)
	}

	switch j.Verb {
	case inventory.VerbCommission:
		return p.commission()
	case inventory.VerbUpdate:
		return p.update()
	case inventory.VerbMaintenance:
		return p.maintenance()
	case inventory.VerbDecommission:
		return p.decommission()
	case inventory.VerbClear:
		return p.clear()
	case inventory.VerbForget:
		return p.forget()
	}

	return p.discover()
}

type planner struct {
	Job
	leave func([]string) error
	stop  Cause  // why the verb's own phases must not go on
	why   string // the same in words
}

// last returns the last run of the phase.
func (p *planner) last(phase Phase) *Run {
	for i := len(p.Runs) - 1; i >= 0; i-- {
		if p.Runs[i].Phase == phase {
			return &p.Runs[i]
		}
	}

	return nil
}

func (p *planner) count(phase Phase) (n int) {
	for _, r := range p.Runs {
		if r.Phase == phase {
			n++
		}
	}

	return n
}

// run is a step over all targets that keep tells, each in the group that in gives.
func (p *planner) run(phase Phase, playbook string, in func(Target) string, keep func(Target) bool) Step {
	s := Step{Phase: phase, Playbook: playbook}
	for _, t := range p.Targets {
		if keep == nil || keep(t) {
			s.Hosts = append(s.Hosts, t.Name)
			s.Groups = append(s.Groups, in(t))
		}
	}

	return s
}

// failure is the cause and the reason for not going on: what stopped the job,
// or else how the run ended.
func (p *planner) failure(r *Run) (Cause, string) {
	if r == nil || r.Exit == ExitDone {
		return p.stop, p.why
	}

	cause := Cause(r.Exit)
	if cause == "" {
		cause = CauseInternal
	}

	switch {
	case cause == CauseCancelled && p.stop == CauseCancelled, cause == CauseDeadline && p.stop == CauseDeadline:
		return cause, p.why
	case r.Message != "" && cause != CauseFailed: // of a failure, hosts know more
		return cause, r.Message
	}

	var parts []string
	for _, h := range r.Hosts {
		if res := r.Results[h]; !res.Done && (res.Failed > 0 || res.Unreachable) {
			parts = append(parts, h+": "+describe(res))
		}
	}

	if len(parts) == 0 && r.Message != "" {
		return cause, r.Playbook + " broke off: " + r.Message
	}

	if len(parts) == 0 {
		return cause, fmt.Sprintf("%s ended with status %d", r.Playbook, r.Code)
	}

	if len(parts) > 5 {
		parts = append(parts[:5], "and "+inventory.Count(len(parts)-5, "more host", "more hosts"))
	}

	return cause, r.Playbook + " failed on " + strings.Join(parts, "; ")
}

func describe(r HostResult) string {
	msg, _, _ := strings.Cut(r.Message, "\n")

	msg = shorten(msg, 300)
	switch {
	case r.Unreachable:
		return "unreachable: " + msg
	case r.Task != "" && msg != "":
		return fmt.Sprintf("task %q: %s", r.Task, msg)
	case r.Task != "":
		return fmt.Sprintf("task %q", r.Task)
	case msg != "":
		return msg
	case r.Begun:
		return "did not reach the end"
	}

	return "not begun"
}

// end is the last step.
func (p *planner) end(cause Cause, reason string, outcomes map[string]inventory.Outcome) Step {
	s := Step{Status: Complete, Cause: cause, Reason: reason, Outcomes: outcomes}
	switch {
	case cause == CauseCancelled:
		s.Status = Cancelled
	case cause != "":
		s.Status = Errored
	}

	return s
}

func (p *planner) each(f func(Target) inventory.Outcome) map[string]inventory.Outcome {
	out := make(map[string]inventory.Outcome, len(p.Targets))
	for _, t := range p.Targets {
		out[t.Name] = f(t)
	}

	return out
}

// own is the node's part of a failure: its own result where it has one, else the job's reason.
func own(r *Run, name, reason string) string {
	if r != nil {
		if res, ok := r.Results[name]; ok && !res.Done && (res.Failed > 0 || res.Unreachable) {
			return describe(res)
		}
	}

	return reason
}

// residue returns the step that cleans what earlier verbs left on the targets,
// done where there is nothing (more) to clean, or the run that failed.
func (p *planner) residue() (step Step, failed *Run, done bool) {
	round := p.count(PhaseResidue)
	if last := p.last(PhaseResidue); last != nil && last.Exit != ExitDone {
		return Step{}, last, false
	}

	step = p.run(PhaseResidue, PlaybookCleanup,
		func(t Target) string { return t.Residue[round] },
		func(t Target) bool { return len(t.Residue) > round })

	return step, nil, len(step.Hosts) == 0
}

func (p *planner) commission() Step {
	configured := p.last(PhaseConfigure)
	if configured == nil {
		step, failed, done := p.residue()
		if failed != nil || p.stop != "" {
			cause, reason := p.failure(failed)

			return p.end(cause, reason, p.each(func(t Target) inventory.Outcome {
				return inventory.Outcome{
					Status:  inventory.Unallocated,
					Residue: p.left(t),
					Error:   own(failed, t.Name, reason),
					Reason:  reason,
				}
			}))
		}

		if !done {
			return step
		}

		return p.run(PhaseConfigure, PlaybookSite, func(t Target) string { return t.Group }, nil)
	}

	if configured.Exit == ExitDone {
		return p.end("", "", p.each(p.inService))
	}

	if configured.NotBegun {
		// Nothing was touched, so there is nothing to clean.
		cause, reason := p.failure(configured)

		return p.end(cause, reason, p.each(func(t Target) inventory.Outcome {
			return inventory.Outcome{Status: inventory.Unallocated, Residue: p.left(t), Error: reason, Reason: reason}
		}))
	}

	keeps := func(t Target) bool {
		return p.OnFailure == OnFailureFailed && configured.Exit == string(CauseFailed) &&
			configured.Results[t.Name].Done
	}

	return p.undo(
		configured,
		func(t Target) string { return t.Group },
		func(t Target) bool { return !keeps(t) },
		p.inService,
	)
}

// left is the residue that the target still has.
func (p *planner) left(t Target) []string {
	cleaned := 0
	for _, r := range p.Runs {
		if r.Phase == PhaseResidue && r.Results[t.Name].Done {
			cleaned++
		}
	}

	return slices.Clone(t.Residue[min(cleaned, len(t.Residue)):])
}

func (p *planner) inService(t Target) inventory.Outcome {
	return inventory.Outcome{Status: inventory.Allocated, Group: t.Group, Applied: p.ID}
}

// undo is the failure path of verbs that clean up: the dirty targets are
// cleaned, then Unallocated, or Quarantined where that fails, is skipped by a
// second cancel, or would break a rule. The others get what rest gives.
func (p *planner) undo(
	failed *Run,
	in func(Target) string,
	dirty func(Target) bool,
	rest func(Target) inventory.Outcome,
) Step {
	cause, reason := p.failure(failed)
	step := p.run(PhaseUndo, PlaybookCleanup, in, dirty)
	undone := p.last(PhaseUndo)

	skipped := ""
	switch {
	case len(step.Hosts) == 0:
	case p.Cancel > 1:
		skipped = "the cleanup was skipped by a second cancel"
	case undone == nil:
		if err := p.leave(step.Hosts); err != nil {
			skipped = "the cleanup was not run: " + message(err)
			break
		}

		return step
	case undone.Exit == string(CauseInterrupted) && p.count(PhaseUndo) < undoAttempts:
		return step
	}

	return p.end(cause, reason, p.each(func(t Target) inventory.Outcome {
		if !dirty(t) {
			return rest(t)
		}

		why := own(failed, t.Name, reason)
		if undone != nil && undone.Results[t.Name].Done {
			return inventory.Outcome{Status: inventory.Unallocated, Error: why, Reason: reason}
		}

		detail := skipped
		if detail == "" && undone != nil {
			detail = "the cleanup failed: " + own(undone, t.Name, cmp.Or(undone.Message, "it did not reach the end"))
		}

		return inventory.Outcome{
			Status: inventory.Quarantined,
			Group:  in(t),
			Error:  why + "; " + detail,
			Reason: reason + "; " + detail,
		}
	}))
}

func (p *planner) update() Step {
	cleaned, configured := p.last(PhaseCleanup), p.last(PhaseConfigure)
	was := func(t Target) string { return t.FromGroup }

	stays := func(t Target) inventory.Outcome {
		_, reason := p.failure(cleaned)
		return inventory.Outcome{
			Status:  inventory.Allocated,
			Group:   t.FromGroup,
			Applied: t.Applied,
			Error:   reason,
			Reason:  reason,
		}
	}
	switch {
	case cleaned == nil && p.stop != "":
		return p.end(p.stop, p.why, p.each(stays))
	case cleaned == nil:
		return p.run(PhaseCleanup, PlaybookCleanup, was, nil)
	case cleaned.Exit != ExitDone:
		return p.undo(cleaned, was, func(t Target) bool { return cleaned.Results[t.Name].Begun }, stays)
	case configured == nil && p.stop != "":
		return p.undo(cleaned, was, func(Target) bool { return true }, nil)
	case configured == nil:
		return p.run(PhaseConfigure, PlaybookSite, func(t Target) string { return t.Group }, nil)
	case configured.Exit == ExitDone:
		return p.end("", "", p.each(p.inService))
	case configured.NotBegun:
		// The old configuration is gone and the new one was not begun: all clean.
		cause, reason := p.failure(configured)

		return p.end(cause, reason, p.each(func(Target) inventory.Outcome {
			return inventory.Outcome{Status: inventory.Unallocated, Error: reason, Reason: reason}
		}))
	}

	return p.undo(configured, func(t Target) string { return t.Group }, func(Target) bool { return true }, nil)
}

func (p *planner) maintenance() Step {
	upgraded := p.last(PhaseUpgrade)
	if upgraded == nil && p.stop == "" {
		return p.run(PhaseUpgrade, PlaybookUpgrade, func(t Target) string { return t.Group }, nil)
	}

	cause, reason := p.failure(upgraded)
	if upgraded != nil && upgraded.Exit == ExitDone {
		cause, reason = "", "" // what stops the job came after its end
	}

	return p.end(cause, reason, p.each(func(t Target) inventory.Outcome {
		o := inventory.Outcome{Status: inventory.Allocated, Group: t.FromGroup, Applied: t.Applied}
		if upgraded != nil && upgraded.Results[t.Name].Done {
			o.Applied = p.ID
			return o
		}

		o.Reason = reason

		o.Error = own(upgraded, t.Name, "not upgraded: "+reason)
		if upgraded != nil && upgraded.Results[t.Name].Begun {
			o.Applied = ""
		}

		return o
	}))
}

// carried are the groups whose configuration the target may carry.
func carried(t Target) []string {
	return inventory.Node{Residue: t.Residue, Group: t.FromGroup}.Carries()
}

// cleanings is the next round of cleaning what the targets carry, one group of
// each at a time; without hosts where there is nothing (more) to clean.
func (p *planner) cleanings() Step {
	round := p.count(PhaseCleanup)

	return p.run(PhaseCleanup, PlaybookCleanup,
		func(t Target) string { return carried(t)[round] }, func(t Target) bool { return len(carried(t)) > round })
}

// uncleaned is what the target still carries after the rounds so far.
func (p *planner) uncleaned(t Target) []string {
	groups, round := carried(t), 0

	var left []string
	for _, r := range p.Runs {
		if r.Phase != PhaseCleanup {
			continue
		}

		if round < len(groups) && !r.Results[t.Name].Done {
			left = append(left, groups[round])
		}

		round++
	}

	return append(left, groups[min(round, len(groups)):]...)
}

// unclean is the first run that could not clean everything; else the last.
func (p *planner) unclean() *Run {
	for i := range p.Runs {
		if r := &p.Runs[i]; r.Phase == PhaseCleanup && r.Exit != ExitDone {
			return r
		}
	}

	return p.last(PhaseCleanup)
}

func (p *planner) decommission() Step {
	cleaned := p.unclean()
	if p.stop == "" && (cleaned == nil || cleaned.Exit == ExitDone || cleaned.Exit == string(CauseFailed)) {
		if step := p.cleanings(); len(step.Hosts) > 0 {
			return step
		}
	}

	cause, reason := p.failure(cleaned)

	outcomes, dirty := map[string]inventory.Outcome{}, false
	for _, t := range p.Targets {
		o := inventory.Outcome{Status: inventory.Decommissioned, Residue: p.uncleaned(t)}
		if len(o.Residue) > 0 {
			dirty = true
			o.Error = "not cleaned: " + own(cleaned, t.Name, reason)
			o.Reason = o.Error
		}

		outcomes[t.Name] = o
	}

	switch {
	case !dirty:
		return p.end("", "", outcomes) // what stops the job came after its end
	case cause == CauseFailed:
		// Cleanup is best effort: the verb itself has succeeded.
		s := p.end("", "", outcomes)
		s.Reason = "not everything could be cleaned: " + reason

		return s
	}

	return p.end(cause, reason, outcomes)
}

func (p *planner) clear() Step {
	if p.Force {
		return p.end("", "", p.each(func(t Target) inventory.Outcome {
			return inventory.Outcome{
				Status:  inventory.Unallocated,
				Residue: carried(t),
				Reason:  "cleared without a cleanup: " + p.Reason,
			}
		}))
	}

	cleaned := p.unclean()
	if p.stop == "" && (cleaned == nil || cleaned.Exit == ExitDone) {
		if step := p.cleanings(); len(step.Hosts) > 0 {
			return step
		}
	}

	cause, reason := p.failure(cleaned)

	outcomes, dirty := map[string]inventory.Outcome{}, false
	for _, t := range p.Targets {
		left := p.uncleaned(t)
		if len(left) == 0 && (cleaned != nil || p.stop == "") {
			outcomes[t.Name] = inventory.Outcome{Status: inventory.Unallocated}
			continue
		}

		dirty = true
		why := own(cleaned, t.Name, reason)
		outcomes[t.Name] = inventory.Outcome{
			Status:  inventory.Quarantined,
			Group:   t.FromGroup,
			Residue: t.Residue,
			Error:   why,
			Reason:  why,
		}
	}

	if !dirty {
		return p.end("", "", outcomes)
	}

	return p.end(cause, reason, outcomes)
}

// forget removes the agent: cleanup.yml undoes what site.yml did for hosts
// that were being prepared.
func (p *planner) forget() Step {
	removed := p.last(PhaseCleanup)
	if removed == nil && p.stop == "" {
		return p.run(PhaseCleanup, PlaybookCleanup, func(Target) string { return inventory.GroupPrepare }, nil)
	}

	cause, reason := p.failure(removed)
	if removed != nil && removed.Exit == ExitDone {
		cause, reason = "", ""
	}

	return p.end(cause, reason, p.each(func(t Target) inventory.Outcome {
		if removed != nil && removed.Results[t.Name].Done {
			return inventory.Outcome{}
		}

		why := "its agent was not removed: " + own(removed, t.Name, reason)

		return inventory.Outcome{
			Status:  t.From,
			Group:   t.FromGroup,
			Applied: t.Applied,
			Residue: t.Residue,
			Error:   why,
			Reason:  why,
		}
	}))
}

func (p *planner) discover() Step {
	configured, appeared := p.last(PhaseConfigure), p.last(PhaseAppear)
	switch {
	case configured == nil && p.stop == "":
		return p.run(PhaseConfigure, PlaybookSite, func(t Target) string { return t.Group }, nil)
	case configured == nil:
		return p.end(p.stop, p.why, nil)
	}

	if idle := p.idle(configured); len(idle) > 0 {
		return p.end(
			CauseFailed,
			fmt.Sprintf(
				"%s ran no task on %s; it needs a play for the group %s that installs the agent (the bundled role agent)",
				PlaybookSite,
				join(idle),
				inventory.GroupPrepare,
			),
			nil,
		)
	}

	cause, reason := p.failure(configured)

	partly := cause == "" || configured.Exit == string(CauseFailed)
	if appeared == nil && p.stop == "" && partly {
		// Those that were prepared are waited for, whatever became of the others.
		step := p.run(
			PhaseAppear,
			"",
			func(t Target) string { return t.Group },
			func(t Target) bool { return configured.Results[t.Name].Done },
		)
		if len(step.Hosts) > 0 {
			return step
		}
	}

	if appeared != nil && appeared.Exit != ExitDone {
		late, why := p.failure(appeared)
		if reason != "" {
			why = reason + "; " + why
		}

		return p.end(late, why, nil)
	}

	if cause == "" || appeared != nil && configured.Exit == ExitDone {
		return p.end("", "", nil)
	}

	return p.end(cause, reason, nil)
}

// idle are the hosts on which a run that succeeded did nothing at all.
func (p *planner) idle(r *Run) []string {
	var out []string
	for _, h := range r.Hosts {
		if r.Exit == ExitDone && !r.Results[h].Begun {
			out = append(out, h)
		}
	}

	return out
}

func orSomeone(s string) string { return cmp.Or(s, "somebody") }
