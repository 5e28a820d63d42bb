// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
)

// World is the input of Next besides the record. Its functions must not block.
type World struct {
	// Node returns the node of that name, or nil if there is none.
	Node func(name string) *inventory.Node
	// Job returns the job with that id. known is false if it is no longer kept. An unreadable job
	// counts as Running.
	Job func(id string) (j job.Job, known bool)
	// Checked returns the newest result of the checks of the gate of an attempt on a node.
	Checked func(node string, attempt int) CheckResult
	// Age returns how long a node has been in its state, immune to clock changes. known is false
	// if the start lies in the future, written by a clock that was ahead. nil: by the wall clock.
	Age func(n *Node) (age time.Duration, known bool)
	// Allowed reports whether a job of the rollout may begin on the node now. nil: always.
	Allowed func(n *inventory.Node, now time.Time) Permission
	// Permits returns a check of the disruption budgets, given the names of the nodes in progress:
	// whether one more node may be out of service, besides those that already are and those it
	// has permitted. A refusal has a reason. nil: always permitted.
	Permits func(working []string) Permits
	// Halted is the reason why no node may begin at all; empty: nodes may begin.
	Halted string
	// Room is the number of jobs that may be submitted now.
	Room int
}

// Permits is asked for one node after another. It permits the node, or returns the reason.
type Permits func(n *inventory.Node) (ok bool, reason string)

// Permission is the decision of the maintenance windows on a node.
type Permission struct {
	OK     bool
	Until  time.Time // when the answer changes; zero: unknown
	Reason string    // of a refusal, in words
}

// CheckResult is the newest result of the checks of a gate.
type CheckResult struct {
	OK bool // all of them succeeded
	// Command means that the command is being checked: the HTTP check, if any, has succeeded.
	Command bool
	// Since is the start of the current check's timeout; zero: it has not begun, or waits for a
	// free lane.
	Since time.Time
	Error string // of the current check, in words
}

// Steps are the result of Next. Carrying them out twice is harmless: each is guarded by the revision of
// the record.
type Steps struct {
	// Record is the updated record. If Changed, store it first.
	Record  Record
	Changed bool
	// Begin are the jobs to be submitted, in order. Each is stored in one transaction with
	// Record.Begun.
	Begin []Begin
	// Checks are the nodes to poll by HTTP check or command.
	Checks []Check
	// Cancel are the ids of jobs to be cancelled.
	Cancel []Cancel
	// Unfit are the nodes that just failed their gate, with the reasons. Mark them before storing
	// Record.
	Unfit map[string]string
	// Due is the next time at which Next returns something else without a change of the world; zero: never.
	Due time.Time
}

// Begin is a job to be submitted for one node.
type Begin struct {
	Node string
	Gate bool // the job is the verification of the gate, not the action
}

// Check is a node that is checked after its job.
type Check struct {
	Node    string
	Attempt int
	Addr    string
	Group   string
}

// Cancel is a job to be cancelled.
type Cancel struct {
	Job string
	// Queued: cancel it only if it has not begun.
	Queued bool
}

// Next decides on the next steps: which outcomes to record, which jobs to submit, and whether the
// rollout stops, waits or ends. It is pure.
func Next(r Record, w World, now time.Time) Steps {
	if r.Status.Ended() || r.Status == Planned {
		return Steps{Record: r}
	}

	d := &decision{Record: r, w: w, now: now, before: r}
	d.row, _ = inventory.TransitionOf(r.Spec.Action)
	d.Nodes = slices.Clone(r.Nodes)
	d.Events = slices.Clip(r.Events)

	// Order matters: record outcomes, decide whether to continue, and only then begin nodes.
	d.advance()
	d.review()

	if d.Status == Running {
		d.pick()
	} else {
		d.Waits, d.WaitsUntil = "", time.Time{}
	}

	d.finish()

	return Steps{
		Record: d.Record, Changed: d.isChanged(), Begin: d.begin, Checks: d.checks, Cancel: d.cancel,
		Unfit: d.unfit(), Due: d.due,
	}
}

// decision is one call of Next.
type decision struct {
	Record

	w      World
	row    inventory.Transition
	now    time.Time
	before Record

	begin   []Begin
	checks  []Check
	cancel  []Cancel
	due     time.Time
	changed bool // of a node
}

