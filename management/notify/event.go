// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
)

// Kind is the kind of an event.
type Kind = string

// The kinds of event.
const (
	KindNodeNew          Kind = "node.new"          // a node is known for the first time
	KindNodeStatus       Kind = "node.status"       // it settled in another status
	KindNodeState        Kind = "node.state"        // it appeared or disappeared
	KindNodeVerification Kind = "node.verification" // a verification had another result than before
	KindNodeForgotten    Kind = "node.forgotten"
	KindJobEnded         Kind = "job.ended"
	KindNodeDrifted      Kind = "node.drifted" // a verification found drift
	KindJobFailed        Kind = "job.failed"   // a job is Errored
	KindRolloutEnded     Kind = "rollout.ended"
	KindRolloutStopped   Kind = "rollout.stopped" // failures stopped it, or somebody paused it
	KindRolloutWaiting   Kind = "rollout.waiting" // a person has to approve or promote it
	KindPolicyStopped    Kind = "policy.stopped"  // the brake, a policy itself, or somebody stopped automation
	KindPolicyResumed    Kind = "policy.resumed"  // automation goes on
	KindHealth           Kind = "health"          // another part of the manager failed, or is well again
	KindGap              Kind = "gap"             // events were missed; see Notifier
	KindTest             Kind = "test"            // somebody tests a target
)

// Kinds are the kinds of event that a target can choose. Each target gets gaps and its
// tests.
var Kinds = []Kind{
	KindNodeNew, KindNodeStatus, KindNodeState, KindNodeVerification, KindNodeDrifted, KindNodeForgotten,
	KindJobEnded, KindJobFailed, KindRolloutEnded, KindRolloutStopped, KindRolloutWaiting,
	KindPolicyStopped, KindPolicyResumed, KindHealth,
}

// Event is something that happened. Its ID is the same for the same event, also after a restart.
type Event = api.NotifiedEvent

// happening is an event with the node that it is about, for selectors; nil: none.
type happening struct {
	Event

	node *inventory.Node
}

// The limits of an event.
const (
	maxNodes  = 50
	maxDetail = 1000 // bytes
)

// events returns the events in the changes of one revision, and the reason for which one of them
// cannot be read.
func events(changes []record.RawChange) (list []happening, unreadable error) {
	for _, c := range changes {
		found, err := eventsOf(c, changes)
		if err != nil {
			unreadable = fmt.Errorf("%s: %w", c.Path, err)
		}

		for _, e := range found {
			e.ID = strings.Join([]string{
				strconv.FormatInt(c.Revision, 10), e.Kind, cmp.Or(e.Node, e.Job, e.Rollout, e.Policy),
			}, "-")
			e.Detail = oneLine(e.Detail)
			list = append(list, e)
		}
	}

	return list, unreadable
}

// eventsOf returns the events in one of the changes of a revision. The removal of a job or of a
// rollout is no event.
func eventsOf(c record.RawChange, all []record.RawChange) ([]happening, error) {
	if is, was, known, err := job.Nodes.Sides(c); known {
		if err != nil || is == nil && was == nil {
			return nil, err
		}
		return nodeEvents(was, is, all), nil
	}

	if is, was, known, err := job.Kind.Sides(c); known {
		return sides(is, was, err, jobEvents)
	}

	if is, was, known, err := rollout.Kind.Sides(c); known {
		return sides(is, was, err, rolloutEvents)
	}

	is, was, _, err := state.Memory.Sides(c)

	return sides(is, was, err, automationEvents)
}

// sides returns the events of a record that is there.
func sides[T any](is, was *T, err error, events func(was, is *T) []happening) ([]happening, error) {
	if is == nil || err != nil {
		return nil, err
	}
	return events(was, is), nil
}

