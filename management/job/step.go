// SPDX-License-Identifier: Apache-2.0

package job

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
)

// StepKind selects the executor of a step.
type StepKind string

// The kinds of step.
const (
	StepPlaybook StepKind = "playbook" // run a playbook on the hosts
	StepAppear   StepKind = "appear"   // wait until the hosts are observed as nodes
	StepPower    StepKind = "power"    // switch the hosts by their BMCs
	StepProbe    StepKind = "probe"    // try an ssh login on the hosts
	// StepCredentials checks the credentials of the hosts: ssh and BMC.
	StepCredentials StepKind = "credentials"
	StepInspect     StepKind = "inspect" // find the hardware facts of the hosts
	StepInstall     StepKind = "install" // write an image to the disks of the hosts, and have it run there
)

// Step is the next thing a Running job does: a step for an executor, or the end
// of the job.
type Step struct {
	Kind     StepKind // empty: the job ends
	Phase    Phase
	Playbook string // StepPlaybook
	// PlaybookDigest is the digest of the playbooks, or PlaybooksBundled: one step
	// has one.
	PlaybookDigest string
	Hosts          []string
	Groups         []string // parallel to Hosts

	// The outcome, set at the end.
	Status   Status
	Cause    Cause
	Message  string
	Note     string // the result in detail, if there is something to add
	Outcomes map[string]inventory.Outcome
}

// undoAttempts limits how often an interrupted cleanup is started again.
const undoAttempts = 2

// beginAttempts limits how often a step is begun anew whose run was interrupted before it began.
const beginAttempts = 3

// lost reports whether the step of the run is begun again: its instance lost the job, or the run was interrupted and is
// known not to have begun, because the manager or the runner died on the way there.
func (r Run) lost() bool { return r.Lost || r.NotBegun && r.Exit == string(CauseInterrupted) }

// sameStep reports whether both runs are of one step.
func (r Run) sameStep(phase Phase, hosts []string) bool {
	return r.Phase == phase && slices.Equal(r.Hosts, hosts)
}

// begun returns the runs that count for the plan. A lost run counts as if it had not been recorded,
// so that its step is begun again, but the last of its attempts counts. trailing is the
// number of attempts at the end that do not count. If the job is to stop, nothing is begun again, and a run that may
// have acted counts.
func begun(runs []Run, stops bool) (counted []Run, trailing int) {
	if !slices.ContainsFunc(runs, Run.lost) {
		return runs, 0
	}

	for i, r := range runs {
		if !r.lost() {
			counted, trailing = append(counted, r), 0
			continue
		}

		if i > 0 && !r.sameStep(runs[i-1].Phase, runs[i-1].Hosts) {
			trailing = 0
		}

		if trailing++; trailing == beginAttempts || stops && r.Lost && i == len(runs)-1 {
			counted, trailing = append(counted, r), 0
		}
	}

	return counted, trailing
}

// Attempt returns the number of the attempt to begin the step, from 1, and the limit.
func (j Job) Attempt(s Step) (number, of int) {
	last := j.LastRun()
	if last == nil || !last.sameStep(s.Phase, s.Hosts) {
		return 1, beginAttempts
	}

	_, lost := begun(j.Runs, false)

	return lost + 1, beginAttempts
}

// MayHaveBegun reports whether an attempt at the step that was lost may have acted.
func (j Job) MayHaveBegun(s Step) bool {
	last := j.LastRun()
	return last != nil && last.Lost && last.sameStep(s.Phase, s.Hosts)
}

// Rules are the rules of the groups, on the nodes as they are now.
type Rules interface {
	// MayLeave returns an error if a cleanup of the named nodes would break a rule.
	MayLeave(names []string) error
	// MayBegin returns an error if a batch of targets would break a rule.
	MayBegin(batch []Target) error
}