func (d *decision) isChanged() bool {
	was := d.before

	return d.changed || d.Status != was.Status || d.Reason != was.Reason || d.Waits != was.Waits ||
		!d.WaitsUntil.Equal(was.WaitsUntil) || !d.CanaryDone.Equal(was.CanaryDone)
}

// unfit returns the nodes in service that failed their gate, with the reasons.
func (d *decision) unfit() map[string]string {
	unfit := map[string]string{}

	for i := range d.Nodes {
		n, was := &d.Nodes[i], d.before.Nodes[i].State
		if n.State != Failed || was != Verifying && was != Checking {
			continue
		}
		if node := d.w.Node(n.Name); node != nil && node.Status == inventory.Allocated {
			unfit[n.Name] = n.Reason
		}
	}

	return unfit
}

// wake schedules the next decision for that time, if it is the earliest.
func (d *decision) wake(at time.Time) {
	if !at.IsZero() && (d.due.IsZero() || at.Before(d.due)) {
		d.due = at
	}
}

// move puts the node into a state.
func (d *decision) move(n *Node, s State, reason string) {
	n.State, n.Since, n.Reason = s, d.now, inventory.Shorten(reason, maxText)
	d.changed = true

	switch s {
	case Failed:
		d.note(Event{Kind: EventFailed, Node: n.Name, Text: n.Reason})
	case Skipped:
		// An abort may skip thousands of nodes, and has one event for all.
		if d.Status != Aborting {
			d.note(Event{Kind: EventSkipped, Node: n.Name, Text: n.Reason})
		}
	}
}

// advance moves each node through as many states as its jobs and checks allow.
func (d *decision) advance() {
	for i := range d.Nodes {
		// With a start in the future, a soak could last for years.
		if n := &d.Nodes[i]; n.State.InProgress() {
			if _, known := d.age(n); !known {
				n.Since, d.changed = d.now, true
			}
		}

		// A node may pass several states at once.
		for n := &d.Nodes[i]; n.State.InProgress(); {
			state := n.State
			d.step(n)

			if n.State == state {
				break
			}
		}

		if n := &d.Nodes[i]; n.State == Waiting && d.Status == Aborting {
			d.move(n, Skipped, "the rollout was aborted")
		}
	}
}

// age returns for how long the node has been in its state, see World.Age.
func (d *decision) age(n *Node) (age time.Duration, known bool) {
	if d.w.Age != nil {
		return d.w.Age(n)
	}
	return d.now.Sub(n.Since), !n.Since.After(d.now)
}

// step moves a node in progress on, if it has come further.
func (d *decision) step(n *Node) {
	switch n.State {
	case Working:
		if j, ended := d.follow(n, n.Job); ended {
			d.judge(n, j)
		}
	case Verifying:
		d.stepGate(n)
	case Checking:
		d.stepCheck(n)
	case Soaking:
		d.stepSoak(n)
	}
}

// follow returns the job of the node and whether it has ended. If the job is no longer kept, the node
// fails.
func (d *decision) follow(n *Node, id string) (job.Job, bool) {
	j, known := d.w.Job(id)

	switch {
	case !known:
		if n.State == Working {
			n.Changed = n.Job
		}

		d.move(n, Failed, fmt.Sprintf("job %s is no longer kept: how it ended is not known", id))
		return j, false
	case j.Status.Ended():
		return j, true
	}

	// A second cancel would skip the cleanup of the job.
	if d.Status == Aborting && j.Cancel == 0 && (d.Record.Cancel || j.Status == job.Queued) {
		d.cancel = append(d.cancel, Cancel{Job: j.ID, Queued: !d.Record.Cancel})
	}

	return j, false
}

// judge records the end of the job of the action.
func (d *decision) judge(n *Node, j job.Job) {
	if mayHaveChanged(n, j) {
		n.Changed = j.ID
	}

	switch {
	case isNeverBegun(j):
		d.move(n, Waiting, "not begun: "+outcome(n, j))
		n.Job = ""

		// Its state before the first change may differ by the next attempt.
		if n.Changed == "" {
			n.Former, n.Applied = "", ""
		}
	case j.Status == job.Complete:
		d.pass(n, Working)
	case d.row.Verifies && j.Cause == job.CauseDrifted:
		// Drift is a finding, not a failure, as in a single verification.
		d.move(n, Succeeded, outcome(n, j))
	default:
		d.move(n, Failed, outcome(n, j))
	}
}

