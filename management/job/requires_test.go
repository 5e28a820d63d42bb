// SPDX-License-Identifier: Apache-2.0

package job_test

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	. "github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/job/jobtest"
)

// twoMasters are groups of which the workers require two healthy masters.
var twoMasters = inventory.Groups{
	{Name: inventory.GroupMaster},
	{Name: inventory.GroupWorker, Requires: inventory.Requirements{inventory.GroupMaster: 2}},
}

// TestRequirementAtAcceptance: the minimum of a requirement counts where a job is
// accepted, and a second master that is still queued lets a worker wait for it.
func TestRequirementAtAcceptance(t *testing.T) {
	t.Parallel()

	fleet := []string{"a m Allocated Discovered", "b m Allocated Discovered", "c w Allocated Discovered",
		"d - Unallocated Discovered", "e - Unallocated Discovered"}

	for _, tt := range []struct {
		name  string
		nodes []string
		req   Request
		says  string // "": accepted
	}{
		{"two masters", fleet, request(inventory.VerbCommission, "d", inventory.GroupWorker), ""},
		{"one master", fleet[1:], request(inventory.VerbCommission, "d", inventory.GroupWorker),
			"it requires 2 healthy nodes of service-master outside this request, and there is 1: b-1"},
		{"one of two leaves", fleet, request(inventory.VerbDecommission, "a", ""),
			"without a-1, c-1 of group service-worker would not have what it requires"},
		{"one of two becomes a worker", fleet, request(inventory.VerbUpdate, "a", inventory.GroupWorker), "a-1"},
		{"everything leaves", fleet, Request{Verb: inventory.VerbDecommission, Nodes: jobtest.Names("a b c")}, ""},
		{"no group is named, one master", fleet[1:], request(inventory.VerbCommission, "d", ""), ""},
	} {
		j, err := Accept(*jobtest.Snapshot(t, tt.nodes...), twoMasters, tt.req)
		if tt.says == "" && err != nil || tt.says != "" && (inventory.KindOf(err) != inventory.KindRefused ||
			!strings.Contains(err.Error(), tt.says)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.says)
		}

		if tt.req.Group == "" && tt.req.Verb == inventory.VerbCommission && j.Group != inventory.GroupMaster {
			t.Errorf("%s: the default group is %q", tt.name, j.Group)
		}
	}

	v := jobtest.Snapshot(t, fleet[1:]...)
	queue(t, v, request(inventory.VerbCommission, "d", inventory.GroupMaster))

	worker, err := Accept(*v, twoMasters, request(inventory.VerbCommission, "e", inventory.GroupWorker))
	if err != nil {
		t.Fatalf("behind the second master: %v", err)
	}
	worker.ID = "2"
	v.PutJob(&worker)

	if turn := TurnOf(*v, twoMasters, 4, worker); turn.Claim || strings.Join(turn.WaitsFor, "") != v.Jobs()[0].ID {
		t.Errorf("behind the second master: %+v", turn)
	}
}

// TestRequirementBeforeBatch: a master that is lost while a job runs keeps the next batch
// from its begin.
func TestRequirementBeforeBatch(t *testing.T) {
	t.Parallel()

	v := jobtest.Snapshot(t, "a m Allocated Discovered", "b m Allocated Discovered", "c m Allocated Discovered",
		"d w Allocated Discovered")

	j, err := Accept(
		*v,
		twoMasters,
		Request{Verb: inventory.VerbUpdate, Nodes: jobtest.Names("a"), JobOptions: inventory.JobOptions{Serial: "1"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	j.ID, j.Status = "1", Running
	hold(v, j)

	if err := RulesOf(j, v.Nodes(), twoMasters).MayBegin(j.Targets); err != nil {
		t.Errorf("with b and c: %v", err)
	}

	v.Nodes()[2].State = inventory.Disappeared

	err = RulesOf(j, v.Nodes(), twoMasters).MayBegin(j.Targets)
	if err == nil || !strings.Contains(err.Error(), "there is 1: b-1; not healthy: c-1 (Disappeared)") {
		t.Errorf("without c: %v", err)
	}
}

// TestRequirementsHold lets random jobs run and end, and nodes come and go: no claim takes
// a master away while a worker that stays would have fewer than two healthy ones, and no
// worker joins with fewer.
func TestRequirementsHold(t *testing.T) {
	t.Parallel()

	claims, refusals := 0, 0

	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		v := jobtest.Snapshot(t, "a m Allocated Discovered", "b m Allocated Discovered", "c m Allocated Discovered",
			"d m Allocated Discovered", "e w Allocated Discovered", "f w Allocated Discovered")

		for range 100 {
			switch r.IntN(4) {
			case 0, 1:
				updateRandom(r, v)
			case 2:
				n := v.Nodes()[r.IntN(len(v.Nodes()))].Clone()
				n.State = []inventory.State{inventory.Discovered, inventory.Disappeared}[r.IntN(2)]
				replaceNode(v, n)
			case 3:
				endRandom(r, v)
			}

			for i := range v.Jobs() {
				if v.Jobs()[i].Status != Queued {
					continue
				}

				turn := TurnOf(*v, twoMasters, 4, *v.Jobs()[i])

				switch {
				case turn.Err != nil:
					refusals++
					v.Jobs()[i].Status, v.Jobs()[i].Ended = Errored, jobtest.Noon
				case turn.Claim:
					claims++
					checkMasters(t, seed, v, turn.Job)

					*v.Jobs()[i] = turn.Job
					v.Jobs()[i].Status = Running
					hold(v, turn.Job)
				}
			}
		}
	}

	if claims < 500 || refusals < 50 {
		t.Errorf("the jobs were claimed %d times, and refused %d times", claims, refusals)
	}
}

func updateRandom(r *rand.Rand, v *Snapshot) {
	req := Request{Verb: inventory.VerbUpdate, Nodes: []string{v.Nodes()[r.IntN(len(v.Nodes()))].Name}}
	if r.IntN(3) == 0 {
		req.Verb = inventory.VerbMaintenance
	}
	j, err := Accept(*v, twoMasters, req)
	if err != nil {
		return
	}

	jobtest.SetNewest(v, v.Newest()+1)
	j.ID = strconv.FormatUint(v.Newest(), 10)
	v.PutJob(&j)
}

func replaceNode(v *Snapshot, n inventory.Node) {
	for i := range v.Nodes() {
		if v.Nodes()[i].Name == n.Name {
			v.PutNode(&n)
		}
	}
}

// checkMasters counts by itself.
func checkMasters(t *testing.T, seed uint64, v *Snapshot, j Job) {
	t.Helper()

	if j.Verb != inventory.VerbUpdate {
		return
	}

	healthy, workers := 0, 0
	takesMaster, joins := false, false

	for _, n := range v.Nodes() {
		serves := n.Status == inventory.Allocated || n.Verb == inventory.VerbMaintenance

		_, taken := j.Target(n.Name)
		switch {
		case taken && n.Group == inventory.GroupMaster:
			takesMaster = true
		case taken:
			joins = true
		case n.Group == inventory.GroupMaster && serves && n.State == inventory.Discovered:
			healthy++
		case n.Group == inventory.GroupWorker:
			workers++
		}
	}

	if (takesMaster && workers > 0 || joins) && healthy < 2 {
		t.Fatalf("seed %d: %s of %v with %d healthy masters outside", seed, j.Verb, j.Names(), healthy)
	}
}
