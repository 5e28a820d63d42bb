// SPDX-License-Identifier: Apache-2.0

package state

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/management/record"
)

// MaxDecisions is the number of decisions that are kept. Those that still count for a limit
// are kept beyond it.
const MaxDecisions = 200

// AllPolicies stands for every policy in Automation.Paused.
const AllPolicies = "all"

// Automation is the memory of the policies: the brake, the pauses, and the newest
// decisions.
type Automation struct {
	Brake Brake `json:"brake"`
	// Paused has the policies that decide nothing, or AllPolicies.
	Paused map[string]Pause `json:"paused,omitempty"`
	// Switches has the policies that were turned on or off. Others are as they begin.
	Switches map[string]Switch `json:"switches,omitempty"`
	// Schedules has the schedules that policies had last, by policy.
	Schedules map[string]Schedule `json:"schedules,omitempty"`
	// Resumed is the end of the pause that ended last.
	Resumed Pause `json:"resumed,omitzero"`
	// Decisions are the newest decisions, the oldest first.
	Decisions []Decision `json:"decisions,omitempty"`
	// Fenced are the nodes that a policy has quarantined, by name, also if the decision is no
	// longer kept.
	Fenced []string `json:"fenced,omitempty"`
	// Count is the number of decisions so far, dropped ones included.
	Count uint64 `json:"count,omitempty"`
	// Revision is the store's revision of the record; 0: there is none.
	Revision int64 `json:"-"`
}

// Memory is the one memory of the policies. While it cannot be read, they decide nothing.
var Memory = record.Kind[Automation]{
	Name: "automation", Single: true,
	At:      func(a *Automation, revision int64) { a.Revision = revision },
	Damaged: func(_ string, last *Automation) *Automation { return last },
}

// AutomationOf returns the memory of the policies in a view.
func AutomationOf(r record.Reader) Automation { return record.One(r, &Memory) }

