// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/metrics"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/window"
)

// Policy judges a World. Its methods are pure.
type Policy interface {
	// Name is one word: the policy acts as the principal policy:NAME.
	Name() string
	// About describes the policy in one sentence.
	About(w World) string
	// Judge returns the next step on each node that concerns the policy, in the order of their turns and within
	// its limits.
	Judge(w World) []Judgement
}

// All returns every policy under the settings.
func All(s Settings) []Policy {
	all := []Policy{Returns{}}
	for _, r := range s.Commission {
		all = append(all, Commission{r})
	}

	for _, r := range s.Upgrade {
		all = append(all, Upgrade{r})
	}

	for _, r := range s.Verify {
		all = append(all, Verify{r})
	}

	return all
}

// actions lists the actions of each policy, and those of the brake.
var actions = []struct {
	policy string
	action state.Action
}{
	{Returns{}.Name(), state.ActionVerify},
	{Returns{}.Name(), state.ActionRepair},
	{Returns{}.Name(), state.ActionQuarantine},
	{Returns{}.Name(), state.ActionRecord},
	{Returns{}.Name(), state.ActionYield},
	{BrakeName, state.ActionBrake},
	{BrakeName, state.ActionRelease},
}

// NewCount returns the metric of the decisions, for Options.
func NewCount(r metrics.Registry) func(policy string, action state.Action) {
	count := r.Counter("clusterm_policy_decisions_total")

	// Without a sample before it, the first decision would not be an increase.
	for _, a := range actions {
		count.WithLabelValues(a.policy, string(a.action))
	}

	return func(policy string, action state.Action) { count.WithLabelValues(policy, string(action)).Inc() }
}

// World is everything that a policy decides from. Its memory is in state.AutomationOf(View) and
// in the records of the nodes.
type World struct {
	View     *state.View
	Settings Settings
	Now      time.Time
	Start    Start

	working map[string]*job.Job // see work; set while nodes are judged
}

// Plan is the result of a policy at one time.
type Plan struct {
	// Decisions are new, in the order of their importance.
	Decisions []state.Decision
	// Notes are decisions to leave nodes as they are, by node: only their histories get
	// an entry with the reason.
	Notes map[string]string
	// Ask are the nodes to be reached over ssh, the most urgent first. Each answer is
	// stored in the record of its node.
	Ask []string
	// Next is when to decide again without a change of the view; zero: never.
	Next time.Time
}

// without returns the view as it would be without the decision.
func (w World) without(id string) *state.View {
	a := state.AutomationOf(w.View)
	a.Decisions = slices.DeleteFunc(slices.Clone(a.Decisions), func(d state.Decision) bool { return d.ID == id })
	return withMemory(w.View, a)
}

// Settings is the part of the configuration that policies depend on.
type Settings struct {
	// Settle is how long a node that returned has to stay before anything is done.
	Settle time.Duration
	// Commission are the rules for newly discovered nodes, each a policy.
	Commission []Rule
	// Upgrade are the rules for nodes that follow the repository, each a policy.
	Upgrade []UpgradeRule
	// Verify are the rules for nodes that are verified on a schedule, each a policy.
	Verify []VerifyRule

	Jobs   int // automatic jobs at a time
	Rate   int // automatic actions within RateWindow
	Brake  BrakeSettings
	Groups inventory.Groups
	Limit  int // jobs that run at a time, those of people included
	// Windows decide when a node may change.
	Windows window.Calendar
	// Outdated returns the parts in which the desired configuration of a node differs from
	// the applied one. It may be nil.
	Outdated func(v *state.View, n *inventory.Node) []inventory.Part
	// TakenBack describes the values of a former request that an apply would take back from a node, or returns "".
	TakenBack func(v *state.View, n *inventory.Node) string
	// Playbooks returns the playbooks that would configure a node now. It may be nil.
	Playbooks func(v *state.View) state.Playbooks

	// Incomplete is the reason why these are not the settings that the operator chose,
	// or nil. Until then nothing is decided.
	Incomplete error
	// Connect and HostCAs are explained in node.Settings.
	Connect func(v *state.View, group, node string) configuration.Connection
	HostCAs []string
}

// Outcome is the result of a round of all policies.
type Outcome struct {
	Memory  *state.Automation // nil: the same as before
	Decided []state.Decision  // those that are new in Memory
	// Notes are the notes of each policy, by its name.
	Notes map[string]map[string]string
	Ask   []string  // see Plan
	Next  time.Time // when to decide again without a change of the view; zero: never
}

