// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/plan"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

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

// commit commits what decide puts into a transaction, once.
func commit(t *testing.T, s *Store, decide func(tx *record.Tx)) (int64, error) {
	t.Helper()
	tx := record.NewTx(s)
	decide(tx)
	return s.Commit(within(t, patience), tx)
}

// TestParts: a record, the inputs beside it, a job and the result of the request are one transaction.
func TestParts(t *testing.T) {
	t.Parallel()

	s, ctx := store(t), within(t, patience)
	key := &access.Key{ID: "k", Request: "r"}

	p, in := aPlan("3f9a1c20-00000001")
	p.Job.ID = "1"

	accept := func(tx *record.Tx) {
		record.Put(tx, &plan.Kind, &p)
		state.AcceptJob(tx, p.Job, in)
		tx.Attach(state.PutInputs{Name: plan.InputsOf(p.ID), Inputs: in})
		access.Caller{Key: key}.Keep(tx, access.Result{Plan: p.ID})
	}

	revision, err := commit(t, s, accept)
	must(t, err)

	p.Revision = revision

	v := openWith(t, s, testSecrets()).View()
	if got := record.Get(v, &plan.Kind, p.ID); got == nil || !reflect.DeepEqual(*got, p) || len(v.Jobs()) != 1 {
		t.Errorf("%+v, %+v", got, v.Jobs())
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

	got, err := s.Inputs(ctx, plan.InputsOf(p.ID))
	if err != nil || !reflect.DeepEqual(got, in) || found.Boxes[testKey.ID()] == 0 {
		t.Errorf("%+v, %v, %+v", got, err, found)
	}

	// Each part has its guard: the number of the job, and the key of the request.
	for what, part := range map[string]func(*record.Tx){
		"the job": func(tx *record.Tx) {
			j := accepted(t, s, nil)
			state.AcceptJob(tx, job.Job{ID: j.ID}, job.Inputs{})
		},
		"the key": func(tx *record.Tx) { access.Caller{Key: key}.Keep(tx, access.Result{}) },
		"the variables": func(tx *record.Tx) {
			tx.DependOn(&state.Connections, &state.Variables)
			must(t, setVars(t, s, nil, state.ScopeGroup("g"), configuration.Vars{"a": "b"}))
		},
		"the settings": func(tx *record.Tx) {
			tx.DependOn(&state.Overlays)
			must(t, putOverlay(ctx, s, s.View(), configuration.Vars{"log_level": "debug"}))
		},
	} {
		other := p
		other.ID = "3f9a1c20-00000002"

		_, err := commit(t, s, func(tx *record.Tx) {
			part(tx)
			record.Put(tx, &plan.Kind, &other)
		})
		if inventory.KindOf(err) != inventory.KindConflict || len(record.List(s.View(), &plan.Kind)) != 1 {
			t.Errorf("%s: %v", what, err)
		}
	}

	must(t, second(commit(t, s, func(tx *record.Tx) {
		tx.Attach(state.DropInputs{Name: plan.InputsOf(p.ID)})
		record.Remove(tx, &plan.Kind, p.ID)
	})))

	_, err = s.Inputs(ctx, plan.InputsOf(p.ID))
	if v := s.View(); inventory.KindOf(err) != inventory.KindNotFound || len(record.List(v, &plan.Kind)) != 0 {
		t.Errorf("dropped: %v", err)
	}
}

// TestUnreadablePlan: a damaged plan leaves the others alone, keeps the playbooks, and
// can be removed.
func TestUnreadablePlan(t *testing.T) {
	t.Parallel()

	s, ctx := store(t), within(t, patience)

	p, _ := aPlan("3f9a1c20-00000001")
	must(t, second(commit(t, s, func(tx *record.Tx) { record.Put(tx, &plan.Kind, &p) })))

	_, err := s.client.Put(ctx, s.key("/v/plans/3f9a1c20-00000002"), "nonsense")
	must(t, err)
	must(t, s.Sync(ctx))

	again := openWith(t, s, testSecrets())
	v := again.View()

	if len(record.List(v, &plan.Kind)) != 1 || v.Damaged(&plan.Kind, "3f9a1c20-00000002") == nil ||
		v.UnreadableFiles() == nil {
		t.Errorf("%v", v.Unreadable)
	}

	must(t, RemoveUnreadable(ctx, s.client, testKinds, "v/plans/3f9a1c20-00000002"))
	must(t, again.Sync(ctx))

	if v := again.View(); v.UnreadableFiles() != nil || len(record.List(v, &plan.Kind)) != 1 {
		t.Errorf("%v", v.Unreadable)
	}
}
