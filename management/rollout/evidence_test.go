// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
)

// evidence is a log of what happened to the nodes of one rollout: the jobs that it was given and
// their true ends, the checks, and the acts of people. The record is judged by it, and by none of
// the code's own predicates.
type evidence struct {
	f     *fleet
	nodes map[string]*account

	aborted, cancels, paused, promoted bool

	canary  canary
	awaits  bool // the canary is over, nodes wait, and a person has to promote the rollout
	muddled bool // acts or skips have changed who belongs to the canary
}

// canary is what became of the first nodes.
type canary int

const (
	canaryGoes canary = iota
	canaryOver
	canaryBroken
)

// account is the log of one node of a rollout.
type account struct {
	held bool // the rollout is to change it
	// work is the newest job of the action since the node was last put back, and gate the
	// verification after it.
	work, gate *simJob
	reported   time.Time // the newest report of an end
	turnedAway bool      // its job was refused for good
	excused    bool

	was stand // at the last audit

	jobs    []*simJob // all of the action
	changed bool      // by any of them
	before  []string  // the digests that the first one that changed it may have found
}

// stand is how far a node has truly come.
type stand string

const (
	untouched stand = ""
	atWork    stand = "at work"
	soaking   stand = "soaking"
	well      stand = "well"
	broken    stand = "broken"
)

// watch keeps evidence of the rollout from now on.
func (f *fleet) watch() {
	f.evidence = &evidence{f: f, nodes: map[string]*account{}}
	if f.record.ID != "" {
		f.evidence.started()
	}
}

func (e *evidence) fail(format string, args ...any) {
	e.f.t.Helper()
	e.f.t.Fatalf("seed %d: rollout %s, %s: %s\n%+v", e.f.seed, e.f.record.ID, e.f.now.Sub(epoch),
		fmt.Sprintf(format, args...), e.f.record)
}

// started logs the start of the rollout.
func (e *evidence) started() {
	if e == nil {
		return
	}

	for i := range e.f.record.Nodes {
		n := &e.f.record.Nodes[i]
		e.nodes[n.Name] = &account{}

		if n.State == Waiting {
			e.hold(n.Name)
		}
	}
}

// hold logs that the rollout is to change the node, which no other one may be to change.
func (e *evidence) hold(name string) {
	if other := e.f.holder(name); other != nil {
		e.fail("%s is to be changed by rollout %s as well", name, other.record.ID)
	}

	e.nodes[name].held = true
}

// holder returns the rollout that is to change the node, or nil.
func (s *site) holder(name string) *fleet {
	for _, f := range s.fleets {
		if f.evidence != nil && f.evidence.nodes[name] != nil && f.evidence.nodes[name].held {
			return f
		}
	}

	return nil
}

// refused logs that a job was refused for good.
func (e *evidence) refused(b Begin) {
	if e != nil {
		e.nodes[b.Node].turnedAway = true
	}
}

// given logs a job that was accepted, which must have been due.
func (e *evidence) given(b Begin, j *simJob) {
	if e == nil {
		return
	}

	a := e.nodes[b.Node]

	switch {
	case e.aborted:
		e.fail("%s is begun after the abort", b.Node)
	case !a.held || e.f.holder(b.Node) != e.f:
		e.fail("%s is begun, and is not to be changed", b.Node)
	case b.Gate && (a.work == nil || a.gate != nil || e.f.open[a.work.ID] != nil || a.work.Status != job.Complete):
		e.fail("%s is verified after %+v", b.Node, a.work)
	case b.Gate:
		a.gate = j
		return
	case e.paused || a.work != nil:
		e.fail("%s is begun while paused (%t), or twice", b.Node, e.paused)
	}

	if reason := e.excess(); reason != "" {
		e.fail("%s is begun, and %s", b.Node, reason)
	}

	if e.awaits && !e.promoted {
		e.fail("%s is begun before the promotion", b.Node)
	}

	e.checkCanary(b.Node)

	a.work, a.was = j, atWork
	a.jobs = append(a.jobs, j)

	if !a.changed {
		a.before = append(a.before, j.Targets[0].Playbooks[j.Targets[0].FromGroup])
	}
}