// Brake stops automation while a large share of the nodes has vanished.
type Brake struct {
	On       bool      `json:"on,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	Until    time.Time `json:"until,omitzero"`     // when it is released by itself; zero: never
	WaitFrom time.Time `json:"counted,omitzero"`   // start of the wait that ends at Until; zero: Since
	Lost     []string  `json:"lost,omitempty"`     // nodes that vanished, by name; MaxBraked at most
	Vanish   int       `json:"vanished,omitempty"` // the number of nodes that vanished
	Visible  int       `json:"visible,omitempty"`  // the number of nodes that were visible before
	// Released is the time of the newest release. Absences from before it count no more.
	Released   time.Time `json:"released,omitzero"`
	ReleasedBy string    `json:"released_by,omitempty"`
	Reason     string    `json:"reason,omitempty"` // of the release
}

// MaxBraked is the number of nodes that a Brake names.
const MaxBraked = 50

// Pause is the beginning of a pause, in which a policy decides nothing, or its end.
type Pause struct {
	Since  time.Time `json:"since"`
	Actor  string    `json:"actor,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// Switch turns a policy on or off.
type Switch struct {
	On     bool      `json:"on,omitempty"`
	Since  time.Time `json:"since"`
	Actor  string    `json:"actor,omitempty"` // a person, or the policy that stopped itself
	Reason string    `json:"reason,omitempty"`
	// Enabling covers exactly this kind, selector and All. A policy changed in any of them is disabled again.
	Kind     string `json:"kind,omitempty"`
	Selector string `json:"selector,omitempty"`
	All      bool   `json:"all,omitempty"`
}

// Schedule is the schedule of a policy as it was seen last, with its newest run.
type Schedule struct {
	Times string    `json:"times"`          // in words
	Since time.Time `json:"since,omitzero"` // runs from before it are not made up for; zero: it is as old as the policy
	Run   time.Time `json:"run,omitzero"`   // the time of the newest run; zero: none
	Began time.Time `json:"began,omitzero"` // when that was noticed: later than Run if no manager was there
}

// Action is the action of a decision.
type Action string

// The actions of policies.
const (
	ActionRecord     Action = "record"     // nothing: only the decision is recorded
	ActionVerify     Action = "verify"     // verify the node
	ActionRepair     Action = "repair"     // configure the node again, cleaned first where it has to be
	ActionQuarantine Action = "quarantine" // fence the node
	ActionPowerOff   Action = "poweroff"   // turn a lost node off by its BMC
	ActionCommission Action = "commission" // configure the node, and bring it into service
	ActionUpgrade    Action = "upgrade"    // start a rollout of the commit in use
	ActionSupersede  Action = "supersede"  // abort a rollout of another commit
	ActionStop       Action = "stop"       // turn the policy off, because it failed too often
	ActionYield      Action = "yield"      // cancel an automatic verification
	ActionBrake      Action = "brake"      // stop automation
	ActionRelease    Action = "release"    // go on with automation
)

// NeedsJob reports whether a job carries the action out.
func (a Action) NeedsJob() bool {
	return a == ActionVerify || a == ActionRepair || a == ActionCommission || a == ActionPowerOff
}

// Acts reports whether the action is limited: it starts a job or a rollout, or fences a node.
func (a Action) Acts() bool { return a.NeedsJob() || a == ActionQuarantine || a == ActionUpgrade }

// Phase is the progress of a decision.
type Phase string

// The phases of decisions.
const (
	PhaseDecided Phase = "decided" // recorded, and not carried out yet
	PhaseDone    Phase = "done"    // carried out: its job is accepted, or it needs none
	PhaseRefused Phase = "refused" // it could not be carried out, for the reason in Result
	// PhaseWithdrawn: the cause of it changed before it was carried out, see Result. The
	// situation is judged anew.
	PhaseWithdrawn Phase = "withdrawn"
)

// Decision is one decision of a policy, recorded before it is carried out.
type Decision struct {
	ID       string    `json:"id"` // unique; the idempotency key of its action
	Time     time.Time `json:"time"`
	Policy   string    `json:"policy"`
	Node     string    `json:"node,omitempty"`  // empty: it concerns Nodes, or all
	Nodes    []string  `json:"nodes,omitempty"` // of one scheduled verification
	Action   Action    `json:"action"`
	Case     string    `json:"case,omitempty"`     // the event, in words
	Evidence []string  `json:"evidence,omitempty"` // the observations on which it was decided
	// Prevent are the conditions that would have prevented it, in words.
	Prevent []string `json:"prevent,omitempty"`
	Cancel  string   `json:"cancel,omitempty"` // ActionYield: the id of the job
	Group   string   `json:"group,omitempty"`  // ActionCommission: the group that the node joins
	// Replaces is the lost node that the node replaces in the group; mostly empty.
	Replaces string `json:"replaces,omitempty"`
	// Lost are the nodes of the group that were lost then, Replaces among them.
	Lost   []string `json:"lost,omitempty"`
	From   string   `json:"from,omitempty"`   // the commit of most nodes, or of the superseded rollout
	Commit string   `json:"commit,omitempty"` // the commit in use, for these two
	// Playbooks is the digest of the playbooks of that commit.
	Playbooks string `json:"playbooks,omitempty"`
	Rollout   string `json:"rollout,omitempty"` // the id of the rollout that carries it out, or that is superseded
	Phase     Phase  `json:"phase"`
	Job       string `json:"job,omitempty"`    // the id of the job that carries it out
	Result    string `json:"result,omitempty"` // why it was refused, or a note
}

// PolicyReason is why a policy does something about a node, or will, or does not.
type PolicyReason struct {
	Return  bool      // it is about the return of a node that had disappeared
	Job     string    // the id of the job that carries the decision out; may be empty
	Since   time.Time // of the decision; zero: it is not made yet
	Message string
}

// IsPaused reports whether the policy decides nothing, and why.
func (a Automation) IsPaused(policy string) (Pause, bool) {
	for _, name := range []string{AllPolicies, policy} {
		if p, ok := a.Paused[name]; ok {
			return p, true
		}
	}

	return Pause{}, false
}

// Turn returns the automation with the policy turned on or off.
func (a Automation) Turn(policy string, s Switch) Automation {
	a.Switches = maps.Clone(a.Switches)
	if a.Switches == nil {
		a.Switches = map[string]Switch{}
	}

	a.Switches[policy] = s

	return a
}

// Find returns the decision, or nil.
func (a Automation) Find(id string) *Decision {
	for i := range a.Decisions {
		if a.Decisions[i].ID == id {
			return &a.Decisions[i]
		}
	}

	return nil
}

// With returns the automation with further decisions.
func (a Automation) With(decisions ...Decision) Automation {
	a.Decisions = slices.Concat(a.Decisions, decisions)
	a.Count += uint64(len(decisions))
	return a
}

// Replace returns the automation with the decision in place of the one with its id.
func (a Automation) Replace(d Decision) Automation {
	a.Decisions = slices.Clone(a.Decisions)
	if i := slices.IndexFunc(a.Decisions, func(o Decision) bool { return o.ID == d.ID }); i >= 0 {
		a.Decisions[i] = d
	}
	return a
}

// Of returns the decisions on the node, the oldest first.
func (a Automation) Of(node string) []Decision {
	return slices.DeleteFunc(slices.Clone(a.Decisions), func(d Decision) bool { return d.Node != node })
}

// PolicyPrincipal returns the principal under which a policy acts.
func PolicyPrincipal(policy string) string { return policyPrefix + policy }

const policyPrefix = "policy:"

// PolicyOf returns the policy that the principal is, or "".
func PolicyOf(principal string) string {
	name, is := strings.CutPrefix(principal, policyPrefix)
	if !is {
		return ""
	}
	return name
}

// IsPolicy reports whether the principal is a policy.
func IsPolicy(principal string) bool { return strings.HasPrefix(principal, policyPrefix) }
