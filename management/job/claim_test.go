// SPDX-License-Identifier: Apache-2.0

package job_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	. "github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/job/jobtest"
)

// claimWorld is a store in which several claims are under way. A claim is made at a random
// moment after its decision, and only if the groups that it uses have not changed since.
type claimWorld struct {
	*Snapshot
	r           *rand.Rand
	limit       int
	claiming    map[string]Turn
	generations map[string]int
	decided     map[string]map[string]int // the generations at the decision, by job
	made        int
	refused     int
	most        int // claims under way at a time
}

// withStores has also a group without rules.
var withStores = append(slices.Clone(budgeted), inventory.Group{Name: "store"})

// decide begins the claims that the queue allows.
func (w *claimWorld) decide(t *testing.T, seed uint64) {
	t.Helper()

	for turn := range Turns(*w.Snapshot, withStores, w.limit, w.claiming) {
		if turn.Err != nil {
			i := w.find(turn.Job.ID)
			w.Jobs()[i].Status, w.Jobs()[i].Ended = Errored, jobtest.Noon
			continue
		}

		if _, twice := w.claiming[turn.Job.ID]; twice {
			t.Fatalf("seed %d: job %s is claimed twice", seed, turn.Job.ID)
		}

		for id, other := range w.claiming {
			if turn.Footprint.Meets(other.Footprint) {
				t.Fatalf("seed %d: job %s meets job %s, which is being claimed", seed, turn.Job.ID, id)
			}
		}

		w.claiming[turn.Job.ID] = turn
		w.decided[turn.Job.ID] = maps.Clone(w.generations)
	}

	w.most = max(w.most, len(w.claiming))
}

// commit makes one of the claims under way, or refuses it.
func (w *claimWorld) commit(t *testing.T, seed uint64) {
	t.Helper()

	ids := slices.Sorted(maps.Keys(w.claiming))
	if len(ids) == 0 {
		return
	}
	id := ids[w.r.IntN(len(ids))]
	turn, decided := w.claiming[id], w.decided[id]
	delete(w.claiming, id)

	// A conflict, such as that of a node that was seen anew.
	unchanged := w.r.IntN(8) > 0
	for _, g := range turn.Footprint.Uses {
		unchanged = unchanged && w.generations[g] == decided[g]
	}

	if !unchanged {
		w.refused++
		return
	}

	w.made++
	w.inOrder(t, seed, turn.Job)

	i := w.find(id)
	*w.Jobs()[i] = turn.Job
	w.Jobs()[i].Status = Running

	before := unavailable(w.Snapshot)
	hold(w.Snapshot, turn.Job)
	checkBudgetsHold(t, seed, w.Snapshot, before, turn.Job)
	w.change(turn.Footprint.Changes)

	running := 0
	for _, j := range w.Jobs() {
		if j.Status == Running {
			running++
		}
	}

	if running > w.limit {
		t.Fatalf("seed %d: %d jobs run", seed, running)
	}
}

// inOrder checks that no job ahead waits for one of the nodes.
func (w *claimWorld) inOrder(t *testing.T, seed uint64, j Job) {
	t.Helper()

	for _, other := range w.Jobs() {
		if other.ID == j.ID || other.Status.Ended() || other.Status == Queued && other.Seq() > j.Seq() {
			continue
		}

		for _, name := range other.Names() {
			if slices.Contains(j.Names(), name) {
				t.Fatalf("seed %d: job %s takes %s before job %s", seed, j.ID, name, other.ID)
			}
		}
	}
}

func (w *claimWorld) change(groups []string) {
	for _, g := range groups {
		w.generations[g]++
	}
}

func (w *claimWorld) find(id string) int {
	return slices.IndexFunc(w.Jobs(), func(j *Job) bool { return j.ID == id })
}

