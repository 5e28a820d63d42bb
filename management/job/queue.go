// SPDX-License-Identifier: Apache-2.0

package job

import (
	"errors"
	"fmt"
	"slices"

	"github.com/contiv/cluster/inventory"
)

// Turn is the queue's decision about one Queued job: claim it, end it, or wait.
type Turn struct {
	Job   Job  // with its targets and helpers as they are to be claimed
	Claim bool // the job can be claimed now
	// Footprint is what the claim has to do with groups.
	Footprint Footprint
	// Err is set if the job can no longer become legal. It ends Errored.
	Err error
	// WaitsFor are the jobs it waits for, and Reason explains why.
	WaitsFor []string
	Reason   string
}

// TurnOf decides whether a Queued job is claimed, ended or waits now. limit is
// the number of jobs that may run at a time. Any of the holds may hold jobs back.
func TurnOf(s Snapshot, groups inventory.Groups, limit int, j Job, holds ...Hold) Turn {
	// Whether it is legal counts when it may begin, not before.
	if reason := holdReason(holds, j); reason != "" {
		return Turn{Job: j, Reason: reason}
	}

	accepted, running := s.ahead(j)
	ahead := slices.DeleteFunc(slices.Clone(accepted), func(a *Job) bool {
		return a.Status == Queued && holdReason(holds, *a) != ""
	})

	// Jobs that share a node run in the order of their acceptance.
	if ids, shared := overlap(j, ahead); len(ids) > 0 {
		return Turn{Job: j, WaitsFor: ids, Reason: fmt.Sprintf("%s needed by %s", join(shared), Jobs(ids))}
	}

	return s.turn(groups, limit, j, ahead, running)
}

// turn decides about a Queued job that shares no node with the jobs ahead of it.
func (s Snapshot) turn(groups inventory.Groups, limit int, j Job, ahead []*Job, running []string) Turn {
	// legal fills in the targets as they are now. The queued record must not change.
	j.Targets = slices.Clone(j.Targets)
	if err := legal(s.Nodes(), groups, &j); err != nil {
		accepted, _ := s.ahead(j)
		return s.notLegalYet(groups, j, accepted, err)
	}

	if id := s.founding(groups, j, ahead); id != "" {
		return Turn{Job: j, WaitsFor: []string{id}, Reason: fmt.Sprintf(
			"job %s brings the first nodes of %s into service, and those of this job join them", id, j.Group)}
	}

	helpers, busy := s.chooseHelpers(groups, j, ahead)

	switch {
	case len(busy) > 0:
		return Turn{Job: j, WaitsFor: busy, Reason: fmt.Sprintf("the helper it needs is held by %s", Jobs(busy))}
	case len(running) >= limit:
		reason := inventory.Count(len(running), "job runs", "jobs run") + ", which is the limit (jobs.limit)"
		return Turn{Job: j, WaitsFor: running, Reason: reason}
	}

	j.Helpers = helpers

	return Turn{Job: j, Claim: true, Footprint: j.footprint(groups)}
}

// founding returns the job ahead that brings the first nodes into service of a group that others
// require, if j brings nodes to that group as well, or "". Both would found a cluster of their own.
func (s Snapshot) founding(groups inventory.Groups, j Job, ahead []*Job) string {
	serves := func(n *inventory.Node) bool { return n.Group == j.Group && n.Commissioned() }
	if j.Group == "" || groups.Required(j.Group) == 0 || slices.ContainsFunc(s.Nodes(), serves) {
		return ""
	}

	for _, a := range ahead {
		if a.Group == j.Group {
			return a.ID
		}
	}

	return ""
}

// ahead returns the jobs that run or were accepted before j, and the ids of
// those that run.
func (s Snapshot) ahead(j Job) (ahead []*Job, running []string) {
	for _, other := range s.Jobs() {
		if other.Status == Running {
			running = append(running, other.ID)
		}

		before := other.Status == Running || other.Seq() < j.Seq()
		if !other.Status.Ended() && other.ID != j.ID && before {
			ahead = append(ahead, other)
		}
	}

	return ahead, running
}

// notLegalYet decides about a job that is not legal on the nodes as they are:
// it waits if the jobs ahead can make it legal, else it ends.
func (s Snapshot) notLegalYet(groups inventory.Groups, j Job, ahead []*Job, err error) Turn {
	for _, a := range ahead {
		// The outcomes of this job are about to be written. Wait, because then
		// the error can name the job that caused it.
		if a.Outcomes != nil {
			return Turn{Job: j, WaitsFor: []string{a.ID}, Reason: fmt.Sprintf("job %s is about to end", a.ID)}
		}
	}

	// The jobs ahead may make it legal, e.g. a commission of the group it requires.
	future := j
	future.Targets = slices.Clone(j.Targets)

	if len(ahead) > 0 && legal(s.project(j.Seq()), groups, &future) == nil {
		ids := make([]string, len(ahead))
		for i, a := range ahead {
			ids[i] = a.ID
		}

		reason := fmt.Sprintf("not legal before the end of %s: %s", Jobs(ids), Message(err))

		return Turn{Job: j, WaitsFor: ids, Reason: reason}
	}

	return Turn{Job: j, Err: s.blame(groups, j, err)}
}

