// SPDX-License-Identifier: Apache-2.0

package job

import (
	"hash/fnv"
	"iter"
	"maps"
	"slices"

	"github.com/contiv/cluster/inventory"
)

// Footprint is what the claim of a job has to do with groups, beside its own nodes.
type Footprint struct {
	// Uses are the groups with nodes that the rules, the budgets and the helpers of the job
	// depend on. If one of them changes, the claim must be decided again.
	Uses []string
	// Changes are the groups of the nodes that the claim takes.
	Changes []string
}

// Generations is the number of generations of groups.
const Generations = 16

// GenerationOf returns the generation of a group, from 0 on. A few groups may share one, so
// that their number is bounded in a transaction: that costs a decision more, and breaks no
// rule.
func GenerationOf(group string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(group))
	return int(h.Sum32() % Generations)
}

// Meets reports whether one of the claims changes a group that the other one uses, or one
// with the same generation. Each of them must then be decided after the other has been made.
func (f Footprint) Meets(other Footprint) bool {
	return intersect(f.Uses, other.Changes) || intersect(f.Changes, other.Uses)
}

func intersect(a, b []string) bool {
	return slices.ContainsFunc(a, func(one string) bool {
		return slices.ContainsFunc(b, func(other string) bool { return GenerationOf(one) == GenerationOf(other) })
	})
}

// Groups returns the groups that the targets of the job are in, enter, carry the residue
// of, or have been left in, sorted.
func (j Job) Groups() []string {
	in := map[string]bool{}
	for _, t := range j.Targets {
		in[t.Group], in[t.FromGroup], in[j.Outcomes[t.Name].Group] = true, true, true

		for _, g := range t.Residue {
			in[g] = true
		}
	}

	delete(in, "")

	return slices.Sorted(maps.Keys(in))
}

// footprint returns what the claim of the job has to do with groups. Its targets are as
// they are to be claimed. The rules of the verb are not looked at: a group too many costs
// a claim less than a rule too few.
func (j Job) footprint(groups inventory.Groups) Footprint {
	in := j.Groups()
	return Footprint{Uses: groups.Related(in), Changes: in}
}

// Turns returns the Queued jobs that can be claimed or must end, in the order of the
// queue, decided on one snapshot. claiming are the claims under way, by id; their jobs
// count as if they ran. A job is left out as long as its claim meets one of those, or of
// those returned before it. Once the limit is reached, no more jobs are judged.
func Turns(
	s Snapshot, groups inventory.Groups, limit int, claiming map[string]Turn, holds ...Hold,
) iter.Seq[Turn] {
	return func(yield func(Turn) bool) {
		if s.running(claiming) >= limit {
			return
		}

		q := newQueue(s, claiming)

		for _, j := range s.Jobs() {
			if _, about := claiming[j.ID]; about || j.Status != Queued || holdReason(holds, *j) != "" {
				continue
			}

			if len(q.running) >= limit {
				return
			}

			free := !q.wants(j)
			q.add(j)

			if !free {
				continue
			}

			// The job itself is the last one.
			t := q.turn(groups, limit, *j, q.ahead[:len(q.ahead)-1], q.running)
			if !t.Claim && t.Err == nil {
				continue
			}

			if t.Claim {
				// One that must wait goes before those behind it, or it might wait for ever.
				meets := q.meets(t.Footprint)
				q.footprints = append(q.footprints, t.Footprint)

				if meets {
					continue
				}

				claimed := q.claim(t)
				q.ahead[len(q.ahead)-1] = claimed
				q.running = append(q.running, claimed.ID)
				q.want(claimed)
			}

			if !yield(t) {
				return
			}
		}
	}
}

// running returns the number of jobs that run, or are about to.
func (s Snapshot) running(claiming map[string]Turn) int {
	n := 0
	for _, j := range s.Jobs() {
		// Most jobs have ended, and need no look-up.
		if j.Status.Ended() {
			continue
		}

		if _, about := claiming[j.ID]; about || j.Status == Running {
			n++
		}
	}

	return n
}

// queue is a snapshot on which several jobs are decided.
type queue struct {
	Snapshot
	ahead      []*Job // of the next job
	running    []string
	footprints []Footprint     // of the claims under way
	wanted     map[string]bool // the names and addresses of the nodes of the jobs ahead
}

func newQueue(s Snapshot, claiming map[string]Turn) *queue {
	q := &queue{Snapshot: s, wanted: map[string]bool{}}

	for _, j := range s.Jobs() {
		if j.Status.Ended() {
			continue
		}

		if t, ok := claiming[j.ID]; ok {
			q.footprints = append(q.footprints, t.Footprint)

			if j.Status == Queued {
				j = q.claim(t)
			}
		}

		if j.Status == Running {
			q.running = append(q.running, j.ID)
			q.add(j)
		}
	}

	return q
}

// claim puts the job, as it is to run, in the place of the queued one.
func (q *queue) claim(t Turn) *Job {
	j := t.Job
	j.Status = Running
	q.PutJob(&j)
	return &j
}

// wants reports whether a job ahead of j wants one of its nodes.
func (q *queue) wants(j *Job) bool {
	return slices.ContainsFunc(j.Targets, func(t Target) bool {
		return q.wanted[t.Name] || t.Addr != "" && q.wanted[t.Addr]
	})
}

// add puts a job ahead of the ones to come.
func (q *queue) add(j *Job) {
	q.ahead = append(q.ahead, j)
	q.want(j)
}

func (q *queue) want(j *Job) {
	for _, t := range j.Targets {
		q.wanted[t.Name] = true

		if t.Addr != "" {
			q.wanted[t.Addr] = true
		}
	}

	for _, h := range j.Helpers {
		q.wanted[h] = true
	}
}

// meets reports whether a claim must wait for one that is under way.
func (q *queue) meets(f Footprint) bool { return slices.ContainsFunc(q.footprints, f.Meets) }