// Plan returns the next step of a Running job. It decides from the record and the
// rules alone, so any instance can continue the job. Every run in j.Runs must have ended.
func Plan(j Job, now time.Time, rules Rules) Step {
	p := Planner{Job: j, rules: rules, now: now}

	switch {
	case j.Cancel > 0:
		p.stop, p.stopMessage = CauseCancelled, cancelledBy(j.CancelBy)
	case !j.Deadline.IsZero() && now.After(j.Deadline):
		p.stop, p.stopMessage = CauseDeadline, "it ran longer than "+inventory.ShortDuration(j.Timeout)
		if j.Outage > 0 {
			p.stopMessage += ", not counting " + inventory.ShortDuration(
				j.Outage.Round(time.Second),
			) + " without the store"
		}
	}

	p.Runs, _ = begun(j.Runs, p.stop != "")

	// A plan takes its statuses from the row, so that the table stays true.
	v := j.verb()
	p.row = v.Row

	if j.Serial != "" {
		return p.inBatches(v)
	}

	return v.Plan(&p)
}

// Planner holds the facts that the plans of all verbs use.
type Planner struct {
	Job
	row         inventory.Transition
	rules       Rules
	now         time.Time
	stop        Cause // set if the verb's own phases must not go on
	stopMessage string
}

// last returns the newest run of the phase, or nil.
func (p *Planner) last(phase Phase) *Run {
	for i := len(p.Runs) - 1; i >= 0; i-- {
		if p.Runs[i].Phase == phase {
			return &p.Runs[i]
		}
	}

	return nil
}

func (p *Planner) count(phase Phase) int {
	n := 0
	for _, r := range p.Runs {
		if r.Phase == phase {
			n++
		}
	}

	return n
}

func newGroup(t Target) string        { return t.Group }
func formerGroup(t Target) string     { return t.FromGroup }
func prepareGroup(Target) string      { return inventory.GroupPrepare }
func everyTarget(Target) bool         { return true }
func done(r *Run) bool                { return r != nil && r.Exit == ExitDone }
func failedOn(r *Run) bool            { return r != nil && r.Exit == string(CauseFailed) }
func (r Run) succeeded(n string) bool { return r.Results[n].Done }
func (r Run) unreached(n string) bool { return r.Results[n].unreached() }

// run returns a step that runs the job's playbook on the selected targets, each in
// the group that group returns.
func (p *Planner) run(phase Phase, playbook string, group func(Target) string, selected func(Target) bool) Step {
	return p.runOf(p.pinned, phase, playbook, group, selected)
}

// runOf is run with the playbooks that digest returns for a target in its group.
// The step has the selected targets with the digest and the tags of the first; the
// others need further steps.
func (p *Planner) runOf(
	digest func(Target, string) string, phase Phase, playbook string,
	group func(Target) string, selected func(Target) bool,
) Step {
	s := Step{Kind: StepPlaybook, Phase: phase, Playbook: playbook}

	var tags inventory.Selection

	for _, t := range p.Targets {
		if !selected(t) {
			continue
		}

		g := group(t)

		d := digest(t, g)
		if len(s.Hosts) == 0 {
			s.PlaybookDigest, tags = d, p.selection(phase, g)
		}

		if d == s.PlaybookDigest && p.selection(phase, g).Equal(tags) {
			s.Hosts = append(s.Hosts, t.Name)
			s.Groups = append(s.Groups, g)
		}
	}

	return s
}

// pinned returns the playbooks that the job was accepted with.
func (p *Planner) pinned(Target, string) string { return p.PlaybookDigest }

// own returns the playbooks that clean the target of the group.
func (p *Planner) own(t Target, group string) string { return p.CleansWith(t, group) }

// attempts returns the runs of the phase with the target in the group, oldest
// first.
func (p *Planner) attempts(phase Phase, t Target, group string) []*Run {
	var runs []*Run
	for i := range p.Runs {
		r := &p.Runs[i]
		if r.Phase != phase {
			continue
		}
		if at := slices.Index(r.Hosts, t.Name); at >= 0 && r.Groups[at] == group {
			runs = append(runs, r)
		}
	}

	return runs
}