// checkCanary refuses a further node while the canary goes on.
func (e *evidence) checkCanary(name string) {
	if e.muddled || e.canary != canaryGoes || e.f.record.Spec.Canary == 0 {
		return
	}

	begun := 0

	for _, a := range e.nodes {
		if a.work != nil {
			begun++
		}
	}

	if begun >= e.f.record.Spec.Canary {
		e.fail("%s is begun beside a canary of %d", name, begun)
	}
}

// ended logs the end of a job. One that never began puts its node back.
func (e *evidence) ended(j *simJob) {
	if e == nil {
		return
	}

	a := e.nodes[j.Targets[0].Name]
	a.reported = e.f.now

	neverBegan := j.fail && j.end == endsRefused

	switch {
	case neverBegan && j.gate:
		a.gate = nil
	case neverBegan:
		a.work = nil
	}

	if j.gate {
		return
	}

	if !neverBegan && !j.Started.IsZero() && (!j.fail || j.end != endsUntouched) {
		a.changed = true
		e.f.changers[j.Targets[0].Name] = j
	}
}

// cancelled logs the cancellation of a job, which an abort must have asked for.
func (e *evidence) cancelled(j *simJob) {
	switch {
	case e == nil:
	case !e.aborted:
		e.fail("job %s is cancelled, and nobody aborted the rollout", j.ID)
	case !e.cancels && j.Status == job.Running:
		e.fail("job %s runs and is cancelled, and the abort lets it finish", j.ID)
	case j.Cancel > 0:
		e.fail("job %s is cancelled twice", j.ID)
	}
}

// stand returns how far the node has truly come, and when its soak time ends at the earliest.
func (e *evidence) stand(a *account) (is stand, soaked time.Time) {
	spec, now := e.f.record.Spec, e.f.now

	switch {
	case a.was == broken || a.turnedAway:
		return broken, soaked
	case a.work == nil:
		return untouched, soaked
	case e.f.open[a.work.ID] != nil:
		return atWork, soaked
	case a.work.Status != job.Complete:
		return broken, soaked
	}

	passed, seen := a.work.ends, a.reported

	if !spec.Gate.SkipVerify {
		switch g := a.gate; {
		case g == nil || e.f.open[g.ID] != nil || e.aborted && g.Status == job.Cancelled:
			return atWork, soaked
		case g.fail:
			return broken, soaked
		}

		passed = a.gate.ends
	}

	if http := spec.Gate.HTTP; http != nil {
		asked, passes := a.work.asked, a.work.passes

		switch {
		case !passes.IsZero() && !now.Before(passes):
			passed, seen = passes, passes
		case asked.IsZero() || now.Before(asked.Add(http.Timeout)) || e.aborted:
			return atWork, soaked
		default:
			return broken, soaked
		}
	}

	soak := spec.Soak
	soaked = passed.Add(soak)

	switch {
	case soak > 0 && a.was != well && !e.aborted && e.f.nodes[a.work.Targets[0].Name].State != inventory.Discovered:
		return broken, soaked
	case now.Before(seen.Add(soak)):
		return soaking, soaked
	}

	return well, soaked
}

// audit compares the record with the log after a decision.
func (e *evidence) audit() {
	if e == nil || e.f.record.ID == "" {
		return
	}

	for i := range e.f.record.Nodes {
		n := &e.f.record.Nodes[i]
		if e.nodes[n.Name].held || !slices.Contains([]State{Succeeded, Failed, Skipped}, n.State) {
			e.auditNode(n)
		}
	}

	e.auditCanary()
	e.auditStatus()
}

