// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"maps"
	"slices"

	"github.com/sirupsen/logrus"

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

// runners returns the live instances with the jobs of the view, and those that are about to run. r reads the records
// of v.
func (e *Engine) runners(r record.Reader, v *state.View, claiming map[string]job.Turn) runners {
	run := runners{self: e.self.Node, jobs: map[string]int{e.self.Node: 0}, playbooks: map[string]string{}}

	for id, i := range record.All(r, &state.Instances) {
		run.jobs[i.Node], run.playbooks[i.Node] = 0, state.PlaybooksOf(r, id).Digest
	}

	// Without others there is no choice.
	if _, own := run.playbooks[run.self]; own && len(run.playbooks) == 1 {
		return run
	}

	for _, j := range v.Jobs() {
		if _, claimed := claiming[j.ID]; j.Status == job.Running && !claimed {
			run.jobs[j.Instance]++
		}
	}

	for _, t := range claiming {
		run.jobs[t.Job.Instance]++
	}

	return run
}

// hasOthers reports whether another instance lives.
func (e *Engine) hasOthers() bool {
	for _, i := range record.All(e.state.View(), &state.Instances) {
		if i.Node != e.self.Node {
			return true
		}
	}

	return false
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
	for {
		j, _, err := record.Decide(ctx, e.records, e.reassignOne)
		if j == nil || err != nil {
			return err
		}

		e.log.WithFields(logrus.Fields{"job": j.ID, "instance": j.Instance, "former": j.Former}).
			Warn("a running job goes to another instance, because its own is gone")
	}
}

// reassignOne gives the oldest of these jobs to a live instance, or returns nil if there is none. The instances and the
// owner are read through the transaction: an instance that comes back in time keeps its job.
func (e *Engine) reassignOne(tx *record.Tx) (*job.Job, error) {
	v := state.ViewOf(tx)
	runners := e.runners(tx, v, nil)

	for _, j := range v.Jobs() {
		// Most jobs are not running: only of one that is, the instance is looked up.
		if j.Status != job.Running || j.Instance == e.self.Node {
			continue
		}

		if _, lives := runners.playbooks[j.Instance]; lives {
			continue
		}

		if record.Get(tx, &state.Owners, j.ID) != nil || v.Damaged(&job.Kind, j.ID) != nil {
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

		record.Put(tx, &job.Kind, &next)

		return &next, nil
	}

	return nil, nil
}