// lastOf returns the last of the attempts, or nil.
func (p *Planner) lastOf(phase Phase, t Target, group string) *Run {
	runs := p.attempts(phase, t, group)
	if len(runs) == 0 {
		return nil
	}
	return runs[len(runs)-1]
}

// cleaned reports whether a run of the phase has cleaned the target of the group.
func (p *Planner) cleaned(phase Phase, t Target, group string) bool {
	return slices.ContainsFunc(p.attempts(phase, t, group), func(r *Run) bool { return r.succeeded(t.Name) })
}

// clean returns the next step of cleaning in the phase: each target that carries
// a group without an attempt, in the first such group. The step has no hosts
// once everything was attempted.
func (p *Planner) clean(phase Phase, groups func(Target) []string) Step {
	next := func(t Target) string {
		for _, g := range groups(t) {
			if len(p.attempts(phase, t, g)) == 0 {
				return g
			}
		}

		return ""
	}

	return p.runOf(p.own, phase, PlaybookCleanup, next, func(t Target) bool { return next(t) != "" })
}

// failure returns why the job does not go on: the failure of the run, or else
// the stop.
func (p *Planner) failure(r *Run) (Cause, string) {
	if r == nil || done(r) {
		return p.stop, p.stopMessage
	}

	// A run without an exit was lost by a fault of the manager.
	cause := Cause(r.Exit)
	if cause == "" {
		cause = CauseInternal
	}

	// A run that obeyed the stop failed because of it.
	stopped := cause == p.stop && (cause == CauseCancelled || cause == CauseDeadline)
	switch {
	case stopped:
		return cause, p.stopMessage
	case r.Message != "" && cause != CauseFailed:
		return cause, r.Message
	}

	return cause, r.describeFailure()
}

// does returns the playbook of the run, or its purpose if it has none.
func (r *Run) does() string { return cmp.Or(r.Playbook, string(r.Phase)) }

// describeFailure names the hosts on which the run failed. The results of the
// hosts explain more than the exit status does.
func (r *Run) describeFailure() string {
	const most = 5 // hosts in one message

	var parts []string
	for _, h := range slices.Concat(r.Hosts, r.Helped()) {
		if res := r.Results[h]; res.Bad() {
			parts = append(parts, h+": "+r.describe(res))
		}
	}

	switch {
	case len(parts) == 0 && r.Message != "":
		return r.does() + " broke off: " + r.Message
	case len(parts) == 0:
		return fmt.Sprintf("%s ended with status %d", r.does(), r.Code)
	case len(parts) > most:
		parts = append(parts[:most], "and "+inventory.Count(len(parts)-most, "more host", "more hosts"))
	}

	return r.does() + " failed on " + strings.Join(parts, "; ")
}

// describe returns the failure of one host in one line. A run without a playbook has one task, which its phase names.
func (r *Run) describe(res HostResult) string {
	const limit = 600 // bytes; the whole message is in the events

	msg, _, _ := strings.Cut(res.Message, "\n")
	msg = inventory.Shorten(msg, limit)

	switch {
	case res.Unreachable:
		return "unreachable: " + msg
	case msg != "" && (res.Task == "" || r.Playbook == ""):
		return msg
	case msg != "":
		return fmt.Sprintf("task %q: %s", res.Task, msg)
	case res.Task != "":
		return fmt.Sprintf("task %q", res.Task)
	case res.Begun:
		return "did not reach the end"
	}

	return "not begun"
}

// hostFailure returns the failure of one host, or the general message if the
// host has none of its own.
func hostFailure(r *Run, name, message string) string {
	if r != nil {
		if res, ok := r.Results[name]; ok && res.Bad() {
			return r.describe(res)
		}
	}

	return message
}

