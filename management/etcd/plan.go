// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/plan"
)

// planRecord is a plan without the inputs of its job, which have a key of their own.
type planRecord struct {
	ID        string          `json:"id"`
	Manager   string          `json:"manager"`
	Actor     string          `json:"actor,omitempty"`
	Created   time.Time       `json:"created"`
	Expires   time.Time       `json:"expires"`
	World     worldRecord     `json:"world"`
	Helpers   []string        `json:"helpers,omitempty"`
	Waits     string          `json:"waits,omitempty"`
	Rules     []ruleRecord    `json:"rules,omitempty"`
	Service   []serviceRecord `json:"service,omitempty"`
	Expected  expectedRecord  `json:"expected,omitzero"`
	Check     string          `json:"check,omitempty"`
	Applied   string          `json:"applied,omitempty"`
	AppliedBy string          `json:"applied_by,omitempty"`
	AppliedAt time.Time       `json:"applied_at,omitzero"`
}

// worldRecord is all that the effect of a planned job depends on.
type worldRecord struct {
	Job     job.Job           `json:"job"`
	Nodes   []plannedRecord   `json:"nodes,omitempty"`
	Groups  []planGroupRecord `json:"groups,omitempty"`
	HostCAs []string          `json:"host_cas,omitempty"`
	Ahead   []string          `json:"ahead,omitempty"`
}

// plannedRecord is the part of a node that a job does not pin.
type plannedRecord struct {
	Name       string          `json:"name"`
	State      inventory.State `json:"state,omitempty"`
	HostKeys   []string        `json:"host_keys,omitempty"`
	Duplicates []string        `json:"duplicates,omitempty"`
}

// planGroupRecord is a group with its rules.
type planGroupRecord struct {
	Name     string                 `json:"name"`
	Requires inventory.Requirements `json:"requires,omitempty"`
	Budget   inventory.Budget       `json:"budget,omitzero"`
	OnReturn inventory.Reaction     `json:"on_return,omitempty"`
	Strategy inventory.Strategy     `json:"strategy,omitzero"`
	Tags     []string               `json:"tags,omitempty"`
	SkipTags []string               `json:"skip_tags,omitempty"`
}

// ruleRecord is a rule that a planned job was judged by.
type ruleRecord struct {
	Group      string `json:"group"`
	Requires   string `json:"requires"`
	Minimum    int    `json:"minimum"`
	Joins      bool   `json:"joins,omitempty"`
	Left       int    `json:"left,omitempty"`
	Dependents int    `json:"dependents,omitempty"`
}

// serviceRecord lists the nodes that a planned job takes out of service in one group.
type serviceRecord struct {
	Group      string   `json:"group"`
	Nodes      []string `json:"nodes"`
	AtOnce     int      `json:"at_once"`
	Before     int      `json:"before,omitempty"`
	RequiredBy []string `json:"required_by,omitempty"`
}

// expectedRecord is how long a planned job may take; times in nanoseconds.
type expectedRecord struct {
	Jobs     int           `json:"jobs"`
	Median   time.Duration `json:"median"`
	Shortest time.Duration `json:"shortest"`
	Longest  time.Duration `json:"longest"`
	Total    time.Duration `json:"total"`
}

func newPlannedRecord(n plan.Node) plannedRecord           { return plannedRecord(n) }
func (r plannedRecord) node() plan.Node                    { return plan.Node(r) }
func newPlanGroupRecord(g inventory.Group) planGroupRecord { return planGroupRecord(g) }
func (r planGroupRecord) group() inventory.Group           { return inventory.Group(r) }
func newRuleRecord(r plan.Rule) ruleRecord                 { return ruleRecord(r) }
func (r ruleRecord) rule() plan.Rule                       { return plan.Rule(r) }
func newServiceRecord(s plan.Service) serviceRecord        { return serviceRecord(s) }
func (r serviceRecord) service() plan.Service              { return plan.Service(r) }

func newPlanRecord(p plan.Plan) planRecord {
	return planRecord{
		ID: p.ID, Manager: p.Manager, Actor: p.Actor, Created: p.Created, Expires: p.Expires,
		World: worldRecord{
			Job:     p.Job,
			Nodes:   convertSlice(p.Nodes, newPlannedRecord),
			Groups:  convertSlice(p.Groups, newPlanGroupRecord),
			HostCAs: p.HostCAs,
			Ahead:   p.Ahead,
		},
		Helpers: p.Helpers, Waits: p.Waits,
		Rules:    convertSlice(p.Rules, newRuleRecord),
		Service:  convertSlice(p.Service, newServiceRecord),
		Expected: expectedRecord(p.Expected),
		Check:    p.Check,
		Applied:  p.Applied, AppliedBy: p.AppliedBy, AppliedAt: p.AppliedAt,
	}
}

func (r *planRecord) plan(revision int64) plan.Plan {
	return plan.Plan{
		ID: r.ID, Manager: r.Manager, Actor: r.Actor, Created: r.Created, Expires: r.Expires,
		World: plan.World{
			Job:     r.World.Job,
			Nodes:   convertSlice(r.World.Nodes, plannedRecord.node),
			Groups:  convertSlice(r.World.Groups, planGroupRecord.group),
			HostCAs: r.World.HostCAs,
			Ahead:   r.World.Ahead,
		},
		Helpers: r.Helpers, Waits: r.Waits,
		Rules:    convertSlice(r.Rules, ruleRecord.rule),
		Service:  convertSlice(r.Service, serviceRecord.service),
		Expected: plan.Expected(r.Expected),
		Check:    r.Check,
		Applied:  r.Applied, AppliedBy: r.AppliedBy, AppliedAt: r.AppliedAt,
		Revision: revision,
	}
}