// DecideAll lets the brake decide, and then each policy. Each of them sees the decisions of those
// before it.
func DecideAll(w World) Outcome {
	o := Outcome{Notes: map[string]map[string]string{}}

	remember := func(a state.Automation, decided ...state.Decision) {
		a = Remember(w, a.With(decided...))
		w.View = withMemory(w.View, a)
		o.Memory, o.Decided = &a, append(o.Decided, decided...)
	}

	a := state.AutomationOf(w.View)
	before := a.Brake

	switch brake, d := Brake(w); {
	case d != nil:
		a.Brake = brake
		remember(a, *d)
	case !brake.Since.Equal(before.Since) || !brake.Until.Equal(before.Until):
		a.Brake = brake
		remember(a)
	}

	if schedules, changed := Scheduled(w); changed {
		a = state.AutomationOf(w.View)
		a.Schedules = schedules
		remember(a)
	}

	o.Next = state.AutomationOf(w.View).Brake.Until

	for _, p := range All(w.Settings) {
		plan := Decide(p, w)
		if len(plan.Decisions) > 0 {
			remember(stopped(state.AutomationOf(w.View), plan.Decisions), plan.Decisions...)
		}
		if len(plan.Notes) > 0 {
			o.Notes[p.Name()] = plan.Notes
		}

		o.Ask = append(o.Ask, plan.Ask...)

		if !plan.Next.IsZero() && (o.Next.IsZero() || plan.Next.Before(o.Next)) {
			o.Next = plan.Next
		}
	}

	return o
}

// stopped returns the automation with the policies turned off that stop themselves.
func stopped(a state.Automation, decisions []state.Decision) state.Automation {
	for _, d := range decisions {
		if d.Action == state.ActionStop {
			a = a.Turn(d.Policy, state.Switch{Since: d.Time, Actor: state.PolicyPrincipal(d.Policy), Reason: d.Case})
		}
	}

	return a
}

// withMemory returns the view with that memory of the policies.
func withMemory(v *state.View, a state.Automation) *state.View {
	next := *v
	next.View = record.WithOne(v.View, &state.Memory, a)
	return &next
}

// yields returns the decisions to cancel jobs of the policy: jobs that a person waits for, verifications of
// hosts that are gone, and queued jobs under the brake, of a policy that may not act, or in the place of a
// node that returned.
func (w World) yields(policy string) []state.Decision {
	var decisions []state.Decision

	for _, j := range w.View.Jobs() {
		if j.Status.Ended() || j.Actor != state.PolicyPrincipal(policy) || j.Cancel > 0 {
			continue
		}

		d := YieldOf(*j, w.preempted(*j), w.Now)
		if d.Case != "" && state.AutomationOf(w.View).Find(d.ID) == nil {
			decisions = append(decisions, d)
		}
	}

	return decisions
}

// YieldOf returns the decision to cancel a job of a policy, for the reason in words.
func YieldOf(j job.Job, reason string, now time.Time) state.Decision {
	return state.Decision{
		ID: "yield/" + j.ID, Time: now, Policy: strings.TrimPrefix(j.Actor, state.PolicyPrincipal("")),
		Node: strings.Join(j.Names(), ","), Action: state.ActionYield, Case: reason,
		Evidence: []string{fmt.Sprintf("job %s (%s) is %s", j.ID, j.Verb, j.Status)},
		Cancel:   j.ID, Phase: state.PhaseDecided,
	}
}

// Yields reports whether a job may be cancelled to make room for a person: it is one of a
// policy, and has changed no host.
func Yields(j job.Job) bool {
	return !j.Status.Ended() && state.IsPolicy(j.Actor) &&
		(j.Status == job.Queued || j.Verb.Verifies())
}

// preempted returns why an automatic job is to be cancelled, or "". A job that may have
// changed a host goes on.
func (w World) preempted(j job.Job) string {
	if !Yields(j) {
		return ""
	}

	row, _ := inventory.TransitionOf(j.Verb)

	for _, t := range j.Targets {
		if n, ok := w.View.Lookup(t.Name); ok && row.NeedsDiscover && n.State == inventory.Disappeared {
			return t.Name + " disappeared again"
		}
	}

	if j.Status == job.Queued && state.AutomationOf(w.View).Brake.On {
		return "the brake stopped automation"
	}

	if j.Status == job.Queued {
		if reason := w.dropped(j); reason != "" {
			return reason
		}
	}

	hold := w.Settings.Windows.Hold(w.View, w.Now)

	for _, k := range w.View.Jobs() {
		if k.Status != job.Queued || state.IsPolicy(k.Actor) {
			continue
		}

		turn := job.TurnOf(w.View.Snapshot, w.Settings.Groups, w.Settings.Limit, *k, hold)
		if slices.Contains(turn.WaitsFor, j.ID) {
			return fmt.Sprintf("job %s of %s waits for it", k.ID, job.OrSomebody(k.Actor))
		}
	}

	return ""
}

