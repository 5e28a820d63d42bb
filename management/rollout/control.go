// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

// Begin returns the planned rollout as Running, or as AwaitingApproval if it needs one.
func (r Record) Begin(actor string, now time.Time) Record {
	r.Actor, r.Created = actor, now
	r.Status, r.Started = Running, now

	if r.Spec.RequireApproval {
		r.Status, r.Started = AwaitingApproval, time.Time{}
		r.Reason = "another person has to approve it"
	}

	r.note(Event{Time: now, Kind: EventStarted, Actor: actor, Text: r.Spec.Reason})

	return r
}

// refuse returns the error for an act that the status does not permit.
func (r Record) refuse(act, remedy string) error {
	return inventory.Errorf(inventory.KindRefused, "rollout %s is %s, and cannot be %s", r.ID, r.Status, act).
		Do("%s", remedy)
}

// Approve lets the rollout begin. Its starter cannot approve it.
func (r Record) Approve(m Mark) (Record, error) {
	switch {
	case r.Status != AwaitingApproval:
		return r, r.refuse("approved", "nothing is to be approved")
	case m.By == r.Actor:
		return r, inventory.Errorf(inventory.KindRefused, "%s started rollout %s, and another person has to approve it",
			job.OrSomebody(m.By), r.ID).Do("ask somebody else, who uses a token of their own")
	case r.unclear(m):
		return r, r.errUnclear(m)
	}

	// The duration of the rollout does not include the wait for approval.
	r.Status, r.Reason, r.Approved, r.Started = Running, "", &m, m.At

	return r.acted(EventApproved, m, m.Reason), nil
}

// unclear reports whether the actor or the starter is anonymous, so that nobody can be sure that they are
// two persons.
func (r Record) unclear(m Mark) bool { return job.Anonymous(m.By) || job.Anonymous(r.Actor) }

func (r Record) errUnclear(m Mark) error {
	if job.Anonymous(m.By) {
		return inventory.Errorf(inventory.KindRefused, "over plain HTTP nobody is known to be another person than %s, "+
			"who started rollout %s", r.Actor, r.ID).Do("use a token of your own, over HTTPS or the socket")
	}

	return inventory.Errorf(inventory.KindRefused, "rollout %s was started over plain HTTP, and nobody is known to be "+
		"another person", r.ID).Do("abort it, and start it with a token")
}

// Repin pins other playbooks. If the rollout required approval, its starter cannot repin it: the
// approval was given for the former playbooks.
func (r Record) Repin(m Mark, playbooks, commit string) (Record, error) {
	needsOther := r.Spec.RequireApproval && playbooks != r.Playbooks

	switch {
	case needsOther && r.unclear(m):
		return r, r.errUnclear(m)
	case needsOther && m.By == r.Actor:
		return r, inventory.Errorf(inventory.KindRefused,
			"%s started rollout %s, and its playbooks changed since another person approved it",
			job.OrSomebody(m.By), r.ID).
			Do("ask somebody else to go on with the playbooks of now, or start a new rollout")
	}

	before := r.Playbooks
	r.Playbooks, r.Commit = playbooks, commit

	if change := r.Repinned(before); change != "" {
		r = r.acted(EventRepinned, m, change)
	}

	return r, nil
}

// Repinned describes the change from former playbooks to the pinned ones, or returns "" if they are the same.
func (r Record) Repinned(before string) string {
	if r.Playbooks == before {
		return ""
	}
	return fmt.Sprintf("the playbooks are %s, and no longer %s", r.Playbooks, cmp.Or(before, "those of each node"))
}

// Promote lets the rollout go on after its canary.
func (r Record) Promote(m Mark) (Record, error) {
	if r.Status != AwaitingPromotion {
		return r, r.refuse("promoted", "only a rollout that awaits its promotion is promoted")
	}

	r.Status, r.Reason, r.Promoted = Running, "", &m
	return r.acted(EventPromoted, m, m.Reason), nil
}

// Pause stops the rollout from beginning further nodes. Nodes in progress continue. Pausing a paused
// rollout changes nothing.
func (r Record) Pause(m Mark) (Record, error) {
	switch r.Status {
	case Paused:
		return r, nil
	case Running, AwaitingPromotion:
	default:
		return r, r.refuse("paused", "only a rollout that goes on is paused")
	}

	r.Status, r.Reason = Paused, pausedBy(m)

	return r.acted(EventPaused, m, m.Reason), nil
}

func pausedBy(m Mark) string {
	text := job.OrSomebody(m.By) + " paused it"
	if m.Reason != "" {
		text += ": " + m.Reason
	}
	return inventory.Shorten(text, maxText)
}