// auditAbort asserts that an abort has cancelled the jobs that it was to cancel.
func (e *evidence) auditAbort() {
	if e == nil || !e.aborted {
		return
	}

	for id, j := range e.f.open {
		owed := j.of == e.f && e.f.now.Before(j.ends) && (e.cancels || j.Status == job.Queued)
		if owed && j.Cancel == 0 {
			e.fail("job %s goes on after the abort", id)
		}
	}
}

// auditNode compares the state of a node with what truly happened to it.
func (e *evidence) auditNode(n *Node) {
	a := e.nodes[n.Name]
	is, soaked := e.stand(a)

	node := e.f.nodes[n.Name]
	unfit := node.Status != inventory.Allocated || node.State != inventory.Discovered

	agrees := map[State]bool{
		Waiting: is == untouched && !e.aborted,
		Skipped: is == untouched && (e.aborted || unfit),
		Working: is == atWork, Verifying: is == atWork, Checking: is == atWork,
		Soaking: is == soaking,
		Failed:  is == broken,
		Succeeded: is == well || is == soaking && !e.f.now.Before(soaked) ||
			e.aborted && is != broken && a.work != nil && a.work.Status == job.Complete,
	}

	if !agrees[n.State] {
		e.fail("%s is %s in the record, and truly %q: its job %+v, its verification %+v",
			n.Name, n.State, is, a.work, a.gate)
	}

	a.was, a.held = is, false

	switch n.State {
	case Succeeded:
		a.was = well
	case Skipped:
		e.muddled = true
	case Waiting, Working, Verifying, Checking, Soaking:
		a.held = true
	}
}

// count returns the number of nodes of a group that stand so, without those that are excused.
func (e *evidence) count(s stand) int {
	n := 0

	for _, a := range e.nodes {
		if a.was == s && !a.excused {
			n++
		}
	}

	return n
}

// excess describes the limit that the failures break, or returns "".
func (e *evidence) excess() string {
	limit := e.f.record.Spec.MaxFailures

	// All nodes are of one group.
	if s := e.f.record.Spec.Strategies[inventory.GroupWorker]; s.MaxFailures != nil {
		limit = min(limit, *s.MaxFailures)
	}

	switch failed := e.count(broken); {
	case failed > limit:
		return fmt.Sprintf("%d failed, the limit is %d", failed, limit)
	case failed > 0 && e.canary == canaryBroken && !e.muddled:
		return "the canary failed"
	}

	return ""
}

// auditCanary notes the end of the canary.
func (e *evidence) auditCanary() {
	size := e.f.record.Spec.Canary
	if size == 0 || e.muddled || e.canary != canaryGoes {
		return
	}

	switch {
	case e.count(broken) > 0:
		e.canary = canaryBroken
	case e.count(well) >= size:
		e.canary = canaryOver
		e.awaits = e.f.record.Spec.Promote && e.count(well) < len(e.nodes)
	}
}

// auditStatus compares the status of the rollout with the counts of the log.
func (e *evidence) auditStatus() {
	r := e.f.record
	failed, excess := e.count(broken), e.excess()

	// Who belongs to the canary is no longer known.
	unclear := r.Spec.Canary > 0 && e.muddled && failed > 0

	wrong := ""

	switch r.Status {
	case Running, AwaitingPromotion, Done:
		wrong = excess
	case Stopped:
		if excess == "" && !unclear {
			wrong = fmt.Sprintf("%d failed, which is within the limit", failed)
		}
	case Fruitless:
		if excess == "" && !unclear && e.count(well) > 0 || !slices.ContainsFunc(r.Nodes, e.isBroken) {
			wrong = fmt.Sprintf("%d failed, which is within the limit, and %d are well", failed, e.count(well))
		}
	}

	if wrong != "" {
		e.fail("it is %s, and %s", r.Status, wrong)
	}

	if r.Status == Done || r.Status == Fruitless || r.Status == Aborted {
		for name, a := range e.nodes {
			if a.held || a.was == atWork && !e.aborted {
				e.fail("it is %s, and %s is not at its end", r.Status, name)
			}
		}
	}
}

