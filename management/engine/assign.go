// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// runners are the live instances, by their nodes, as far as the choice among them depends on them.
type runners struct {
	self      string
	jobs      map[string]int    // that each runs
	playbooks map[string]string // the digest of those that each would run now
}

// runners returns the live instances with the jobs of the view, and those that are about to run.
func (e *Engine) runners(v *state.View, claiming map[string]job.Turn) runners {
	r := runners{self: e.self.Node, jobs: map[string]int{e.self.Node: 0}, playbooks: map[string]string{}}

	for id, i := range record.All(v, &state.Instances) {
		r.jobs[i.Node], r.playbooks[i.Node] = 0, state.PlaybooksOf(v, id).Digest
	}

	// Without others there is no choice.
	if _, own := r.playbooks[r.self]; own && len(r.playbooks) == 1 {
		return r
	}

	for _, j := range v.Jobs() {
		if _, claimed := claiming[j.ID]; j.Status == job.Running && !claimed {
			r.jobs[j.Instance]++
		}
	}

	for _, t := range claiming {
		r.jobs[t.Job.Instance]++
	}

	return r
}

// choose returns the live instance with the fewest jobs, this one if it has no more than the others, and counts the job
// there. Another instance must have the playbooks of the job: this one gets them, or says why it cannot.
func (r runners) choose(j job.Job) string {
	lacks := func(node string) bool {
		return slices.ContainsFunc(j.InUse(), func(digest string) bool { return digest != r.playbooks[node] })
	}

	best := r.self

	for _, node := range slices.Sorted(maps.Keys(r.playbooks)) {
		if r.jobs[node] < r.jobs[best] && !lacks(node) {
			best = node
		}
	}

	r.jobs[best]++

	return best
}

// reassign gives the running jobs of instances that are gone to live ones, once nobody owns them.
func (e *Engine) reassign(ctx context.Context) error {
	v := e.state.View()
	runners := e.runners(v, nil)

	var failures []error

	for _, j := range v.Jobs() {
		if _, lives := runners.playbooks[j.Instance]; j.Status != job.Running || lives || j.Instance == e.self.Node {
			continue
		}

		next := *j
		next.Instance = runners.choose(next)

		// The first one that was lost has begun what may go on: the others only waited for its end.
		if next.Former == "" {
			next.Former = j.Instance
		}
		if next.Former == next.Instance {
			next.Former = ""
		}

		log := e.log.WithFields(logrus.Fields{"job": j.ID, "instance": next.Instance, "former": j.Instance})

		switch _, err := e.store.Assign(ctx, next); {
		case err == nil:
			log.Warn("a running job goes to another instance, because its own is gone")
		case inventory.KindOf(err) != inventory.KindConflict:
			failures = append(failures, err)
		}
	}

	return errors.Join(failures...)
}
