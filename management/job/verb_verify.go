// SPDX-License-Identifier: Apache-2.0

package job

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/contiv/cluster/inventory"
)

func init() {
	// Verify compares nodes in service with their configuration: verify.yml, if the
	// playbooks have one, and what site.yml would change. Each node gets a verdict.
	Register(Verb{
		Name:       inventory.VerbVerify,
		Steps:      []StepKind{StepPlaybook},
		Playbooks:  []string{PlaybookSite},
		Optional:   []string{PlaybookVerify},
		Helps:      true,
		GroupAfter: func(_ Job, n inventory.Node) string { return n.Group },
		Plan:       (*Planner).verify,
	})
}

// verifyAttempts limits how often an interrupted comparison is started again. It
// changes nothing, so it may be repeated.
const verifyAttempts = 2

func (p *Planner) verify() Step {
	for _, part := range []struct {
		phase    Phase
		playbook string
		wanted   func(Target) bool
	}{
		{PhaseVerify, PlaybookVerify, func(t Target) bool { return !p.lacksVerify(t) }},
		{PhaseDrift, PlaybookSite, p.reached},
	} {
		due := func(t Target) bool { return part.wanted(t) && p.compares(part.phase, t) }

		step := p.runOf(p.own, part.phase, part.playbook, newGroup, due)
		if p.stop == "" && len(step.Hosts) > 0 {
			return step
		}
	}

	cause, message := p.failure(p.brokenComparison())

	// A stop after the last comparison changes nothing.
	if p.brokenComparison() == nil && !slices.ContainsFunc(p.Targets, p.uncompared) {
		cause, message = "", ""
	}

	return p.end(cause, message, p.each(func(t Target) inventory.Outcome { return p.verdictOf(t, message) }))
}

// lacksVerify reports whether the playbooks of the target have no verify.yml.
func (p *Planner) lacksVerify(t Target) bool {
	return slices.Contains(p.WithoutVerify, p.CleansWith(t, t.Group))
}

// reached reports whether no run of the job found the host unreachable.
func (p *Planner) reached(t Target) bool {
	return !slices.ContainsFunc(p.Runs, func(r Run) bool { return r.Results[t.Name].Unreachable })
}

// compares reports whether the phase is still to run on the target: for the first
// time, or after an interruption.
func (p *Planner) compares(phase Phase, t Target) bool {
	runs := p.attempts(phase, t, t.Group)
	if len(runs) == 0 {
		return true
	}
	return runs[len(runs)-1].Exit == string(CauseInterrupted) && len(runs) < verifyAttempts
}

// uncompared reports whether site.yml was never compared with a host that could be
// reached.
func (p *Planner) uncompared(t Target) bool {
	return p.lastOn(PhaseDrift, t) == nil && p.reached(t)
}

// lastOn returns the last run of the phase on the target, or nil.
func (p *Planner) lastOn(phase Phase, t Target) *Run { return p.lastOf(phase, t, t.Group) }

// brokenComparison returns a run that broke off, and was not repeated, or nil.
func (p *Planner) brokenComparison() *Run {
	for _, t := range p.Targets {
		for _, phase := range []Phase{PhaseVerify, PhaseDrift} {
			if r := p.lastOn(phase, t); r != nil && !done(r) && !failedOn(r) {
				return r
			}
		}
	}

	return nil
}

// verdictOf returns the outcome of a target: as it was, with a verdict. why is the
// reason of a job that was stopped.
func (p *Planner) verdictOf(t Target, why string) inventory.Outcome {
	o := inventory.Outcome{Status: p.row.Success, Group: t.FromGroup}

	verified, compared := p.lastOn(PhaseVerify, t), p.lastOn(PhaseDrift, t)
	if verified == nil && compared == nil {
		// An earlier verdict is as good as it was.
		o.Error = "not verified: " + why
		o.Reason = o.Error
		return o
	}

	v := verdict{Verdict: inventory.Verdict{
		Job: p.ID, Time: p.now, Result: inventory.Clean, Outdated: p.outdated(t),
	}}
	if verified != nil {
		v.verify(p, verified, verified.Results[t.Name])
	}

	switch {
	case compared != nil:
		v.compare(p, compared, compared.Results[t.Name])
	case p.reached(t):
		v.unknown("not compared: " + why)
	}

	if p.verificationChanged(t.Name) {
		v.unknown(PlaybookSite + " changed it in spite of check mode")
	}

	switch {
	case v.Result != inventory.Clean:
	case v.judged == 0:
		v.unknown("no task judged the node")
	case p.Strict && v.Unjudged > 0:
		v.unknown("strict")
	}

	o.Verdict, o.Reason = &v.Verdict, v.Describe()
	if v.Result != inventory.Clean {
		o.Error = o.Reason
	}

	return o
}

// outdated reports whether the target is compared with variables, playbooks, tags or masters that
// were not applied to it.
func (p *Planner) outdated(t Target) bool {
	own := t.Playbooks[t.FromGroup]
	if own == "" {
		own = p.CleansWith(t, t.FromGroup)
	}

	now := inventory.Configuration{
		Playbooks: p.CleansWith(t, t.FromGroup), Variables: t.Variables,
		Group: t.FromGroup, Tags: p.GroupTags[t.FromGroup].String(),
	}

	for _, phase := range []Phase{PhaseVerify, PhaseDrift} {
		if r := p.lastOn(phase, t); r != nil {
			now.Masters = r.Masters
		}
	}

	applied := inventory.Configuration{Playbooks: own, Variables: t.Configured, Masters: t.ConfiguredMasters}
	if t.Configured != "" {
		applied.Group, applied.Tags = t.FromGroup, t.ConfiguredTags
	}
	return len(now.Differs(applied)) > 0
}