// dropped returns why a job of a policy that has not begun is no longer wanted, or "".
func (w World) dropped(j job.Job) string {
	a := state.AutomationOf(w.View)

	// One that is no longer among the settings may not act either.
	var by Policy
	for _, p := range All(w.Settings) {
		if p.Name() == state.PolicyOf(j.Actor) {
			by = p
		}
	}

	if halted := Halted(a, by); halted != "" {
		return "the policy may not act: " + halted
	}

	for _, t := range j.Targets {
		if n := w.View.Find(t.Name); n != nil && exclusion(n) != "" {
			return t.Name + ": " + exclusion(n)
		}
	}

	for _, d := range a.Decisions {
		if d.Job != j.ID {
			continue
		}

		switch n, known := w.View.Lookup(cmp.Or(d.Replaces, d.Node)); {
		case !known:
		case d.Action == state.ActionPowerOff && n.Status != inventory.Quarantined &&
			(n.State == inventory.Discovered || !n.InService()):
			return n.Name + " is not lost any more, which it would turn off"
		case d.Replaces == "":
		case n.State == inventory.Discovered && n.InService():
			return d.Replaces + " returned, whose place it would take"
		case !w.off(by, d):
			return d.Replaces + " is not known to be off any more, whose place it would take"
		}
	}

	return ""
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// stamp returns a time in words.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// short returns a duration in whole seconds, without zero units at its end.
func short(d time.Duration) string {
	return inventory.ShortDuration(d.Round(time.Second))
}

// madeRoom reports whether a policy cancelled the job before it began: nothing was done.
func (w World) madeRoom(id string) bool {
	if id == "" {
		return false
	}

	j, err := w.View.Job(id)
	return err == nil && j.Status == job.Cancelled && j.Started.IsZero() && state.IsPolicy(j.CancelBy)
}

// reoffered reports whether the node of a decision was provided again since the decision commissioned it.
func (w World) reoffered(d *state.Decision) bool {
	n, known := w.View.Lookup(d.Node)
	if !known || d.Action != state.ActionCommission || n.PrevStatus != inventory.Cleaning || !n.Fresh() {
		return false
	}

	// A job that was cancelled, or failed, says that the node is not wanted now.
	j, err := w.View.Job(d.Job)

	return err == nil && j.Status == job.Complete
}

// neverBegan returns the job if it ended before it began, because it was no longer legal when its turn came, or nil.
func (w World) neverBegan(id string) *job.Job {
	if id == "" {
		return nil
	}

	j, err := w.View.Job(id)
	if err != nil || !isRefused(&j) {
		return nil
	}
	return &j
}

func isRefused(j *job.Job) bool { return j.Cause == job.CausePrecondition && len(j.Runs) == 0 }

// firstRetry is the delay after a decision was withdrawn or its job never began. It doubles up to maxBackoff.
const firstRetry = time.Minute

// standing is the newest decision on a situation.
type standing struct {
	id      string    // for the next one
	decided bool      // one stands already
	due     time.Time // of the next one
	reason  string    // why there is to be a next one; empty: there was none
}

// wait returns the outlook until the next attempt is due.
func (s standing) wait() Judgement {
	return Judgement{
		Stage: StageWait, Until: s.due, Reason: fmt.Sprintf("tried again not before %s: %s", stamp(s.due), s.reason),
	}
}

// standing returns the newest decision that is named by its situation and action. One that was withdrawn, or whose job
// never began, makes room for the next.
func (w World) standing(id string) standing {
	s, delay := standing{id: id}, firstRetry

	for k := 2; ; k++ {
		d := state.AutomationOf(w.View).Find(s.id)
		if d == nil {
			return s
		}
		refused := w.neverBegan(d.Job)

		switch {
		case refused != nil:
			s.due, s.reason = w.settled(refused.Ended).Add(delay), refused.Message
		case d.Phase == state.PhaseWithdrawn:
			s.due, s.reason = w.settled(d.Time).Add(delay), d.Result
		case !w.madeRoom(d.Job) && !w.reoffered(d):
			s.decided = true
			return s
		}

		s.id, delay = fmt.Sprintf("%s/%d", id, k), min(2*delay, maxBackoff)
	}
}