func jobEvents(was, is *job.Job) []happening {
	if !is.Status.Ended() || was != nil && was.Status.Ended() {
		return nil
	}

	names := is.Names()
	e := Event{
		Kind: KindJobEnded, Time: is.Ended, Job: is.ID, Rollout: is.Rollout, Verb: string(is.Verb), Nodes: names,
		To: string(is.Status), Detail: is.Message, Actor: is.Actor,
	}

	if is.Status == job.Cancelled && is.CancelBy != "" {
		e.Actor = is.CancelBy
	}

	// A single node is named in the summary.
	what := inventory.Count(len(names), "node", "nodes")
	if len(names) == 1 {
		what = names[0]
	}
	e.Summary = fmt.Sprintf("job %s (%s of %s) is %s", is.ID, is.Verb, what, is.Status)
	if len(names) > maxNodes {
		e.Nodes = names[:maxNodes]
	}

	// A cancelled job is no failure: somebody wanted its end.
	if is.Status != job.Errored {
		return []happening{{Event: e}}
	}

	// Both kinds exist, so that a target can choose failures alone.
	failed := e
	failed.Kind = KindJobFailed

	return []happening{{Event: e}, {Event: failed}}
}

// nodeEvents returns the events of a node. all are the changes of its revision, for the tombstone.
func nodeEvents(was, is *inventory.Node, all []record.RawChange) []happening {
	// The node was forgotten.
	if is == nil {
		e := Event{
			Kind: KindNodeForgotten, Time: was.Updated, Node: was.Name, Group: was.Group, From: string(was.Status),
			Summary: was.Name + " was forgotten",
		}
		for _, c := range all {
			// One that cannot be read costs the actor only.
			if t, _, _, _ := state.Tombstones.Sides(c); t != nil && t.Name == was.Name {
				e.Time, e.Actor, e.Detail = t.Time, t.Actor, t.Reason
			}
		}

		return []happening{{node: was, Event: e}}
	}

	about := happening{node: is, Event: Event{Time: is.Updated, Actor: is.Actor, Node: is.Name, Group: is.Group}}

	// The node was discovered.
	if was == nil {
		about.Kind, about.To = KindNodeNew, string(is.Status)
		about.Summary = fmt.Sprintf("%s is new, at %s, and %s", is.Name, is.Addr, is.Status)
		return []happening{about}
	}

	var list []happening

	if from, to := settled(was), settled(is); from != to {
		e := about
		e.Kind, e.From, e.To, e.Job = KindNodeStatus, string(from), string(to), was.Job
		e.Summary, e.Detail = fmt.Sprintf("%s is %s, and was %s", is.Name, to, from), is.LastError
		list = append(list, e)
	}

	if was.State != is.State {
		e := about
		e.Kind, e.From, e.To = KindNodeState, string(was.State), string(is.State)
		e.Summary = fmt.Sprintf("%s is %s", is.Name, is.State)
		list = append(list, e)
	}

	// A verb that changes the host withdraws the verdict, which is no news.
	if from, to := resultOf(was), resultOf(is); from != to && to != "" {
		e := about
		e.Kind, e.From, e.To, e.Job = KindNodeVerification, string(from), string(to), is.Verification.Job
		e.Summary, e.Detail = fmt.Sprintf("%s is %s", is.Name, to), is.Verification.Detail()
		list = append(list, e)

		// Both kinds exist, so that a target can choose drift alone.
		if to == inventory.Drifted {
			e.Kind = KindNodeDrifted
			list = append(list, e)
		}
	}

	return list
}