// mayHaveChanged reports whether a job that has ended may have changed the node.
func mayHaveChanged(n *Node, j job.Job) bool {
	queued := j.Status == job.Cancelled && j.Started.IsZero()
	return j.Status == job.Complete || !queued && !isNeverBegun(j) && !j.Outcomes[n.Name].AsBefore
}

// isNeverBegun reports whether the job was refused at its turn, for example because a budget was used up
// meanwhile.
func isNeverBegun(j job.Job) bool { return j.Cause == job.CausePrecondition && len(j.Runs) == 0 }

// outcome describes the end of a job in words.
func outcome(n *Node, j job.Job) string {
	text := j.Message
	if o, ok := j.Outcomes[n.Name]; ok && o.Error != "" {
		text = o.Error
	} else if ok && text == "" && o.Verdict != nil {
		text = o.Verdict.Describe()
	}

	return fmt.Sprintf("job %s: %s", j.ID, cmp.Or(text, string(j.Cause), string(j.Status)))
}

// pass moves the node to the next stage of its gate.
func (d *decision) pass(n *Node, passed State) {
	gate := d.Spec.Gate

	switch {
	case d.Status == Aborting && d.guarded(n):
		d.move(n, Succeeded, "its job ended well; the abort left out the rest of its gate")
	case passed == Working && d.Spec.Verifies():
		d.move(n, Verifying, "")
	case (passed == Working || passed == Verifying) && gate.Checks():
		d.move(n, Checking, "")
	case passed != Soaking && d.soak(n) > 0:
		d.move(n, Soaking, "")
	default:
		d.move(n, Succeeded, "")
	}
}

// guarded reports whether the node has a gate or a soak time.
func (d *decision) guarded(n *Node) bool {
	return d.Spec.Verifies() || d.Spec.Gate.Checks() || d.soak(n) > 0
}

// soak returns the soak time of the node.
func (d *decision) soak(n *Node) time.Duration {
	if s, ok := d.Spec.Strategies[n.Group]; ok && s.Soak != nil {
		return *s.Soak
	}
	return d.Spec.Soak
}

// stepGate submits the verification of the gate, or follows it.
func (d *decision) stepGate(n *Node) {
	if n.Gate == "" {
		switch node := d.w.Node(n.Name); {
		case d.Status == Aborting:
			d.pass(n, Verifying)
		case node == nil:
			d.move(n, Failed, "it was forgotten before its verification")
		case n.Reason != "" && d.remains(n, gatePatience) <= 0:
			d.move(n, Failed, "its verification could not be begun: "+n.Reason)
		// Room does not include the jobs of this decision, so count them here.
		case d.w.Room > len(d.begin):
			d.begin = append(d.begin, Begin{Node: n.Name, Gate: true})
		}

		return
	}

	j, ended := d.follow(n, n.Gate)

	switch {
	case !ended:
	case j.Status == job.Complete && isClean(j.Outcomes[n.Name]):
		d.pass(n, Verifying)
	case j.Status == job.Complete && j.Outcomes[n.Name].Verdict == nil:
		d.move(n, Failed, fmt.Sprintf("its verification, job %s, has no verdict on it", j.ID))
	case d.Status == Aborting && (j.Status == job.Cancelled || isNeverBegun(j)):
		d.pass(n, Verifying)
	case isNeverBegun(j) && d.remains(n, gatePatience) > 0:
		if left := j.Ended.Add(gatePause).Sub(d.now); left > 0 {
			d.wake(d.now.Add(left))
			return
		}

		n.Gate, n.Reason, d.changed = "", inventory.Shorten("not verified: "+outcome(n, j), maxText), true
	default:
		d.move(n, Failed, "its verification failed: "+outcome(n, j))
	}
}

const (
	// gatePatience limits how long the verification of a node may be postponed, because the node
	// occupies a slot of the window.
	gatePatience = 10 * time.Minute
	// gatePause is the delay before a verification that was refused at its turn is submitted again.
	gatePause = 30 * time.Second
)

// remains returns how much of the limit is left to the node in its state, and schedules a decision for
// its end.
func (d *decision) remains(n *Node, limit time.Duration) time.Duration {
	age, known := d.age(n)
	if !known || age >= limit {
		return 0
	}
	d.wake(d.now.Add(limit - age))
	return limit - age
}

// isClean reports whether a verification found the node clean.
func isClean(o inventory.Outcome) bool {
	return o.Verdict != nil && o.Verdict.Result == inventory.Clean
}