// verdict is a verdict in the making.
type verdict struct {
	inventory.Verdict

	judged int // tasks
}

// verify adds the result of verify.yml. A failed task of it is a difference, also if the playbook ignores the
// failure so that the other checks follow. A task of it may have check_mode: true.
func (v *verdict) verify(p *Planner, r *Run, res HostResult) {
	v.Executed += max(res.Changed-res.Foreseen, 0)
	v.count(res)

	if res.Ignored > 0 {
		v.Result, v.Failed = inventory.Drifted, true
		v.because(PlaybookVerify + ": " + cmp.Or(res.Doubt, "a check failed"))

		if more := res.Ignored + res.Failed - 1; more > 0 {
			v.because(inventory.Count(more, "more check failed", "more checks failed"))
		}
	}

	switch {
	case res.Ignored > 0 && (res.Failed > 0 || res.Done):
	case res.Failed > 0:
		v.Result, v.Failed = inventory.Drifted, true
		v.because(PlaybookVerify + ": " + r.describe(res))
	case !res.Done:
		v.unknown(p.incomplete(r, res))
	case res.Doubt != "":
		v.unknown(where(r) + ": " + res.Doubt)
	}
}

// compare adds the result of site.yml in check mode.
func (v *verdict) compare(p *Planner, r *Run, res HostResult) {
	v.Executed += res.Executed
	v.count(res)

	switch {
	case !res.Done:
		v.unknown(p.incomplete(r, res))
	case res.Doubt != "":
		v.unknown(where(r) + ": " + res.Doubt)
	}
}

// count adds the tasks of a run.
func (v *verdict) count(res HostResult) {
	v.Differences += res.Foreseen
	v.Unjudged += res.Unjudged
	v.judged += res.Judged

	if res.Foreseen > 0 {
		v.Result = inventory.Drifted
	}
}

// unknown records that a part of the node was not judged. What is known to differ
// stays.
func (v *verdict) unknown(why string) {
	if v.Result == inventory.Clean {
		v.Result = inventory.Unverified
	}

	v.because(why)
}

func (v *verdict) because(why string) {
	if v.Reason != "" {
		why = v.Reason + "; " + why
	}

	v.Reason = why
}

// incomplete returns why a run did not judge the host to the end.
func (p *Planner) incomplete(r *Run, res HostResult) string {
	if !failedOn(r) && !done(r) && !res.Bad() {
		_, why := p.failure(r)
		return where(r) + " broke off: " + why
	}

	return where(r) + ": " + r.describe(res)
}

// where returns the playbook of a run, and how it ran.
func where(r *Run) string {
	if r.Phase == PhaseDrift {
		return r.Playbook + " in check mode"
	}
	return r.Playbook
}

// drifted reports whether the outcome is a verdict that the node differs.
func drifted(o inventory.Outcome) bool {
	return o.Verdict != nil && o.Verdict.Result == inventory.Drifted
}

// describeVerdicts returns the cause and the message of a verification that ends with
// the outcomes. A stop keeps its cause.
func (p *Planner) describeVerdicts(
	cause Cause, message string, outcomes map[string]inventory.Outcome,
) (Cause, string) {
	var differ, unknown []string

	clean := 0

	for _, t := range p.Targets {
		o, ok := outcomes[t.Name]

		switch {
		case !ok:
		case o.Verdict == nil:
			unknown = append(unknown, t.Name+" ("+o.Error+")")
		case o.Verdict.Result == inventory.Clean:
			clean++
		case drifted(o):
			differ = append(differ, t.Name+" ("+o.Verdict.Detail()+")")
		default:
			unknown = append(unknown, t.Name+" ("+o.Verdict.Detail()+")")
		}
	}

	of := " of " + inventory.Count(len(p.Targets), "node", "nodes")

	var parts []string
	if len(differ) > 0 {
		parts = append(parts, fmt.Sprintf("%d%s drifted: %s", len(differ), of, strings.Join(shorten(differ), "; ")))
	}

	if len(unknown) > 0 {
		parts = append(parts, fmt.Sprintf("%d%s unknown: %s", len(unknown), of, strings.Join(shorten(unknown), "; ")))
	}

	if len(parts) == 0 {
		parts = append(parts, inventory.Count(clean, "node", "nodes")+" verified clean")
	}

	text := strings.Join(parts, "; ")

	switch {
	case cause != "" && cause != CauseFailed && cause != CauseDrifted:
		return cause, message + "; " + text
	case len(differ) > 0:
		return CauseDrifted, text
	case len(unknown) > 0:
		return CauseFailed, text
	}

	return "", text
}

// describeUnjudged returns a note on the tasks that check mode did not judge, or that
// were executed all the same.
func describeUnjudged(targets []Target, outcomes map[string]inventory.Outcome) string {
	var parts []string
	for _, t := range targets {
		v := outcomes[t.Name].Verdict
		if v != nil && v.Result == inventory.Clean && v.Unjudged+v.Executed > 0 {
			parts = append(parts, t.Name+": "+v.Detail())
		}
	}

	return strings.Join(shorten(parts), "; ")
}
