// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"fmt"
	"slices"

	"github.com/contiv/cluster/management/rollout"
)

// rolloutKinds are the kinds of event by the status of a rollout; it goes on in another one.
var rolloutKinds = map[rollout.Status]Kind{
	rollout.Done: KindRolloutEnded, rollout.Fruitless: KindRolloutEnded, rollout.Aborted: KindRolloutEnded,
	rollout.Stopped: KindRolloutStopped, rollout.Paused: KindRolloutStopped,
	rollout.AwaitingApproval: KindRolloutWaiting, rollout.AwaitingPromotion: KindRolloutWaiting,
}

// rolloutEvents returns the event of a rollout that ended, or that needs a person to go on.
// The nodes of the records are not looked at.
func rolloutEvents(was, is *rollout.Record) []happening {
	kind, known := rolloutKinds[is.Status]
	if !known || was != nil && was.Status == is.Status {
		return nil
	}

	e := Event{
		Kind: kind, Time: is.Created, Rollout: is.ID, Verb: string(is.Spec.Action), To: string(is.Status),
		Detail: is.Reason, Actor: is.Actor,
		Summary: fmt.Sprintf("rollout %s (%s) is %s", is.ID, is.Spec.Action, is.Status),
	}

	if was != nil {
		e.From = string(was.Status)
	}

	// Each change of the status leaves an event, which is the newest one.
	if n := len(is.Events); n > 0 {
		e.Time = is.Events[n-1].Time
	}

	if by := decidedBy(is); by != "" {
		e.Actor = by
	}

	list := []happening{{Event: e}}

	if was != nil && was.Status != rollout.Stopped && isStopped(is) {
		e.Kind = KindRolloutStopped
		list = slices.Insert(list, 0, happening{Event: e})
	}

	return list
}

// isStopped reports whether failures stopped a rollout that ended with that, because no node was
// left to be begun.
func isStopped(r *rollout.Record) bool {
	n := len(r.Events)
	return r.Status == rollout.Fruitless && n > 1 && r.Events[n-2].Kind == rollout.EventStopped
}

// decidedBy returns who paused or aborted the rollout, or "" if nobody did.
func decidedBy(r *rollout.Record) string {
	kind, decided := map[rollout.Status]rollout.EventKind{
		rollout.Paused: rollout.EventPaused, rollout.Aborted: rollout.EventAbort,
	}[r.Status]

	for _, e := range slices.Backward(r.Events) {
		if decided && e.Kind == kind {
			return e.Actor
		}
	}

	return ""
}