// stepCheck follows the HTTP check and the command of the gate. The timeout of each starts with its
// first attempt.
func (d *decision) stepCheck(n *Node) {
	last, gate := d.w.Checked(n.Name, n.Attempt), d.Spec.Gate
	what, within := gate.current(last.Command || gate.HTTP == nil)
	asked, until := !last.Since.IsZero(), last.Since.Add(within)
	node := d.w.Node(n.Name)

	switch {
	case last.OK, d.Status == Aborting:
		d.pass(n, Checking)
	case node == nil:
		d.move(n, Failed, fmt.Sprintf("it was forgotten during its %s", what))
	case asked && !d.now.Before(until):
		d.move(n, Failed, fmt.Sprintf("its %s did not succeed within %s: %s", what, within, last.describe()))
	default:
		d.checks = append(d.checks, Check{Node: n.Name, Attempt: n.Attempt, Addr: node.Addr, Group: node.Group})

		if asked {
			d.wake(until)
		}
	}
}

func (c CheckResult) describe() string {
	switch {
	case c.Error != "":
		return c.Error
	case c.Command:
		return "it has not ended"
	}

	return "there was no answer"
}

// stepSoak watches a node that passed its gate.
func (d *decision) stepSoak(n *Node) {
	age, _ := d.age(n)
	left := d.soak(n) - age
	node := d.w.Node(n.Name)

	switch {
	case d.Status == Aborting, d.row.Success != inventory.Allocated && left <= 0:
		d.pass(n, Soaking)
	case d.row.Success != inventory.Allocated:
		d.wake(d.now.Add(left))
	case node == nil:
		d.move(n, Failed, "it was forgotten during its soak time")
	case node.State != inventory.Discovered:
		d.move(n, Failed, fmt.Sprintf("it became %s during its soak time", node.State))
	case left <= 0:
		d.pass(n, Soaking)
	default:
		d.wake(d.now.Add(left))
	}
}

// review stops a rollout with too many failures, and ends the canary.
func (d *decision) review() {
	if d.Status != Running {
		return
	}

	if reason := d.Excess(); reason != "" {
		d.stop(reason)
		return
	}

	if d.Spec.Canary == 0 || !d.CanaryDone.IsZero() || d.canaryLeft() > 0 {
		return
	}

	c := d.Count()
	if c.InProgress > 0 {
		return // a retry of one of its nodes
	}

	d.CanaryDone = d.now
	d.note(Event{Kind: EventCanary, Text: "the canary is done"})

	if d.Spec.Promote && d.Promoted == nil && c.Waiting > 0 {
		d.Status, d.Reason = AwaitingPromotion, "the canary is done, and a person has to promote the rollout"
	}
}

// stop moves the rollout to Stopped. reason names the failures.
func (d *decision) stop(reason string) {
	d.Status, d.Reason = Stopped, reason
	d.note(Event{Kind: EventStopped, Text: reason})
}

// Excess describes the failures that exceed a limit of the rollout, or returns "". Excused failures do
// not count.
func (r Record) Excess() string {
	failed, groups := 0, map[string]int{}

	// The first one is the example in the reason.
	var first *Node

	for i := range r.Nodes {
		if n := &r.Nodes[i]; n.State == Failed && !n.Excused {
			failed++
			groups[n.Group]++

			if first == nil {
				first = n
			}
		}
	}

	if first == nil {
		return ""
	}

	example := fmt.Sprintf("%s: %s", first.Name, first.Reason)

	switch {
	case r.Spec.Canary > 0 && r.CanaryDone.IsZero():
		return inventory.Shorten("the canary failed: "+example, maxText)
	case failed > r.Spec.MaxFailures:
		return inventory.Shorten(fmt.Sprintf("%s failed, and max_failures is %d; %s",
			inventory.Count(failed, "node", "nodes"), r.Spec.MaxFailures, example), maxText)
	}

	// In a fixed order, so that the reason stays the same from call to call.
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		n := groups[group]
		if s := r.Spec.Strategies[group]; s.MaxFailures != nil && n > *s.MaxFailures {
			return inventory.Shorten(fmt.Sprintf("%s of group %s failed, and its max_failures is %d",
				inventory.Count(n, "node", "nodes"), group, *s.MaxFailures), maxText)
		}
	}

	return ""
}