// end returns the last step of the job.
func (p *Planner) end(cause Cause, message string, outcomes map[string]inventory.Outcome) Step {
	s := Step{Status: Complete, Cause: cause, Message: message, Outcomes: outcomes}

	for name, o := range outcomes {
		t, _ := p.Target(name)
		outcomes[name] = p.ansibleOutcome(t, o)
	}

	if p.verb().Row.Verifies {
		cause, s.Message = p.describeVerdicts(cause, message, outcomes)
		s.Cause, s.Note = cause, describeUnjudged(p.Targets, outcomes)
	}

	if p.Check {
		described, note := p.describeCheck()
		s.Message, s.Note = cmp.Or(message, described), note

		// A failure of a check is no failure of the node.
		if message != "" {
			s.Note = strings.TrimSuffix(described+"; "+note, "; ")
		}
	}

	if p.Partial() && !p.Check {
		s.Message = cmp.Or(message, fmt.Sprintf("only a part of the tasks ran (%s), so the applied configuration is "+
			"unknown until all of them are applied", p.Selection()))
	}

	switch {
	case cause == CauseCancelled:
		s.Status = Cancelled
	case cause != "":
		s.Status = Errored
	}

	return s
}

// playbooksAfter returns the digests of the playbooks that configured the target,
// by each group that it carries with the outcome.
func (p *Planner) playbooksAfter(t Target, o inventory.Outcome) map[string]string {
	digests := map[string]string{}
	for _, g := range (inventory.Node{Residue: o.Residue, Group: o.Group}).Carries() {
		d := t.Playbooks[g]

		for i := range p.Runs {
			r := &p.Runs[i]
			at := slices.Index(r.Hosts, t.Name)

			// A run that broke off has left its traces, too.
			traces := !r.NotBegun && (r.Phase == PhaseConfigure || r.Results[t.Name].mayHaveChanged())
			if at >= 0 && r.Groups[at] == g && r.Phase.Configures() && traces {
				d = cmp.Or(r.PlaybookDigest, p.PlaybookDigest)
			}
		}

		if d != "" {
			digests[g] = d
		}
	}

	if len(digests) == 0 {
		return nil
	}

	return digests
}

// each returns an outcome for every target.
func (p *Planner) each(outcome func(Target) inventory.Outcome) map[string]inventory.Outcome {
	outcomes := make(map[string]inventory.Outcome, len(p.Targets))
	for _, t := range p.Targets {
		outcomes[t.Name] = outcome(t)
	}

	return outcomes
}

// inService is the outcome of a target that was configured by this job.
func (p *Planner) inService(t Target) inventory.Outcome {
	return inventory.Outcome{Status: p.row.Success, Group: t.Group, Applied: p.ID}
}

// undo is the failure path of verbs that clean up. The dirty targets are
// cleaned, with the playbooks that digest returns, and get the row's Failed
// status, or its Dirty status if the cleanup fails, is skipped by a second cancel,
// or would break a group rule. The other targets get the outcome that others
// returns.
func (p *Planner) undo(
	failed *Run, group func(Target) string, digest func(Target, string) string,
	dirty func(Target) bool, others func(Target) inventory.Outcome,
) Step {
	cause, message := p.failure(failed)
	undone := func(t Target) []*Run { return p.attempts(PhaseUndo, t, group(t)) }
	skipped := ""

	var unclean []string
	for _, t := range p.Targets {
		if dirty(t) {
			unclean = append(unclean, t.Name)
		}
	}

	step := p.runOf(digest, PhaseUndo, PlaybookCleanup, group, func(t Target) bool {
		runs := undone(t)
		// A cleanup is idempotent, so one that a restart interrupted may run again.
		again := len(runs) == 0 ||
			runs[len(runs)-1].Exit == string(CauseInterrupted) && len(runs) < undoAttempts

		return dirty(t) && again
	})

	switch {
	case len(unclean) == 0:
	case p.Cancel > 1:
		skipped = "the cleanup was skipped by a second cancel"
	case p.last(PhaseUndo) != nil && len(step.Hosts) > 0:
		return step
	case p.last(PhaseUndo) == nil:
		if err := p.rules.MayLeave(unclean); err != nil {
			skipped = "the cleanup was not run: " + Message(err)
			break
		}

		return step
	}

	return p.end(cause, message, p.each(func(t Target) inventory.Outcome {
		if !dirty(t) {
			return others(t)
		}

		var cleanup *Run
		if runs := undone(t); len(runs) > 0 {
			cleanup = runs[len(runs)-1]
		}

		why := hostFailure(failed, t.Name, message)
		if cleanup != nil && cleanup.succeeded(t.Name) {
			return inventory.Outcome{Status: p.row.Failed, Error: why, Reason: message}
		}

		// The operator needs both reasons: the failure, and the state of the host.
		detail := skipped
		if detail == "" && cleanup != nil {
			general := cleanup.Message
			if general == "" {
				general = "it did not reach the end"
			}
			detail = "the cleanup failed: " + hostFailure(cleanup, t.Name, general)
		}

		return inventory.Outcome{
			Status: p.row.Dirty, Group: group(t), Error: why + "; " + detail, Reason: message + "; " + detail,
		}
	}))
}

