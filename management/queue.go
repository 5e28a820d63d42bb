// SPDX-License-Identifier: Apache-2.0

package management

import (
	"fmt"
	"slices"
	"strings"

	"github.com/contiv/cluster/inventory"
)

// Turn is what the queue says of one Queued job.
type Turn struct {
	Job Job // with Targets and Helpers as they are to be claimed
	// Claim: it can be claimed now. Otherwise Err is set where it can no longer
	// become legal, or it waits.
	Claim bool
	Err   error
	// WaitsFor are the jobs it waits for, Reason says why in words.
	WaitsFor []string
	Reason   string
}

// turn decides what is to be done with a Queued job now: claim it, end it, or
// let it wait, and for what. limit is the number of jobs that may run at a time.
func turn(v *View, groups inventory.Groups, limit int, j Job) Turn {
	var ahead []Job

	running := 0
	for _, other := range v.Jobs {
		if other.Status == Running {
			running++
		}

		if !other.Status.Ended() && other.ID != j.ID && (other.Status == Running || other.Seq() < j.Seq()) {
			ahead = append(ahead, other)
		}
	}

	if ids, shared := overlapping(j, ahead); len(ids) > 0 {
		return Turn{Job: j, WaitsFor: ids, Reason: fmt.Sprintf("%s needed by %s", join(shared), jobs(ids))}
	}

	j.Targets = slices.Clone(j.Targets)
	if err := legal(v.Nodes, groups, &j); err != nil {
		for _, a := range ahead {
			if a.Outcomes != nil { // only its nodes are still to be written: then there is somebody to name
				return Turn{Job: j, WaitsFor: []string{a.ID}, Reason: fmt.Sprintf("job %s is about to end", a.ID)}
			}
		}

		if future := j; len(ahead) > 0 {
			future.Targets = slices.Clone(j.Targets)
			if legal(project(v, j.Seq()), groups, &future) == nil {
				ids := make([]string, len(ahead))
				for i, a := range ahead {
					ids[i] = a.ID
				}

				return Turn{
					Job:      j,
					WaitsFor: ids,
					Reason:   fmt.Sprintf("not legal before the end of %s: %s", jobs(ids), message(err)),
				}
			}
		}

		return Turn{Job: j, Err: blame(v, j, err)}
	}

	helpers, busy := chooseHelpers(v, groups, j, ahead)
	switch {
	case len(busy) > 0:
		return Turn{Job: j, WaitsFor: busy, Reason: fmt.Sprintf("the helper it needs is held by %s", jobs(busy))}
	case running >= limit:
		var ids []string
		for _, a := range ahead {
			if a.Status == Running {
				ids = append(ids, a.ID)
			}
		}

		return Turn{
			Job:      j,
			WaitsFor: ids,
			Reason:   inventory.Count(running, "job runs", "jobs run") + ", which is the limit (jobs.limit)",
		}
	}

	j.Helpers = helpers

	return Turn{Job: j, Claim: true}
}

// overlapping returns the jobs that hold, or want before j, something j wants.
func overlapping(j Job, ahead []Job) (ids, shared []string) {
	mine := map[string]bool{}
	for _, t := range j.Targets {
		mine[t.Name] = true
		mine[t.Addr] = true
	}

	for _, a := range ahead {
		var both []string
		for _, t := range a.Targets {
			if mine[t.Name] || mine[t.Addr] && t.Addr != "" {
				both = append(both, t.Name)
			}
		}

		for _, h := range a.Helpers {
			if mine[h] {
				both = append(both, h)
			}
		}

		if len(both) > 0 {
			ids = append(ids, a.ID)
			for _, name := range both {
				if !slices.Contains(shared, name) {
					shared = append(shared, name)
				}
			}
		}
	}

	return ids, shared
}

// chooseHelpers picks the surviving node that has to do its part when members
// of a group that others need come or go: the first commissioned, Discovered
// one outside the batch that no job ahead wants. Where all are wanted, the jobs
// to wait for are returned.
func chooseHelpers(v *View, groups inventory.Groups, j Job, ahead []Job) (helpers, busy []string) {
	if j.Verb == inventory.VerbMaintenance || j.Verb == inventory.VerbDiscover {
		return nil, nil
	}

	var wanted []string
	for _, g := range groups {
		touched := slices.ContainsFunc(j.Targets, func(t Target) bool {
			return t.Group == g.Name || t.FromGroup == g.Name || slices.Contains(t.Residue, g.Name)
		})
		if touched && groups.Needed(g.Name) {
			wanted = append(wanted, g.Name)
		}
	}

	for _, group := range wanted {
		found := false

		var holders []string
		for _, n := range v.Nodes {
			if n.Group != group || !n.Commissioned() || n.State != inventory.Discovered {
				continue
			}

			if _, in := j.Target(n.Name); in {
				continue
			}

			ids, _ := overlapping(Job{Targets: []Target{{Name: n.Name, Addr: n.Addr}}}, ahead)
			if len(ids) == 0 {
				helpers, found = append(helpers, n.Name), true
				break
			}

			holders = append(holders, ids...)
		}

		if !found {
			busy = append(busy, holders...)
		}
	}

	slices.Sort(busy)

	return helpers, slices.Compact(busy)
}

// blame says which job changed the ground under a job that was legal when it
// was accepted.
func blame(v *View, j Job, err error) error {
	e, ok := err.(*inventory.Error)
	if !ok {
		return err
	}

	var culprit *Job
	for i := range v.Jobs {
		other := &v.Jobs[i]
		if !other.Status.Ended() || other.ID == j.ID || other.Ended.Before(j.Accepted) {
			continue
		}

		touches := slices.ContainsFunc(other.Targets, func(t Target) bool {
			return slices.Contains(e.Nodes, t.Name) || slices.Contains(e.Nodes, t.Addr)
		})

		failed := other.Status != Complete && other.Seq() < j.Seq()
		if (touches || failed) && (culprit == nil || !other.Ended.Before(culprit.Ended)) {
			culprit = other
		}
	}

	if culprit == nil {
		return e
	}

	blamed := *e
	blamed.Message = fmt.Sprintf(
		"%s (since job %s, a %s of %s, ended %s)",
		e.Message,
		culprit.ID,
		culprit.Verb,
		join(culprit.Names()),
		culprit.Status,
	)

	return &blamed
}

// message is an error's message without its remedy.
func message(err error) string {
	if e, ok := err.(*inventory.Error); ok {
		return e.Message
	}

	return err.Error()
}

func jobs(ids []string) string {
	if len(ids) == 1 {
		return "job " + ids[0]
	}

	return "jobs " + strings.Join(ids, ", ")
}
