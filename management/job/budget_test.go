// SPDX-License-Identifier: Apache-2.0

package job_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	. "github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/job/jobtest"
)

var budgeted = inventory.Groups{
	{Name: inventory.GroupMaster, Budget: inventory.Budget{MinAvailable: 1}},
	{
		Name:     inventory.GroupWorker,
		Requires: inventory.Requirements{inventory.GroupMaster: 1},
		Budget:   inventory.Budget{MaxUnavailable: "2", Per: "rack"},
	},
}

// TestBudgetAtAcceptance: a job that a budget can never allow is refused; batches help, a
// check and a verification need none.
func TestBudgetAtAcceptance(t *testing.T) {
	t.Parallel()

	v := jobtest.Snapshot(t, "a m Allocated Discovered", "b m Allocated Discovered", "c w Allocated Discovered")
	both := jobtest.Names("a b")
	check := inventory.JobOptions{Check: true}
	batches := func(size string) inventory.JobOptions { return inventory.JobOptions{Serial: size} }

	for _, tt := range []struct {
		name string
		req  Request
		want string
	}{
		{"both masters at once", Request{Verb: inventory.VerbApply, Nodes: both}, "must keep 1 node available"},
		{"in batches", Request{Verb: inventory.VerbApply, Nodes: both, JobOptions: batches("1")}, ""},
		{"a verification", Request{Verb: inventory.VerbVerify, Nodes: both}, ""},
		{"a check", Request{Verb: inventory.VerbApply, Nodes: both, JobOptions: check}, ""},
		{"maintenance", Request{Verb: inventory.VerbMaintenance, Nodes: both}, "take 1 node at a time (serial)"},
		{"reapply in batches", Request{Verb: inventory.VerbReapply, Nodes: both, JobOptions: batches("50%")}, ""},
		{"the fleet is decommissioned", Request{Verb: inventory.VerbDecommission, Nodes: jobtest.Names("a b c")},
			"min_available"},
		{
			"one after the other",
			Request{Verb: inventory.VerbDecommission, Nodes: jobtest.Names("a c"), JobOptions: batches("1")}, "",
		},
	} {
		_, err := Accept(*v, budgeted, tt.req)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// TestBudgetRefusalNamesBatches: the refusal of a job names the size of batches with which the same
// job is accepted, and never one with which it is refused.
func TestBudgetRefusalNamesBatches(t *testing.T) {
	t.Parallel()

	groups := inventory.Groups{
		{Name: inventory.GroupMaster, Budget: inventory.Budget{MaxUnavailable: "2"}},
		{
			Name: inventory.GroupWorker, Requires: inventory.Requirements{inventory.GroupMaster: 1},
			Budget: inventory.Budget{MaxUnavailable: "50%", MinAvailable: 1},
		},
	}
	v := jobtest.Snapshot(t, "a m Allocated Discovered", "b m Allocated Discovered", "c m Allocated Discovered",
		"d w Allocated Discovered", "e w Allocated Discovered", "f w Allocated Discovered", "g w Allocated Discovered")

	for _, tt := range []struct {
		verb  inventory.Verb
		nodes string
		want  string // the size; empty: none helps
	}{
		{inventory.VerbApply, "a b c", "2"},
		{inventory.VerbMaintenance, "d e f g", "2"},
		{inventory.VerbReapply, "d e f", "2"},
		{inventory.VerbDecommission, "a d e f", "2"},
		{inventory.VerbDecommission, "d e f g", ""},
	} {
		r := Request{Verb: tt.verb, Nodes: jobtest.Names(tt.nodes)}
		j, refused := Accept(*v, groups, r)

		err := v.InBatches(groups, j, refused, func(j Job) ([]inventory.Action, string) {
			return Anew(j, j.Names(), nil, 0)
		})

		e, ok := errors.AsType[*inventory.Error](err)
		if !ok || len(e.Actions) != 1 || e.Actions[0].Serial != tt.want {
			t.Errorf("%s of %s: %v, %v", tt.verb, tt.nodes, err, e)
			continue
		}

		r.Serial = tt.want
		if _, err := Accept(*v, groups, r); (err == nil) != (tt.want != "") {
			t.Errorf("%s of %s in batches of %q: %v", tt.verb, tt.nodes, tt.want, err)
		}
	}
}

// TestBudgetRefusalNamesItsCause: the remedy of a job that no batches help is the one of a broken requirement,
// or the command that lowers the budget in its way.
func TestBudgetRefusalNamesItsCause(t *testing.T) {
	t.Parallel()

	groups := inventory.Groups{
		{Name: inventory.GroupMaster, Budget: inventory.Budget{MaxUnavailable: "1"}},
		{
			Name: inventory.GroupWorker, Requires: inventory.Requirements{inventory.GroupMaster: 1},
			Budget: inventory.Budget{MinAvailable: 2},
		},
	}
	v := jobtest.Snapshot(t, "a m Allocated Discovered", "b m Allocated Discovered",
		"c w Allocated Discovered", "d w Allocated Discovered", "e w Allocated Discovered")

	for _, tt := range []struct {
		verb                  inventory.Verb
		nodes, serial, action string
		want                  string
	}{
		{inventory.VerbDecommission, "a b", "", "", "decommission c-1, d-1, e-1 with it"},
		{inventory.VerbDecommission, "a b", "1", "", "decommission c-1, d-1, e-1 with it"},
		{
			inventory.VerbDecommission, "c d e", "", "set-group group=service-worker key=budget.min_available",
			"take fewer nodes, add a node to the group, or lower min_available",
		},
		{
			inventory.VerbDecommission, "c d", "1", "set-group group=service-worker key=budget.min_available value=1",
			"with 2 nodes, min_available 2 never allows it: add a node to the group, or lower min_available",
		},
	} {
		j, refused := Accept(*v, groups, Request{
			Verb: tt.verb, Nodes: jobtest.Names(tt.nodes), JobOptions: inventory.JobOptions{Serial: tt.serial},
		})
		err := v.InBatches(groups, j, refused, func(j Job) ([]inventory.Action, string) {
			return Anew(j, j.Names(), nil, 0)
		})

		action := ""
		if e, ok := errors.AsType[*inventory.Error](err); ok && len(e.Actions) > 0 {
			action = e.Actions[0].String()
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) || action != tt.action {
			t.Errorf("%s of %s in batches of %q: %v, %q", tt.verb, tt.nodes, tt.serial, err, action)
		}
	}

	// A budget that is never met: it is lowered for one node at a time where the nodes stay.
	groups[1].Budget.MinAvailable = 3

	for verb, want := range map[inventory.Verb]string{
		inventory.VerbApply:        "set-group group=service-worker key=budget.min_available value=2",
		inventory.VerbDecommission: "set-group group=service-worker key=budget.min_available",
	} {
		j, refused := Accept(*v, groups, Request{Verb: verb, Nodes: jobtest.Names("c d e")})
		err := v.InBatches(groups, j, refused, func(j Job) ([]inventory.Action, string) {
			return Anew(j, j.Names(), nil, 0)
		})

		e, ok := errors.AsType[*inventory.Error](err)
		if !ok || len(e.Actions) != 1 || e.Actions[0].String() != want {
			t.Errorf("%s: %v, %v, want %s", verb, err, e.Actions, want)
		}
	}
}

// TestRemovalUnderBudgets: everything is to be removed, one node is lost, and no number of nodes at a time is allowed.
func TestRemovalUnderBudgets(t *testing.T) {
	t.Parallel()

	least := inventory.Budget{MinAvailable: 1}
	groups := inventory.Groups{
		{Name: inventory.GroupMaster, Budget: least}, {Name: inventory.GroupWorker, Budget: least},
	}
	v := jobtest.Snapshot(t, "a m Allocated Discovered", "b m Allocated Discovered",
		"c w Allocated Discovered", "d w Allocated Disappeared")

	j, refused := Accept(*v, groups, Request{Verb: inventory.VerbDecommission, Nodes: jobtest.Names("a b c d")})
	err := v.InBatches(groups, j, refused, func(j Job) ([]inventory.Action, string) {
		return Anew(j, j.Names(), nil, 0)
	})

	const want = "[set-group group=service-master key=budget.min_available " +
		"set-group group=service-worker key=budget.min_available]"

	e, _ := errors.AsType[*inventory.Error](err)
	if e == nil || fmt.Sprint(e.Actions) != want {
		t.Errorf("%v: %v, want %s", err, e.Actions, want)
	}
}

// TestBudgetAfterRepair: a batch counts the nodes that earlier batches bring back as available, and a
// refusal names the command that brings a node back.
func TestBudgetAfterRepair(t *testing.T) {
	t.Parallel()

	groups := inventory.Groups{{Name: inventory.GroupMaster, Budget: inventory.Budget{MaxUnavailable: "1"}}}
	failed := func(n *inventory.Node) { n.Verification = &inventory.Verdict{Failed: true} }
	serial := inventory.JobOptions{Serial: "1"}
	check := inventory.JobOptions{Serial: "1", Check: true}

	for _, tt := range []struct {
		name    string
		down    func(n *inventory.Node) // c
		verb    inventory.Verb
		nodes   string
		options inventory.JobOptions
		want    string // the actions of the refusal; empty: accepted
	}{
		{"repaired first", failed, inventory.VerbApply, "c a b", serial, ""},
		{"cleaned, and configured first", func(n *inventory.Node) { n.Cleaned = true },
			inventory.VerbReapply, "c a b", serial, ""},
		{"upgraded first", failed, inventory.VerbMaintenance, "c a b", serial, ""},
		{"a check needs no budget", failed, inventory.VerbApply, "a c b", check, ""},
		{"repaired last", failed, inventory.VerbApply, "a b c", serial, "submit verb=apply nodes=c-1"},
		{"not taken", failed, inventory.VerbApply, "a b", serial, "submit verb=apply nodes=c-1"},
		{"cleaned", func(n *inventory.Node) { n.Cleaned = true },
			inventory.VerbApply, "a b", serial, "submit verb=apply nodes=c-1"},
		{"lost", func(n *inventory.Node) { n.State = inventory.Disappeared },
			inventory.VerbApply, "a b", serial, "submit verb=decommission nodes=c-1"},
		{"at once", failed, inventory.VerbApply, "c a b", inventory.JobOptions{},
			"submit verb=apply nodes=c-1,a-1,b-1 serial=1"},
	} {
		v := jobtest.Snapshot(t, "a m Allocated Discovered", "b m Allocated Discovered", "c m Allocated Discovered")
		tt.down(v.Nodes()[2])

		j, refused := Accept(*v, groups, Request{Verb: tt.verb, Nodes: jobtest.Names(tt.nodes), JobOptions: tt.options})
		err := v.InBatches(groups, j, refused, func(j Job) ([]inventory.Action, string) {
			return Anew(j, j.Names(), nil, 0)
		})

		got := ""
		if e, ok := errors.AsType[*inventory.Error](err); ok {
			got = "none"
			if len(e.Actions) > 0 {
				got = e.Actions[0].String()
			}
		}

		if got != tt.want {
			t.Errorf("%s: %q, want %q: %v", tt.name, got, tt.want, err)
		}
	}
}

// TestBudgetsHold lets random jobs run, end and fail, and nodes come and go: no claim
// takes more out of service than the budgets allow, and every job that waits begins in
// the end.
func TestBudgetsHold(t *testing.T) {
	t.Parallel()

	claims, waits := 0, 0

	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		v := jobtest.Snapshot(t, "a m Allocated Discovered", "b m Allocated Discovered", "c m Allocated Discovered",
			"d w Allocated Discovered", "e w Allocated Discovered", "f w Allocated Discovered",
			"g w Allocated Discovered", "h w Allocated Discovered", "i w Allocated Discovered")

		for i, n := range v.Nodes() {
			n.Labels = map[string]string{"rack": strconv.Itoa(i % 2)}
		}

		for range 200 {
			switch r.IntN(5) {
			case 0, 1:
				submitRandom(r, v, budgeted)
			case 2:
				n := v.Nodes()[r.IntN(len(v.Nodes()))]
				n.State = []inventory.State{inventory.Discovered, inventory.Disappeared}[r.IntN(2)]
			case 3:
				endRandom(r, v)
			}

			for i := range v.Jobs() {
				if v.Jobs()[i].Status != Queued {
					continue
				}

				turn := TurnOf(*v, budgeted, 4, *v.Jobs()[i])

				switch {
				case turn.Err != nil:
					v.Jobs()[i].Status, v.Jobs()[i].Ended = Errored, jobtest.Noon
				case turn.Claim:
					claims++
					*v.Jobs()[i] = turn.Job
					v.Jobs()[i].Status = Running

					before := unavailable(v)
					hold(v, turn.Job)
					checkBudgetsHold(t, seed, v, before, turn.Job)
				default:
					waits++
				}
			}
		}
	}

	if claims < 1000 || waits < 1000 {
		t.Errorf("the jobs were claimed %d times, and waited %d times", claims, waits)
	}
}

// TestBudgetBeforeBatch: a node that is lost while a job runs keeps the next batch from
// its begin.
func TestBudgetBeforeBatch(t *testing.T) {
	t.Parallel()

	v := jobtest.Snapshot(t, "a m Allocated Discovered", "b m Allocated Discovered", "c m Allocated Discovered")

	j, err := Accept(
		*v,
		budgeted,
		Request{Verb: inventory.VerbApply, Nodes: jobtest.Names("a b"), JobOptions: inventory.JobOptions{Serial: "1"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	j.ID, j.Status = "1", Running
	hold(v, j)

	rules := RulesOf(j, v.Nodes(), budgeted)
	if err := rules.MayBegin(j.Batches()[0]); err != nil {
		t.Errorf("with c: %v", err)
	}

	v.Nodes()[2].State = inventory.Disappeared

	if err := rules.MayBegin(j.Batches()[0]); err != nil {
		t.Errorf("with b, whose batch has not begun: %v", err)
	}

	jobtest.Record(
		&j,
		Step{Kind: StepPlaybook, Phase: PhaseApply, Hosts: jobtest.Names("a"), Groups: []string{inventory.GroupMaster}},
		"failed a-1=failed",
	)
	v.Nodes()[0].State = inventory.Disappeared

	err = RulesOf(j, v.Nodes(), budgeted).MayBegin(j.Batches()[1])
	if err == nil || !strings.Contains(err.Error(), "unavailable already: a-1 (Disappeared), c-1 (Disappeared)") {
		t.Errorf("with neither: %v", err)
	}
}

func submitRandom(r *rand.Rand, v *Snapshot, groups inventory.Groups) {
	verbs := []inventory.Verb{
		inventory.VerbApply,
		inventory.VerbMaintenance,
		inventory.VerbUpdate,
		inventory.VerbReapply,
	}
	req := Request{Verb: verbs[r.IntN(len(verbs))]}
	share := 4 * (1 + r.IntN(3)) // large jobs and small ones

	for _, n := range v.Nodes() {
		if r.IntN(share) == 0 {
			req.Nodes = append(req.Nodes, n.Name)
		}
	}

	j, err := Accept(*v, groups, req)
	if err != nil {
		return
	}

	jobtest.SetNewest(v, v.Newest()+1)
	j.ID = strconv.FormatUint(v.Newest(), 10)
	v.PutJob(&j)
}

// hold takes the nodes of a claimed job, as the store does.
func hold(v *Snapshot, j Job) {
	for _, t := range j.Targets {
		n := inventory.Node{}
		for i := range v.Nodes() {
			if v.Nodes()[i].Name == t.Name {
				n = v.Nodes()[i].Clone()
				n.Status, n.Job, n.Verb = inventory.Maintenance, j.ID, j.Verb
				v.PutNode(&n)
			}
		}
	}
}

func endRandom(r *rand.Rand, v *Snapshot) {
	for _, j := range v.Jobs() {
		if j.Status != Running || r.IntN(2) == 0 {
			continue
		}

		j.Status, j.Ended = Complete, jobtest.Noon
		for _, n := range v.Nodes() {
			if n.Job == j.ID {
				free := n.Clone()
				free.Status, free.Job, free.Verb = inventory.Allocated, "", ""
				v.PutNode(&free)
			}
		}
	}
}

func unavailable(v *Snapshot) map[string]bool {
	down := map[string]bool{}
	for _, n := range v.Nodes() {
		down[n.Name] = n.State != inventory.Discovered || n.Status != inventory.Allocated
	}

	return down
}

// checkBudgetsHold counts by itself: a claim that takes an available node leaves a
// master, and at most two workers of a rack unavailable.
func checkBudgetsHold(t *testing.T, seed uint64, v *Snapshot, before map[string]bool, j Job) {
	t.Helper()

	masters := 0
	racks := map[string]int{}

	for _, n := range v.Nodes() {
		down := n.State != inventory.Discovered || n.Status != inventory.Allocated

		switch {
		case n.Group == inventory.GroupMaster && !down:
			masters++
		case n.Group == inventory.GroupWorker && down:
			racks[n.Labels["rack"]]++
		}
	}

	for _, target := range j.Targets {
		n := v.Find(target.Name)
		if before[n.Name] {
			continue
		}
		if n.Group == inventory.GroupMaster && masters < 1 {
			t.Fatalf("seed %d: %s of %v leaves no master", seed, j.Verb, j.Names())
		}

		if rack := n.Labels["rack"]; n.Group == inventory.GroupWorker && racks[rack] > 2 {
			t.Fatalf(
				"seed %d: %s of %v leaves %d workers of rack %s unavailable",
				seed,
				j.Verb,
				j.Names(),
				racks[rack],
				rack,
			)
		}
	}
}

// TestBudgetOfLaterJob: a job that a window held back waits for a later one that was let past
// it and uses the budget up.
func TestBudgetOfLaterJob(t *testing.T) {
	t.Parallel()

	v := jobtest.Snapshot(t, "a m Allocated Discovered", "b m Allocated Discovered")
	held := queue(t, v, request(inventory.VerbApply, "a", ""))
	past := queue(t, v, request(inventory.VerbApply, "b", ""))
	claimed(t, v, past.ID)

	turn := TurnOf(*v, budgeted, 4, held)
	if turn.Claim || turn.Err != nil || !slices.Equal(turn.WaitsFor, []string{past.ID}) {
		t.Errorf("%+v", turn)
	}
}
