// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/plan"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/variable"
)

// TestPlanRecord fails for a field of a plan that is not stored.
func TestPlanRecord(t *testing.T) {
	t.Parallel()

	var p plan.Plan
	fill(t, reflect.ValueOf(&p).Elem(), new(int))

	p.Revision, p.Job.Revision = 0, 0 // etcd keeps those of keys

	encoded, err := json.Marshal(newPlanRecord(p))
	must(t, err)
	decoded, err := decode[planRecord](encoded)
	must(t, err)

	if got := decoded.plan(0); !reflect.DeepEqual(got, p) {
		t.Errorf("read\n%+v\nwant\n%+v", got, p)
	}
}

// aPlan is a plan for a node, with secrets among its inputs.
func aPlan(id string) (plan.Plan, job.Inputs) {
	p := plan.Plan{
		ID: id, Manager: "3f9a1c207b1e44d2", Actor: "anna", Created: noon, Expires: noon.Add(time.Hour),
		World: plan.World{Job: job.Job{
			Verb: inventory.VerbApply, Status: job.Queued, Targets: []job.Target{{Name: "a-1"}}, PlaybookDigest: "d1",
		}},
	}

	return p, secretInputs()
}

// TestPlans stores, applies and drops plans.
func TestPlans(t *testing.T) {
	t.Parallel()

	s, ctx := store(t), within(t, patience)

	p, in := aPlan("3f9a1c20-00000001")
	p, err := s.AddPlan(ctx, 0, p, in, nil, &access.Key{ID: "k", Request: "r"})
	must(t, err)

	_, err = s.AddPlan(ctx, 0, p, in, nil, nil)
	if inventory.KindOf(err) != inventory.KindConflict {
		t.Errorf("the same id again: %v", err)
	}

	if got := s.View().Plans; len(got) != 1 || !reflect.DeepEqual(got[0], p) || len(s.View().Jobs) != 0 {
		t.Errorf("%+v", got)
	}

	result, err := s.Result(ctx, "k")
	must(t, err)

	if result == nil || result.Plan != p.ID || result.Job != "" {
		t.Errorf("the result is %+v", result)
	}

	// The secrets of a plan are those of no record in the clear, and one key opens them.
	if stored := values(t, s); bytes.Contains(stored, []byte(canary)) {
		t.Errorf("in etcd: %s", stored)
	}

	found, err := s.CountSecrets(ctx)
	must(t, err)

	if got, err := s.PlanInputs(
		ctx,
		p.ID,
	); err != nil || !reflect.DeepEqual(got, in) ||
		found.Boxes[testKey.ID()] == 0 {
		t.Errorf("%+v, %v, %+v", got, err, found)
	}

	// Any change of the view since the comparison is a conflict.
	read := s.View().Revision
	_, err = s.PutVars(ctx, 0, state.ScopeGroup("g"), configuration.Vars{"a": "b"}, variable.Change{})
	must(t, err)

	_, err = s.AcceptPlan(ctx, read, 0, p, p.Job, in, nil)
	if inventory.KindOf(err) != inventory.KindConflict || len(s.View().Jobs) != 0 {
		t.Errorf("on an old view: %v, %+v", err, s.View().Jobs)
	}

	j, err := s.AcceptPlan(ctx, s.View().Revision, 0, p, p.Job, in, nil)
	must(t, err)

	if got := s.View(); j.ID != "1" || len(got.Jobs) != 1 || got.Plans[0].Applied != "1" {
		t.Errorf("%+v, %+v", j, got)
	}

	// The plan has changed, so it is not applied again.
	_, err = s.AcceptPlan(ctx, s.View().Revision, 1, p, p.Job, in, nil)
	if inventory.KindOf(err) != inventory.KindConflict {
		t.Errorf("again: %v", err)
	}

	// A plan with its check is one transaction.
	checked, in := aPlan("3f9a1c20-00000002")
	checked.Created = noon.Add(-time.Hour)

	_, err = s.AddPlan(ctx, 0, checked, in, &checked.Job, nil)
	if inventory.KindOf(err) != inventory.KindConflict || len(s.View().Plans) != 1 || len(s.View().Jobs) != 1 {
		t.Errorf("with a number in use: %v", err)
	}

	checked, err = s.AddPlan(ctx, 1, checked, in, &checked.Job, nil)
	must(t, err)

	again := openWith(t, s, testSecrets()).View()
	if checked.Check != "2" || len(again.Jobs) != 2 || len(again.Plans) != 2 || again.Plans[0].ID != checked.ID {
		t.Errorf("%+v, %+v", checked, again.Plans)
	}

	must(t, s.DropPlans(ctx, []string{p.ID, checked.ID}))

	_, err = s.PlanInputs(ctx, p.ID)
	if inventory.KindOf(err) != inventory.KindNotFound || len(s.View().Plans) != 0 || len(s.View().Jobs) != 2 {
		t.Errorf("dropped: %v, %+v", err, s.View().Plans)
	}
}

// TestUnreadablePlan: a damaged plan leaves the others alone, keeps the playbooks, and
// can be removed.
func TestUnreadablePlan(t *testing.T) {
	t.Parallel()

	s, ctx := store(t), within(t, patience)

	p, in := aPlan("3f9a1c20-00000001")
	_, err := s.AddPlan(ctx, 0, p, in, nil, nil)
	must(t, err)

	_, err = s.client.Put(ctx, s.planKey("3f9a1c20-00000002"), "nonsense")
	must(t, err)
	must(t, s.Sync(ctx))

	again := openWith(t, s, testSecrets())
	v := again.View()

	if len(v.Plans) != 1 || v.UnreadablePlan("3f9a1c20-00000002") == nil || v.UnreadableFiles() == nil {
		t.Errorf("%+v, %v", v.Plans, v.Unreadable)
	}

	must(t, RemoveUnreadable(ctx, s.client, testKinds, "v/plans/3f9a1c20-00000002"))
	must(t, again.Sync(ctx))

	if v := again.View(); v.UnreadableFiles() != nil || len(v.Plans) != 1 {
		t.Errorf("%+v, %v", v.Plans, v.Unreadable)
	}
}
