// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strconv"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
)

// Plan is the durable record of a plan. The variables of its job are stored beside it.
type Plan struct {
	ID      string
	Manager string // the identity of the manager that made it
	Actor   string // the principal that made it
	Created time.Time
	Expires time.Time

	World
	// Helpers are the nodes that the job would hold besides its targets, as far as
	// it can be claimed at once.
	Helpers []string
	// Waits is the reason why the job would not begin at once; empty: it would.
	Waits    string
	Rules    []Rule
	Service  []Service
	Expected Expected
	// Check is the id of the job that checks the playbook against the nodes; empty: none.
	Check string

	Applied   string // the id of the job that carries it out; empty: none yet
	AppliedBy string
	AppliedAt time.Time

	// Revision is the store's revision of this record; it is not stored.
	Revision int64
}

// World is all that the effect of a job depends on, apart from its inputs.
type World struct {
	// Job is the job as it would be accepted, without an id.
	Job     job.Job
	Nodes   []Node // of the targets, in their order; an address without a node has none
	Groups  inventory.Groups
	HostCAs []string // the keys of the CAs for host certificates
	// Ahead are the ids of the jobs before it on some of its nodes.
	Ahead []string
}

// Node is the part of a node that a job does not pin.
type Node struct {
	Name       string
	State      inventory.State
	HostKeys   []string
	Duplicates []string
}

// NewWorld returns the world of a job that was decided on the snapshot.
func NewWorld(s job.Snapshot, j job.Job, groups inventory.Groups, hostCAs []string) World {
	w := World{Job: j, Groups: groups, HostCAs: hostCAs, Ahead: s.Ahead(j)}

	for _, t := range j.Targets {
		name := t.Name
		if j.TakesAddrs() {
			name = t.Node()
		}

		if n, ok := s.Lookup(name); ok {
			w.Nodes = append(w.Nodes, Node{
				Name: n.Name, State: n.State, HostKeys: n.HostKeys, Duplicates: n.Duplicates,
			})
		}
	}

	return w
}

// Describe completes a plan with the facts for a decision about it. limit is
// the number of jobs that may run at a time, and hold the hold of the queue.
func (p *Plan) Describe(s job.Snapshot, limit int, hold job.Hold) {
	next := p.Job
	next.ID = strconv.FormatUint(s.Seq+1, 10)

	turn := job.TurnOf(s, p.Groups, limit, next, hold)
	p.Helpers, p.Waits = turn.Job.Helpers, turn.Reason

	// The rules are judged on the nodes after the jobs ahead.
	nodes := s.Projected()
	p.Rules, p.Service = rules(p.Job, nodes, p.Groups), service(p.Job, nodes, p.Groups)
	p.Expected = Expect(s.Jobs, p.Job)
}

// InUse returns the digests of the playbooks that the plan needs at that time, sorted.
// They stay until it is applied, because its job keeps them from then on, or expires.
func (p Plan) InUse(now time.Time) []string {
	if !p.Open(now) {
		return nil
	}

	return p.Job.InUse()
}

// Open reports whether the plan can still be applied at that time.
func (p Plan) Open(now time.Time) bool { return p.Applied == "" && now.Before(p.Expires) }

// Expired returns the ids of the plans that are over at that time.
func Expired(plans []Plan, now time.Time) []string {
	var ids []string
	for _, p := range plans {
		if !now.Before(p.Expires) {
			ids = append(ids, p.ID)
		}
	}

	return ids
}

// Find returns the plan of that id.
func Find(plans []Plan, id string) (Plan, bool) {
	i := slices.IndexFunc(plans, func(p Plan) bool { return p.ID == id })
	if i < 0 {
		return Plan{}, false
	}

	return plans[i], true
}

// Foreseen has the findings of the check of a plan.
type Foreseen struct {
	Job       job.Job
	Nodes     []job.Difference // with findings, in the order of the plan
	Truncated bool             // findings are missing
}

// MaxForeseen bounds the findings about all nodes of a plan together.
const MaxForeseen = 500