func (s *Store) planKey(id string) string { return s.key("/v/plans/%s", id) }

// planInputs begins the names of the inputs of plans, among those of jobs: the same code
// encrypts both, and a rotation of the key finds both.
const planInputs = "plan-"

// ownerOfInputs names the job or the plan with the inputs of that name.
func ownerOfInputs(name string) string {
	if id, ok := strings.CutPrefix(name, planInputs); ok {
		return "plan " + id
	}

	if id, ok := strings.CutPrefix(name, rolloutInputs); ok {
		return "rollout " + id
	}

	return "job " + name
}

// putPlan returns the operation that stores a plan, compressed: it may have thousands of
// targets.
func (s *Store) putPlan(p plan.Plan) (clientv3.Op, error) {
	b, err := json.Marshal(newPlanRecord(p))
	return clientv3.OpPut(s.planKey(p.ID), string(compress(b))), err
}

// decodePlan parses the record under the key of the plan.
func decodePlan(id string, kv *mvccpb.KeyValue) (plan.Plan, error) {
	b, err := expand(kv.Value)
	if err != nil {
		return plan.Plan{}, err
	}

	record, err := decode[planRecord](b)
	if err != nil {
		return plan.Plan{}, err
	}

	if record.ID != id {
		return plan.Plan{}, fmt.Errorf("the record names plan %q", record.ID)
	}

	return record.plan(kv.ModRevision), nil
}

func (v *view) applyPlan(id string, deleted bool, kv *mvccpb.KeyValue) error {
	v.planList = nil

	if deleted {
		delete(v.plans, id)
		return nil
	}

	p, err := decodePlan(id, kv)
	if err == nil {
		v.plans[id] = p
	}

	return err
}

// sortedPlans returns the plans, the oldest first. The caller holds the lock.
func (v *view) sortedPlans() []plan.Plan {
	if v.planList == nil {
		older := func(a, b plan.Plan) int {
			if c := a.Created.Compare(b.Created); c != 0 {
				return c
			}

			return strings.Compare(a.ID, b.ID)
		}
		v.planList = slices.SortedFunc(maps.Values(v.plans), older)
	}

	return v.planList
}

// AddPlan stores a plan with the inputs of its job, and with check, unless nil, that job
// as Accept does. The plan then names it. It is KindConflict if the plan exists, or if
// seq is no longer the newest number of a job.
func (s *Store) AddPlan(
	ctx context.Context, seq uint64, p plan.Plan, in job.Inputs, check *job.Job, key *access.Key,
) (plan.Plan, error) {
	defer s.secrets.hold()()

	var ops etcd.Ops

	if check != nil {
		accepted, accept, err := s.acceptOps(seq, *check, in)
		if err != nil {
			return p, err
		}

		ops, p.Check = accept, accepted.ID
	}

	record, err := s.putPlan(p)
	if err != nil {
		return p, err
	}

	in, marks := s.markInputs(in)

	inputs, err := s.putInputs(planInputs+p.ID, in)
	if err != nil {
		return p, err
	}

	ops.Add(etcd.Ops{
		If:   []clientv3.Cmp{atRevision(s.planKey(p.ID), 0), marks},
		Then: []clientv3.Op{record, inputs},
	})

	if err := s.addResultOf(&ops, key, access.Result{Plan: p.ID}); err != nil {
		return p, err
	}

	p.Revision, err = s.commit(ctx, ops)

	return p, err
}

// AcceptPlan stores the job of an applied plan as Accept does, and the plan with it. It
// is KindConflict if any record of the view was changed after the revision on which
// the plan was compared with the world.
func (s *Store) AcceptPlan(
	ctx context.Context, revision int64, seq uint64, p plan.Plan, j job.Job, in job.Inputs, key *access.Key,
) (job.Job, error) {
	defer s.secrets.hold()()

	j, ops, err := s.acceptOps(seq, j, in)
	if err != nil {
		return j, err
	}

	p.Applied = j.ID

	record, err := s.putPlan(p)
	if err != nil {
		return j, err
	}

	ops.Add(etcd.Ops{
		If: []clientv3.Cmp{
			atRevision(s.planKey(p.ID), p.Revision),
			unchanged(headKey(s.client.Prefix), revision),
		},
		Then: []clientv3.Op{record},
	})

	if err := s.addResult(&ops, key, j.ID); err != nil {
		return j, err
	}

	j.Revision, err = s.commit(ctx, ops)

	return j, err
}

// PlanInputs returns the inputs of the job of a plan, or KindNotFound.
func (s *Store) PlanInputs(ctx context.Context, id string) (job.Inputs, error) {
	return s.Inputs(ctx, planInputs+id)
}

// DropPlans removes plans with their inputs. A full store accepts it as well.
func (s *Store) DropPlans(ctx context.Context, ids []string) error {
	for _, id := range ids {
		if err := s.delete(ctx, s.dropPlanOps(id)...); err != nil {
			return err
		}
	}

	return nil
}

// dropPlanOps returns the operations that remove a plan with its inputs.
func (s *Store) dropPlanOps(id string) []clientv3.Op {
	return []clientv3.Op{
		clientv3.OpDelete(s.inputsKey(planInputs + id)),
		clientv3.OpDelete(s.planKey(id)),
	}
}