// overlap returns the jobs ahead that hold or want a target of j, and the names
// both want.
func overlap(j Job, ahead []*Job) (ids, shared []string) {
	// A discover names a host by address, and another job the same host by node.
	wanted := map[string]bool{}
	for _, t := range j.Targets {
		wanted[t.Name] = true
		wanted[t.Addr] = true
	}

	for _, a := range ahead {
		var both []string
		for _, t := range a.Targets {
			if wanted[t.Name] || wanted[t.Addr] && t.Addr != "" {
				both = append(both, t.Name)
			}
		}

		// A helper takes part in the job ahead, so its configuration must not change.
		for _, h := range a.Helpers {
			if wanted[h] {
				both = append(both, h)
			}
		}

		if len(both) == 0 {
			continue
		}

		ids = append(ids, a.ID)
		for _, name := range both {
			if !slices.Contains(shared, name) {
				shared = append(shared, name)
			}
		}
	}

	return ids, shared
}

// chooseHelpers picks a surviving node for every required group that a target
// enters or leaves: the first healthy one outside the batch
// that no job ahead wants. If all are wanted, it returns the jobs to wait for.
func (s Snapshot) chooseHelpers(groups inventory.Groups, j Job, ahead []*Job) (helpers, busy []string) {
	if !j.verb().Helps || j.WithoutHelpers {
		return nil, nil
	}

	for _, g := range groups {
		touched := slices.ContainsFunc(j.Targets, func(t Target) bool {
			return t.Group == g.Name || t.FromGroup == g.Name || slices.Contains(t.Residue, g.Name)
		})
		if !touched || groups.Required(g.Name) == 0 {
			continue
		}

		helper, holders := s.chooseHelper(g.Name, j, ahead)
		if helper != "" {
			helpers = append(helpers, helper)
		} else {
			busy = append(busy, holders...)
		}
	}

	slices.Sort(busy)

	return helpers, slices.Compact(busy)
}

func (s Snapshot) chooseHelper(group string, j Job, ahead []*Job) (helper string, holders []string) {
	for _, n := range s.Nodes() {
		_, target := j.Target(n.Name)

		serves := n.Group == group && n.Healthy()
		if target || !serves {
			continue
		}

		ids, _ := overlap(Job{Targets: []Target{{Name: n.Name, Addr: n.Addr}}}, ahead)
		if len(ids) == 0 {
			return n.Name, nil
		}
		holders = append(holders, ids...)
	}

	return "", holders
}

// blame adds to the error the job that made j illegal after its acceptance.
func (s Snapshot) blame(groups inventory.Groups, j Job, err error) error {
	e, ok := errors.AsType[*inventory.Error](err)
	if !ok {
		return err
	}

	var culprit *Job
	for _, other := range s.Jobs() {
		if !other.Status.Ended() || other.ID == j.ID || other.Ended.Before(j.Accepted) {
			continue
		}

		// A job ahead that failed may have left a requirement of j unmet.
		failedAhead := other.Status != Complete && other.Seq() < j.Seq() && other.leftUnmet(groups, j, e.Nodes)
		newer := culprit == nil || !other.Ended.Before(culprit.Ended)

		if (s.changedGround(*other, j, e.Nodes) || failedAhead) && newer {
			culprit = other
		}
	}

	// E.g. the node disappeared, or an operator changed a rule.
	if culprit == nil {
		return e
	}

	blamed := *e
	blamed.Message = fmt.Sprintf("%s (since job %s, a %s of %s, ended %s)",
		e.Message, culprit.ID, culprit.Verb, join(culprit.Names()), culprit.Status)

	return &blamed
}

// changedGround reports whether the ended job changed the status or the group of
// one of the nodes that a refusal of j names. A job that left a node as it was, and
// the state of a node, are no change of a job.
func (s Snapshot) changedGround(other, j Job, nodes []string) bool {
	row := j.verb().Row

	return slices.ContainsFunc(other.Targets, func(t Target) bool {
		if !slices.Contains(nodes, t.Name) && !slices.Contains(nodes, t.Addr) {
			return false
		}

		o, decided := other.Outcomes[t.Name]
		if !decided {
			return other.Status == Complete
		}

		n := s.Find(t.Name)
		unseen := n != nil && row.Takes(*n) && row.NeedsDiscover && n.State != inventory.Discovered

		return !unseen && (o.Status != t.From || o.Group != t.FromGroup)
	})
}

// leftUnmet reports whether the failure of j left a requirement of later unmet: its
// targets should have changed, or provided a group that the group of a target of later
// requires.
func (j Job) leftUnmet(groups inventory.Groups, later Job, nodes []string) bool {
	required := map[string]bool{}

	add := func(group string) {
		g, _ := groups.Get(group)
		for name := range g.Requires {
			required[name] = true
		}
	}

	add(later.Group)

	for _, t := range later.Targets {
		add(t.Group)
	}

	return slices.ContainsFunc(j.Targets, func(t Target) bool {
		return required[t.Group] || slices.Contains(nodes, t.Name) || slices.Contains(nodes, t.Addr)
	})
}