// Resume continues a paused or stopped rollout. The failures so far are excused: only later ones count
// towards its limits. Resuming a running rollout changes nothing.
func (r Record) Resume(m Mark) (Record, error) {
	switch r.Status {
	case Running:
		return r, nil
	case Paused:
	case Stopped:
		// The caller's record shares its nodes with the view, which must not change.
		r.Nodes = slices.Clone(r.Nodes)
		for i := range r.Nodes {
			r.Nodes[i].Excused = r.Nodes[i].State == Failed
		}
	case AwaitingPromotion:
		return r, inventory.Errorf(inventory.KindRefused, "rollout %s is %s, and cannot be resumed: its canary is done",
			r.ID, r.Status).Do("promote it").With(inventory.PromoteRollout(r.ID))
	default:
		return r, r.refuse("resumed", "only a paused or stopped rollout is resumed")
	}

	r.Status, r.Reason = Running, ""
	r = r.acted(EventResumed, m, m.Reason)

	// A resume after a pause still needs the promotion.
	if !r.CanaryDone.IsZero() && r.Spec.Promote && r.Promoted == nil {
		r.Status, r.Reason = AwaitingPromotion, "the canary is done, and a person has to promote the rollout"
	}

	return r, nil
}

// Abort ends the rollout: no further node begins, and queued jobs are cancelled. Running jobs finish,
// unless the abort asks to cancel them too; a second abort may still ask for that.
func (r Record) Abort(m Mark, cancel bool) (Record, error) {
	switch {
	case r.Status == Aborting && (r.Cancel || !cancel):
		return r, nil
	case r.Status.Ended() || r.Status == Planned:
		return r, r.refuse("aborted", "it has ended")
	}

	r.Status, r.Cancel = Aborting, cancel
	r.Reason = inventory.Shorten(job.OrSomebody(m.By)+" aborted it", maxText)
	r.Waits, r.WaitsUntil = "", time.Time{}

	return r.acted(EventAbort, m, m.Reason), nil
}

// Retry schedules another attempt for the named nodes, which must have failed or been skipped, or for
// all failed nodes. It continues a stopped or finished rollout.
func (r Record) Retry(m Mark, names []string) (Record, error) {
	switch r.Status {
	case Running, Paused, Stopped, Done, Fruitless, AwaitingPromotion:
	default:
		return r, r.refuse("retried", "start a new rollout")
	}

	chosen, err := r.retried(names)
	if err != nil {
		return r, err
	}

	r.Nodes = slices.Clone(r.Nodes)

	for i := range r.Nodes {
		n := &r.Nodes[i]
		if !slices.Contains(chosen, n.Name) {
			// Whoever continues the rollout has seen the other failed nodes.
			n.Excused = n.Excused || n.State == Failed && r.Status != Running
			continue
		}

		n.State, n.Since, n.Reason, n.Job, n.Gate, n.Excused = Waiting, m.At, "", "", "", false
	}

	if r.Status == Stopped || r.Status == Done || r.Status == Fruitless {
		r.Status, r.Reason, r.Ended = Running, "", time.Time{}
	}

	text := inventory.Count(len(chosen), "node is", "nodes are") + " to be begun again"
	if m.Reason != "" {
		text += ": " + m.Reason
	}
	return r.acted(EventRetried, m, text), nil
}

// Remedy returns how to continue a rollout that was stopped by failures: in words, and as alternative actions, the
// most likely first. Any other rollout has none. inUse are the configured playbooks; without a digest they are unknown.
func (r Record) Remedy(inUse state.Playbooks) (remedy string, actions []inventory.Action) {
	if r.Status != Stopped && r.Status != Fruitless || r.Count().Failed == 0 {
		return "", nil
	}

	again := inventory.RetryRollout(r.ID, "")
	now := inventory.RetryRollout(r.ID, inventory.PlaybooksCurrent)

	switch {
	case r.UndoOf != "": // each node returns to its own former playbooks
		return "once the cause is corrected, retry it", []inventory.Action{again}
	case inUse.Digest != "" && inUse.Digest != r.Playbooks:
		return "the playbooks have changed since: retry it with the corrected ones, or, if the cause was elsewhere, " +
			"with those of its start", []inventory.Action{now, again}
	case inUse.Commit != "": // before the next fetch, the current playbooks are those of its start
		return "once the cause is corrected, retry it; if it is in the playbooks, commit the correction, fetch it, " +
			"and retry it with that", []inventory.Action{again, inventory.SyncRepository(), now}
	default:
		return "once the cause is corrected, retry it; if it is in the playbooks, with the corrected ones",
			[]inventory.Action{again, now}
	}
}

// retried returns the names of the nodes for a retry.
func (r Record) retried(names []string) ([]string, error) {
	var chosen []string

	for i := range r.Nodes {
		n := &r.Nodes[i]

		if len(names) == 0 && n.State == Failed ||
			slices.Contains(names, n.Name) && (n.State == Failed || n.State == Skipped) {
			chosen = append(chosen, n.Name)
		}
	}

	// An unknown name is a mistake, even beside valid ones.
	for _, name := range names {
		if !slices.Contains(chosen, name) {
			return nil, inventory.
				Errorf(inventory.KindRefused, "%s is no failed or skipped node of rollout %s", name, r.ID).
				Do("name nodes that failed or were skipped, or none for all that failed").About(name)
		}
	}

	if len(chosen) == 0 {
		return nil, inventory.Errorf(inventory.KindRefused, "no node of rollout %s failed", r.ID).
			Do("name the skipped nodes to be begun again, or leave it")
	}

	return chosen, nil
}

// acted notes the act of a person.
func (r Record) acted(kind EventKind, m Mark, text string) Record {
	r.note(Event{Time: m.At, Kind: kind, Actor: m.By, Text: text})
	return r
}
