// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
)

// Plan is the durable record of a plan. The variables of its job are stored beside it.
type Plan struct {
	ID      string    `json:"id"`
	Manager string    `json:"manager"`         // the identity of the manager that made it
	Actor   string    `json:"actor,omitempty"` // the principal that made it
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`

	World `json:"world"`

	// Helpers are the nodes that the job would hold besides its targets, as far as
	// it can be claimed at once.
	Helpers []string `json:"helpers,omitempty"`
	// Waits is the reason why the job would not begin at once; empty: it would.
	Waits    string            `json:"waits,omitempty"`
	Rules    []api.PlanRule    `json:"rules,omitempty"`
	Service  []api.PlanService `json:"service,omitempty"`
	Expected *api.PlanTime     `json:"time,omitempty"` // nil: not known
	// Check is the id of the job that checks the playbook against the nodes; empty: none.
	Check string `json:"check,omitempty"`

	Applied   string    `json:"applied,omitempty"` // the id of the job that carries it out; empty: none yet
	AppliedBy string    `json:"applied_by,omitempty"`
	AppliedAt time.Time `json:"applied_at,omitzero"`

	// Revision is the store's revision of this record; it is not stored.
	Revision int64 `json:"-"`
}

// Kind are the stored plans, the oldest first. They are compressed: a plan may have thousands of
// targets.
var Kind = record.Kind[Plan]{
	Name:    "plans",
	Key:     func(p *Plan) string { return p.ID },
	At:      func(p *Plan, revision int64) { p.Revision = revision },
	Compare: func(a, b *Plan) int { return a.Created.Compare(b.Created) },
	Codec:   record.Compressed[Plan]{},
	Show: func(p *Plan, s record.Scope) *Plan {
		if !p.Job.In(s) {
			return nil
		}

		shown := p.Within(s)
		return &shown
	},
}

// InputsOf returns the name of the inputs of the job of a plan.
func InputsOf(id string) string { return job.InputsName(Kind.Name, id) }

// Within returns the form of a plan in the scope: without the names of other nodes than its targets,
// and without the numbers of nodes in groups that do not belong to the scope.
func (p Plan) Within(s record.Scope) Plan {
	p.Job = p.Job.Within(s)
	p.Helpers, p.Waits = s.Names(p.Helpers), s.Text(p.Waits)
	p.Ahead = slices.DeleteFunc(slices.Clone(p.Ahead), func(id string) bool { return !s.HasJob(id) })
	p.Rules, p.Service = slices.Clone(p.Rules), slices.Clone(p.Service)

	for i, r := range p.Rules {
		if !s.OwnsGroup(r.Requires) {
			p.Rules[i].Left = 0
		}

		if !s.OwnsGroup(r.Group) {
			p.Rules[i].Dependents = 0
		}
	}

	for i, service := range p.Service {
		if !s.OwnsGroup(service.Group) {
			p.Service[i].Before = 0
		}
	}

	return p
}

// World is all that the effect of a job depends on, apart from its inputs.
type World struct {
	// Job is the job as it would be accepted, without an id.
	Job job.Job `json:"job"`
	// Nodes are those of the targets, in their order; an address without a node has none.
	Nodes   []Node           `json:"nodes,omitempty"`
	Groups  inventory.Groups `json:"groups,omitempty"`
	HostCAs []string         `json:"host_cas,omitempty"` // the keys of the CAs for host certificates
	// Ahead are the ids of the jobs before it on some of its nodes.
	Ahead []string `json:"ahead,omitempty"`
}

// Node is the part of a node that a job does not pin.
type Node struct {
	Name       string          `json:"name"`
	State      inventory.State `json:"state,omitempty"`
	HostKeys   []string        `json:"host_keys,omitempty"`
	Duplicates []string        `json:"duplicates,omitempty"`
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
	next.ID = s.NextID()

	turn := job.TurnOf(s, p.Groups, limit, next, hold)
	p.Helpers, p.Waits = turn.Job.Helpers, turn.Reason

	// The rules are judged on the nodes after the jobs ahead.
	nodes := s.Projected()
	p.Rules, p.Service = rules(p.Job, nodes, p.Groups), service(p.Job, nodes, p.Groups)
	p.Expected = Expect(s.Jobs(), p.Job)
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
func Expired(plans []*Plan, now time.Time) []string {
	var ids []string
	for _, p := range plans {
		if !now.Before(p.Expires) {
			ids = append(ids, p.ID)
		}
	}

	return ids
}

// MaxForeseen bounds the findings about all nodes of a plan together.
const MaxForeseen = 500