// automationEvents returns the stops of automation, and the ends of stops.
func automationEvents(was, is *state.Automation) []happening {
	if was == nil {
		was = &state.Automation{}
	}

	var list []happening

	add := func(kind Kind, e Event) {
		e.Kind, e.To = kind, "running"
		if kind == KindPolicyStopped {
			e.To = "stopped"
		}

		list = append(list, happening{Event: e})
	}

	switch b := is.Brake; {
	case b.On && !was.Brake.On:
		add(KindPolicyStopped, Event{
			Time: b.Since, Actor: state.PolicyPrincipal(brake), Policy: brake, Nodes: b.Lost,
			Summary: fmt.Sprintf("the brake stopped automation: %d of %d nodes vanished at once", b.Vanish, b.Visible),
			Detail:  "vanished: " + naming(b.Lost, b.Vanish),
		})
	case !b.On && was.Brake.On:
		add(KindPolicyResumed, Event{
			Time: b.Released, Actor: b.ReleasedBy, Policy: brake, Summary: "the brake is released: automation goes on",
			Detail: b.Reason,
		})
	}

	// A policy turns itself off as well, after too many failures.
	for _, name := range slices.Sorted(maps.Keys(is.Switches)) {
		s, before := is.Switches[name], was.Switches[name]
		if s.On == before.On && s.Since.Equal(before.Since) {
			continue
		}

		kind, done := KindPolicyStopped, " turned off"
		if s.On {
			kind, done = KindPolicyResumed, " turned on"
		}
		add(kind, Event{
			Time: s.Since, Actor: s.Actor, Policy: name, Summary: policyName(name) + done, Detail: s.Reason,
		})
	}

	for _, name := range slices.Compact(slices.Sorted(slices.Values(
		slices.AppendSeq(slices.Collect(maps.Keys(is.Paused)), maps.Keys(was.Paused)),
	))) {
		p, paused := is.Paused[name]
		if _, before := was.Paused[name]; paused == before {
			continue
		}

		kind, done := KindPolicyStopped, " paused"
		if !paused {
			p, kind, done = is.Resumed, KindPolicyResumed, " resumed"
		}
		add(kind, Event{
			Time: p.Since, Actor: p.Actor, Policy: name, Summary: policyName(name) + done, Detail: p.Reason,
		})
	}

	return list
}

// brake stands for the brake among the policies.
const brake = "brake"

func policyName(name string) string {
	if name == state.AllPolicies {
		return "all policies are"
	}
	return "the policy " + name + " is"
}

// naming returns the first names of a list of count, in words.
func naming(names []string, count int) string {
	const most = 10

	text := strings.Join(names[:min(len(names), most)], ", ")
	if left := count - min(len(names), most); left > 0 {
		text += fmt.Sprintf(" and %d more", left)
	}
	return text
}

// settled returns the last status that was not the work of a job in progress. So the
// reservation of a job, which may be withdrawn, is no event.
func settled(n *inventory.Node) inventory.Status {
	if n.Before != nil {
		return n.Before.Status
	}
	return n.Status
}

func resultOf(n *inventory.Node) inventory.VerdictResult {
	if n.Verification == nil {
		return ""
	}
	return n.Verification.Result
}

// oneLine bounds a text and removes control characters and ends of lines.
func oneLine(text string) string {
	// Spaces keep the words of several lines apart.
	clean := strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case r < ' ' || r == 0x7f || r == '\u2028' || r == '\u2029' || isDirection(r):
			return -1
		default:
			return r
		}
	}, text)

	return inventory.Shorten(clean, maxDetail)
}

// isDirection reports whether the rune changes the direction of text, and so hides its
// order.
func isDirection(r rune) bool {
	return r == '\u200e' || r == '\u200f' || r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069'
}

// wants reports whether the target asked for the event.
func (t Target) wants(e happening) bool {
	if e.Kind == KindGap || e.Kind == KindTest {
		return true
	}

	if !slices.Contains(t.Events, e.Kind) {
		return false
	}

	// A failed job comes once, as failed, where both kinds are asked for.
	if e.Kind == KindJobEnded && e.To == string(job.Errored) && slices.Contains(t.Events, KindJobFailed) {
		return false
	}

	// So does drift.
	if e.Kind == KindNodeVerification && e.To == string(inventory.Drifted) &&
		slices.Contains(t.Events, KindNodeDrifted) {
		return false
	}

	if e.node == nil {
		return true
	}

	return e.node.Alerted(inventory.Silenced) == nil && (t.Matches == nil || t.Matches(e.node))
}