// canaryLeft returns the number of canary nodes that have no end yet.
func (d *decision) canaryLeft() int {
	left := d.Spec.Canary

	// The next node replaces a canary that was skipped or whose failure was excused, if there is
	// a next node.
	for i := range d.Nodes {
		if n := &d.Nodes[i]; n.State == Succeeded || n.State == Failed && !n.Excused {
			left--
		}
	}

	return min(max(left, 0), d.Count().Waiting+d.Count().InProgress)
}

// finish ends a rollout whose nodes all have an end.
func (d *decision) finish() {
	c := d.Count()
	if c.InProgress > 0 {
		return
	}

	switch excess := d.Excess(); {
	case d.Status == Aborting:
		d.end(Aborted, "")
	case c.Waiting > 0 || d.Status == AwaitingApproval:
	case excess != "":
		// While it is paused, the last nodes may still exceed a limit.
		if d.Status != Stopped {
			d.stop(excess)
		}

		d.end(Fruitless, excess)
	case c.Failed > 0 && c.Succeeded == 0:
		d.end(Fruitless, "")
	default:
		d.end(Done, "")
	}
}

// end ends the rollout. cause names the exceeded failure limit, or is "".
func (d *decision) end(s Status, cause string) {
	c := d.Count()
	d.Status, d.Ended, d.Waits, d.WaitsUntil = s, d.now, "", time.Time{}
	d.Reason = fmt.Sprintf("%d of %s done", c.Succeeded, inventory.Count(c.Total, "node is", "nodes are"))

	if c.Total == 1 {
		d.Reason = "the node is done"
	}

	if c.Failed+c.Skipped > 0 {
		d.Reason = fmt.Sprintf("%d done, %d failed, %d skipped", c.Succeeded, c.Failed, c.Skipped)
	}

	if cause != "" {
		d.Reason = inventory.Shorten(d.Reason+": "+cause, maxText)
	}

	d.note(Event{Kind: EventEnded, Text: d.Reason})
}

// note adds an event.
func (d *decision) note(e Event) {
	e.Time = d.now
	d.Record.note(e)
}

// note adds an event, and drops the oldest beyond MaxEvents.
func (r *Record) note(e Event) {
	e.Text = inventory.Shorten(e.Text, maxText)
	// Clip makes append copy: other records share these events.
	r.Events = append(slices.Clip(r.Events), e)
	r.Events = r.Events[max(0, len(r.Events)-MaxEvents):]
}

// Begun returns the record after the job of the node was accepted.
func (r Record) Begun(b Begin, j job.Job, now time.Time) Record {
	r.Nodes = slices.Clone(r.Nodes)

	i := slices.IndexFunc(r.Nodes, func(n Node) bool { return n.Name == b.Node })
	if i < 0 {
		return r
	}
	n := &r.Nodes[i]
	if b.Gate {
		n.Gate, n.Reason = j.ID, ""
		return r
	}

	// Only the first job found the node as it was before the rollout.
	if t, ok := j.Target(b.Node); ok && !n.hadJob() {
		n.Applied, n.Former = t.Applied, t.Playbooks[t.FromGroup]
	}

	n.State, n.Attempt, n.Job, n.Gate = Working, n.Attempt+1, j.ID, ""
	n.Since, n.Begun, n.Reason, n.Excused = now, now, "", false

	return r
}

// Postponed returns the record after a temporary refusal of the node's job. A waiting node backs off.
func (r Record) Postponed(b Begin, reason string, now time.Time) Record {
	r.Nodes = slices.Clone(r.Nodes)

	for i := range r.Nodes {
		if n := &r.Nodes[i]; n.Name == b.Node {
			n.Reason = inventory.Shorten(reason, maxText)

			if !b.Gate {
				n.Since = now
			}
		}
	}

	return r
}

// Refused returns the record after a permanent refusal of the node's job.
func (r Record) Refused(b Begin, reason string, now time.Time) Record {
	r.Nodes = slices.Clone(r.Nodes)

	i := slices.IndexFunc(r.Nodes, func(n Node) bool { return n.Name == b.Node })
	if i < 0 {
		return r
	}

	// A refused job counts as an attempt.
	n := &r.Nodes[i]
	if !b.Gate {
		n.Attempt, n.Begun = n.Attempt+1, now
	}
	n.State, n.Since, n.Reason = Failed, now, inventory.Shorten("refused: "+reason, maxText)
	r.note(Event{Time: now, Kind: EventFailed, Node: n.Name, Text: n.Reason})

	return r
}