// TestConcurrentClaims lets random jobs be claimed at the same time: the budgets hold after
// each claim, a node is taken in the order of the queue, and no more jobs run than may.
func TestConcurrentClaims(t *testing.T) {
	t.Parallel()

	made, refused, most := 0, 0, 0

	for seed := range uint64(200) {
		v := jobtest.Snapshot(t, "a m Allocated Discovered", "b m Allocated Discovered", "c m Allocated Discovered",
			"d w Allocated Discovered", "e w Allocated Discovered", "f w Allocated Discovered",
			"g w Allocated Discovered", "h w Allocated Discovered", "i w Allocated Discovered",
			"j w Allocated Discovered", "k w Allocated Discovered", "l w Allocated Discovered")

		for i, n := range v.Nodes() {
			n.Labels = map[string]string{"rack": strconv.Itoa(i % 2)}

			if i >= 7 {
				n.Group = "store"
			}
		}

		w := &claimWorld{
			Snapshot: v, r: rand.New(rand.NewPCG(seed, 2)), limit: 4,
			claiming: map[string]Turn{}, generations: map[string]int{}, decided: map[string]map[string]int{},
		}

		for range 300 {
			switch w.r.IntN(6) {
			case 0, 1:
				submitRandom(w.r, v, withStores)
			case 2:
				// A report changes no generation, so it may overtake a claim.
				if len(w.claiming) == 0 {
					n := v.Nodes()[w.r.IntN(len(v.Nodes()))]
					n.State = []inventory.State{inventory.Discovered, inventory.Disappeared}[w.r.IntN(2)]
				}
			case 3:
				endRandom(w.r, v)
				w.change([]string{inventory.GroupMaster, inventory.GroupWorker})
			case 4:
				w.decide(t, seed)
			case 5:
				w.commit(t, seed)
			}
		}

		made, refused, most = made+w.made, refused+w.refused, max(most, w.most)
	}

	if made < 1000 || refused < 100 || most < 3 {
		t.Errorf("%d claims were made, %d refused, %d under way at most", made, refused, most)
	}
}

// TestTurnsAsTurnOf decides every queued job of random fleets by both: without a claim under
// way they agree about the first job that can be claimed or must end.
func TestTurnsAsTurnOf(t *testing.T) {
	t.Parallel()

	agreed := 0

	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		v := jobtest.Snapshot(t, "a m Allocated Discovered", "b m Allocated Discovered",
			"d w Allocated Discovered", "e w Allocated Discovered", "f w Allocated Disappeared")

		for range 6 {
			submitRandom(r, v, budgeted)
		}

		var first *Turn

		for _, j := range v.Jobs() {
			if turn := TurnOf(*v, budgeted, 4, *j); turn.Claim || turn.Err != nil {
				first = &turn
				break
			}
		}

		for turn := range Turns(*v, budgeted, 4, nil) {
			if first == nil || turn.Job.ID != first.Job.ID || turn.Claim != first.Claim {
				t.Fatalf("seed %d: %+v, want %+v", seed, turn, first)
			}

			agreed++

			break
		}
	}

	if agreed < 100 {
		t.Errorf("they agreed %d times", agreed)
	}
}

// TestTurnsTakeDisjointJobs: jobs on nodes of a group without a budget are claimed at the
// same time; the master that they need is used and not changed.
func TestTurnsTakeDisjointJobs(t *testing.T) {
	t.Parallel()

	v := jobtest.Snapshot(t, "a m Allocated Discovered", "d w Allocated Discovered", "e w Allocated Discovered",
		"f w Allocated Discovered")

	for i, name := range []string{"d", "e", "d", "a", "f"} {
		j, err := Accept(*v, inventory.DefaultGroups(),
			Request{Verb: inventory.VerbApply, Nodes: jobtest.Names(name)})
		if err != nil {
			t.Fatal(err)
		}
		j.ID = strconv.Itoa(i + 1)
		v.PutJob(&j)
		jobtest.SetNewest(v, uint64(i+1))
	}

	turns := func(limit int, claiming map[string]Turn) string {
		var ids []string
		for turn := range Turns(*v, inventory.DefaultGroups(), limit, claiming) {
			ids = append(ids, turn.Job.ID)
		}

		return strings.Join(ids, " ")
	}

	// 3 waits for the node of 1. 4 changes the masters, which 1 and 2 use, and 5 waits for it.
	if got := turns(8, nil); got != "1 2" {
		t.Errorf("got %s", got)
	}

	if got := turns(1, nil); got != "1" {
		t.Errorf("with a limit of 1: got %s", got)
	}

	under := map[string]Turn{"1": {Job: *v.Jobs()[0], Claim: true}, "2": {Job: *v.Jobs()[1], Claim: true}}
	if got := turns(8, under); got != "4" {
		t.Errorf("with claims under way that use no group: got %s", got)
	}
}

// TestMeetsByGeneration: claims of groups that share a generation meet, or they would refuse
// each other in the store for ever.
func TestMeetsByGeneration(t *testing.T) {
	t.Parallel()

	shared := GenerationOf("gateway")
	if GenerationOf("service-master") != shared || GenerationOf("service-worker") == shared {
		t.Fatal("choose other groups")
	}

	masters := Footprint{Uses: []string{"service-master"}, Changes: []string{"service-worker"}}
	for group, want := range map[string]bool{"service-master": true, "gateway": true, "service-worker": false} {
		other := Footprint{Changes: []string{group}}
		if masters.Meets(other) != want || other.Meets(masters) != want {
			t.Errorf("%s: meets %t", group, !want)
		}
	}
}