// rests asserts that a rollout to which nothing will happen any more has a reason to wait.
func (e *evidence) rests() {
	if e == nil {
		return
	}

	switch r := e.f.record; r.Status {
	case Aborting:
		e.fail("it does not come to its end")
	case Running:
		if r.Waits == "" || e.count(atWork)+e.count(soaking) > 0 {
			e.fail("it does not go on")
		}
	}
}

func (e *evidence) isBroken(n Node) bool { return e.nodes[n.Name].was == broken }

func (f *fleet) mark() Mark { return Mark{By: "bob", At: f.now} }

func (f *fleet) abort(cancel bool) {
	f.act(f.record.Abort(f.mark(), cancel))
	f.evidence.aborted, f.evidence.cancels = true, f.evidence.cancels || cancel
}

func (f *fleet) pause() {
	f.act(f.record.Pause(f.mark()))
	f.evidence.paused = true
}

func (f *fleet) promote() {
	f.act(f.record.Promote(f.mark()))
	f.evidence.promoted = true
}

func (f *fleet) resume() {
	stopped := f.record.Status == Stopped
	f.act(f.record.Resume(f.mark()))
	f.evidence.paused = false

	if stopped {
		f.evidence.excuse(nil)
	}
}

// excuse logs that a person goes on in spite of the nodes that failed, without those that are to
// be begun again.
func (e *evidence) excuse(again []string) {
	e.muddled = true

	for name, a := range e.nodes {
		a.excused = a.excused || a.was == broken && !slices.Contains(again, name)
	}
}

func (f *fleet) retry(names []string) {
	r, err := f.record.Retry(f.mark(), names)
	if err != nil {
		f.t.Fatalf("seed %d: %v", f.seed, err)
	}
	f.retried(r, names)
}

// retried stores the record after a retry of the nodes.
func (f *fleet) retried(r Record, names []string) {
	e, before := f.evidence, f.record.Status
	f.record = r

	// Somebody wants a paused rollout that came to its end to go on.
	e.paused = e.paused && before == Paused

	if len(names) == 0 {
		for name, a := range e.nodes {
			if a.was == broken {
				names = append(names, name)
			}
		}
	}

	e.muddled = true
	if before != Running {
		e.excuse(names)
	}

	for _, name := range names {
		e.hold(name)
		a := e.nodes[name]
		a.work, a.gate, a.turnedAway, a.excused, a.was = nil, nil, false, false, untouched
	}
}

// checkUndo asserts that the undo of the rollout, which has ended, brings back every node that
// its jobs were the last ones to change, and none that they did not.
func (f *fleet) checkUndo() Record {
	f.t.Helper()

	u, err := f.record.Undo(f.snapshot(), nil, func(string) (bool, error) { return true, nil }, "", f.now)

	back := map[string]string{}
	for _, n := range u.Nodes {
		if err == nil && n.State == Waiting {
			back[n.Name] = n.Playbooks
		}
	}

	for name, a := range f.evidence.nodes {
		digest, goes := back[name]
		last := f.changers[name]

		// What a job of another rollout has left half done may be anything.
		switch others := last != nil && last.of != f; {
		case others && last.fail:
		case goes && !a.changed:
			f.evidence.fail("the undo brings %s back, which it did not change", name)
		case goes && others:
			f.evidence.fail("the undo brings %s back, which job %s has configured since", name, last.ID)
		case goes && !slices.Contains(a.before, digest):
			f.evidence.fail("the undo brings %s back to %s, and its first job found %s", name, digest, a.before)
		case !goes && a.changed && !others:
			f.evidence.fail("the undo leaves out %s, which job %s has changed: %v", name, last.ID, err)
		}
	}

	return u
}
