// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
)

// partOf reports the rollout of a job.
func (e *jobExplainer) partOf() {
	if e.Job.Rollout == "" {
		return
	}

	r := record.Get(e.View, &rollout.Kind, e.Job.Rollout)
	if r == nil {
		e.add(finding(AboutRollout, "it is a part of rollout %s, which is no longer kept", e.Job.Rollout).of(e.Job))
		return
	}

	e.add(finding(AboutRollout, "it is a part of rollout %s, %s of %s by %s, which is %s",
		r.ID, r.Spec.Action, inventory.Count(len(r.Nodes), "node", "nodes"), r.Actor, statusOf(r)).
		of(e.Job).since(r.Created).goesOn(e.Facts, r))
}

// goesOn adds the remedy for a rollout that failures stopped.
func (f Finding) goesOn(facts Facts, r *rollout.Record) Finding {
	f = f.with(inventory.ShowRollout(r.ID))

	if remedy, actions := r.Remedy(facts.Playbooks); remedy != "" {
		f = f.do("%s", remedy).with(actions...)
	}
	return f
}

// rollouts reports the rollouts that have the node and have not ended.
func (e *nodeExplainer) rollouts() {
	for _, r := range record.All(e.View, &rollout.Kind) {
		if r.Status.Ended() {
			continue
		}

		for i := range r.Nodes {
			n := &r.Nodes[i]
			if n.Name != e.Node.Name {
				continue
			}
			text := string(n.State)
			if n.Reason != "" {
				text += ": " + n.Reason
			}
			e.add(finding(AboutRollout, "rollout %s (%s, %s): the node is %s", r.ID, r.Spec.Action, statusOf(r), text).
				on(n.Name).since(r.Created).goesOn(e.Facts, r))
		}
	}
}

// statusOf describes the status of a rollout, and the cause of its wait.
func statusOf(r *rollout.Record) string {
	return strings.Join(nonEmpty(string(r.Status), r.Reason, r.Waits), ", ")
}
