// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
)

// obey corrects the remedies that the manager would refuse now: it takes fewer nodes at a time, or names what has to
// come first.
func (f Facts) obey(findings []Finding) {
	for i := range findings {
		found := &findings[i]

		var allowed []inventory.Action
		for _, a := range found.Actions {
			refused := f.accepted(&a)
			if refused == nil {
				allowed = append(allowed, a)
				continue
			}

			found.Remedy = fmt.Sprintf("%s, once the rules of its group allow it: %s",
				cmp.Or(found.Remedy, "change it"), cmp.Or(refused.Remedy, refused.Message))
			allowed = inventory.MergeActions(allowed, refused.Actions)
		}

		found.Actions = allowed
	}
}

// accepted returns why the job of an action would be refused now. It gives an action the batches in which it is
// accepted.
func (f Facts) accepted(a *inventory.Action) *inventory.Error {
	r, ok := f.requestOf(*a)
	if !ok {
		return nil
	}
	j, err := job.Accept(f.View.Snapshot, f.Groups, r)
	batches := false

	err = f.View.InBatches(f.Groups, j, err, func(part job.Job) ([]inventory.Action, string) {
		a.Serial, batches = part.Serial, true
		return nil, ""
	})

	refused, ok := errors.AsType[*inventory.Error](err)
	if batches || !ok || refused.Kind != inventory.KindRefused {
		return nil
	}
	return refused
}

// requestOf returns the request of an action that submits a job for nodes. ok is false for any other action.
func (f Facts) requestOf(a inventory.Action) (r job.Request, ok bool) {
	// It takes the place of a queued job, which is cancelled before and was accepted itself.
	if a.OverrideWindow {
		return r, false
	}

	if a.Name == inventory.ActionSubmit {
		r = job.Request{Verb: a.Verb, Nodes: a.Nodes, Group: a.Group}
		r.Playbooks = a.Playbooks
		return r, len(a.Nodes) > 0
	}

	old, err := f.View.Job(a.Job)
	if a.Name != inventory.ActionRetryJob || err != nil || old.TakesAddrs() {
		return r, false
	}
	r, _, err = f.View.Retry(old, job.RetryRequest{
		Failed: a.Failed, Nodes: a.Nodes, Playbooks: a.Playbooks, Timeout: a.Timeout,
	})

	return r, err == nil
}