// inPlace is the plan of verbs that run one playbook on nodes in service. Every
// target stays in service. undone begins the error of a target without a failure
// of its own.
func (p *Planner) inPlace(phase Phase, playbook, undone string) Step {
	run := p.last(phase)
	if run == nil && p.stop == "" {
		return p.run(phase, playbook, newGroup, everyTarget)
	}
	cause, message := p.failure(run)
	if done(run) {
		cause, message = "", "" // the stop came after the end
	}

	return p.end(cause, message, p.each(func(t Target) inventory.Outcome {
		if run != nil && run.succeeded(t.Name) {
			return inventory.Outcome{Status: p.row.Success, Group: t.FromGroup, Applied: p.ID}
		}

		o := inventory.Outcome{Status: p.row.Failed, Group: t.FromGroup, Applied: t.Applied, Reason: message}
		o.Error = hostFailure(run, t.Name, undone+": "+message)

		// A playbook that broke off leaves an unknown configuration.
		if run != nil && run.Results[t.Name].mayHaveChanged() {
			o.Applied = ""
		}

		return o
	}))
}

// Once is the plan of verbs that have one step on every target, which leaves the record of a node as it was.
func (p *Planner) Once(kind StepKind, phase Phase) Step { return p.once(kind, phase, false) }

// OnceTo is Once for verbs that bring a node to another status. After a failure it has the status before, and the
// error.
func (p *Planner) OnceTo(kind StepKind, phase Phase) Step { return p.once(kind, phase, true) }

func (p *Planner) once(kind StepKind, phase Phase, moves bool) Step {
	run := p.last(phase)
	if run == nil && p.stop == "" {
		step := p.run(phase, "", formerGroup, everyTarget)
		step.Kind = kind
		return step
	}

	cause, message := p.failure(run)
	if done(run) {
		cause, message = "", "" // the stop came after the end
	}

	return p.end(cause, message, p.each(func(t Target) inventory.Outcome {
		o := inventory.Outcome{
			Status: t.From, Group: t.FromGroup, Applied: t.Applied, Residue: t.Residue, AsBefore: !moves,
		}

		switch {
		case run == nil || !run.succeeded(t.Name):
			o.Error = hostFailure(run, t.Name, message)
			o.Reason = o.Error
		case moves:
			o.Status = p.row.Success
		}

		return o
	}))
}

// carried returns the groups with configuration that the target may carry.
func carried(t Target) []string {
	return inventory.Node{Residue: t.Residue, Group: t.FromGroup}.Carries()
}

// uncleaned returns the groups the target still carries after the runs so far.
func (p *Planner) uncleaned(t Target) []string {
	return slices.DeleteFunc(carried(t), func(g string) bool { return p.cleaned(PhaseCleanup, t, g) })
}

// worstCleanup returns the first cleanup that failed, else the last one.
func (p *Planner) worstCleanup() *Run {
	for i := range p.Runs {
		if r := &p.Runs[i]; r.Phase == PhaseCleanup && !done(r) {
			return r
		}
	}

	return p.last(PhaseCleanup)
}
