// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
)

// fleet is a simulated world: nodes, jobs with scripted ends, and a clock that jumps to the
// next event.
type fleet struct {
	t    testing.TB
	seed uint64
	rand *rand.Rand

	now   time.Time
	nodes map[string]*inventory.Node
	names []string
	jobs  map[string]*simJob
	open  map[string]*simJob // of jobs: those that have not ended
	seq   int

	record Record // as stored
	stored int    // writes

	takes   func() time.Duration
	fails   func(node string, attempt int, gate bool) bool
	kill    func() bool // whether the decider dies after this operation
	killed  int
	allowed func(*inventory.Node, time.Time) Permission
	groups  inventory.Groups     // their budgets are those of the site
	churns  bool                 // nodes disappear and come back
	late    map[string]time.Time // checks: when they succeed
	verdict *inventory.Verdict   // of every verification that completes

	visits  map[string]int // jobs of the action by node/attempt
	maxDown int
	pressed int // decisions in which a budget held a node back
}

// simJob is a job that ends at a time.
type simJob struct {
	job.Job

	ends time.Time
	fail bool
	gate bool
}

var epoch = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

func newFleet(t testing.TB, seed uint64, nodes int) *fleet {
	f := &fleet{
		t: t, seed: seed, rand: rand.New(rand.NewPCG(seed, 1)), now: epoch,
		nodes: map[string]*inventory.Node{}, jobs: map[string]*simJob{}, open: map[string]*simJob{},
		seq: 100, visits: map[string]int{}, late: map[string]time.Time{},
		takes: func() time.Duration { return time.Minute },
		fails: func(string, int, bool) bool { return false },
		kill:  func() bool { return false },

		verdict: &inventory.Verdict{Result: inventory.Clean},
	}

	for i := range nodes {
		name := fmt.Sprintf("w-%04d", i)
		f.names = append(f.names, name)
		f.nodes[name] = &inventory.Node{
			Name: name, Label: "w", Serial: name[2:], Addr: fmt.Sprintf("10.0.%d.%d", i/250, i%250+1),
			Status: inventory.Allocated, State: inventory.Discovered, Group: "service-worker",
			Labels: map[string]string{"rack": fmt.Sprintf("r%d", i%7)}, Applied: "1",
			Playbooks: map[string]string{"service-worker": "former"},
		}
	}

	return f
}

func (f *fleet) snapshot() job.Snapshot {
	s := job.Snapshot{Seq: uint64(f.seq)}
	for _, name := range f.names {
		if n := f.nodes[name]; n != nil {
			s.Nodes = append(s.Nodes, n)
		}
	}

	return s
}

// start stores a running rollout.
func (f *fleet) start(spec Spec) {
	f.t.Helper()

	r, err := Make(f.snapshot(), inventory.DefaultGroups(), nil, Request{Spec: spec, Nodes: f.names}, f.now)
	if err != nil {
		f.t.Fatal(err)
	}

	r.ID, r.Playbooks = NewID(), "now"
	f.record = r.Begin("ann", f.now)
}

func (f *fleet) world() World {
	w := World{
		Node: func(name string) *inventory.Node { return f.nodes[name] },
		Job: func(id string) (job.Job, bool) {
			j, ok := f.jobs[id]
			if !ok {
				return job.Job{}, false
			}

			return j.Job, true
		},
		Checked: func(node string, _ int) CheckResult {
			at, ok := f.late[node]
			return CheckResult{OK: ok && !f.now.Before(at), Error: "the status is 503"}
		},
		Allowed: f.allowed,
		Room:    job.MaxQueued,
	}

	if f.groups.Budgeted() {
		w.Permits = f.permits
	}

	return w
}

// permits answers as the manager does.
func (f *fleet) permits(working []string) Permits {
	taking := f.groups.Taking(f.snapshot().Nodes, working)

	return func(n *inventory.Node) (bool, string) {
		if err := taking.Take(n); err != nil {
			f.pressed++
			return false, job.Message(err)
		}

		return true, ""
	}
}

// churn lets a node disappear or come back, now and then.
func (f *fleet) churn() {
	if f.rand.IntN(5) > 0 {
		return
	}

	n := f.nodes[f.names[f.rand.IntN(len(f.names))]].Clone()

	if n.State != inventory.Discovered {
		n.State = inventory.Discovered
	} else if f.rand.IntN(2) == 0 {
		n.State = inventory.Disappeared
	}

	f.nodes[n.Name] = &n
}

// checkBudget asserts, with a count of its own, that the node that was just begun leaves its
// group within the budget.
func (f *fleet) checkBudget(name string) {
	f.t.Helper()

	g, err := f.groups.Get(f.nodes[name].Group)
	if err != nil || g.Budget == (inventory.Budget{}) {
		return
	}

	available, down := 0, 0
	rack := func(n *inventory.Node) string { return n.Labels[g.Budget.Per] }

	for _, n := range f.nodes {
		member := n.Group == g.Name && (n.Status == inventory.Allocated || n.Job != "")
		up := n.State == inventory.Discovered && (n.Status == inventory.Allocated || n.Verb == inventory.VerbVerify)

		switch {
		case member && up:
			available++
		case member && rack(n) == rack(f.nodes[name]):
			down++
		}
	}

	if available < g.Budget.MinAvailable {
		f.t.Fatalf("seed %d: %s leaves %d available, and %s", f.seed, name, available, g.Budget)
	}

	// The simulated budgets have no shares.
	if limit, err := strconv.Atoi(string(g.Budget.MaxUnavailable)); err == nil && down > limit {
		f.t.Fatalf("seed %d: %s makes %d unavailable, and %s", f.seed, name, down, g.Budget)
	}
}

// decide carries out one round of a decider, which may be killed after any operation. It
// reports whether there was anything to do, and else when there will be.
func (f *fleet) decide() (acts bool, due time.Time) {
	// Fewer steps may be carried out than were decided: the decider may die.
	s := Next(f.record, f.world(), f.now)
	f.carryOut(s)

	return s.Changed || len(s.Begin)+len(s.Cancel) > 0, s.Due
}

func (f *fleet) carryOut(s Steps) {
	if s.Changed {
		if f.record = s.Record; f.dies() {
			return
		}
	}

	for _, c := range s.Cancel {
		j := f.jobs[c.Job]
		if j.Status.Ended() || c.Queued && j.Status != job.Queued {
			continue
		}

		j.Cancel, j.ends, j.fail = 1, f.now, true

		if f.dies() {
			return
		}
	}

	for _, b := range s.Begin {
		f.submit(b)
		f.check()

		if f.dies() {
			return
		}
	}
}

func (f *fleet) dies() bool {
	f.stored++

	if f.kill() {
		f.killed++
		return true
	}

	return false
}

// submit accepts a job, and stores it with the record at once.
func (f *fleet) submit(b Begin) {
	i := slices.IndexFunc(f.record.Nodes, func(n Node) bool { return n.Name == b.Node })
	n := f.record.Nodes[i]
	attempt := n.Attempt

	node := f.nodes[b.Node].Clone()
	if node.Job != "" {
		f.t.Fatalf("seed %d: %s is begun while job %s holds it", f.seed, b.Node, node.Job)
	}

	if !b.Gate {
		attempt++

		key := fmt.Sprintf("%s/%d", b.Node, attempt)
		if f.visits[key]++; f.visits[key] > 1 {
			f.t.Fatalf("seed %d: %s is visited twice", f.seed, key)
		}
	}

	f.seq++
	j := &simJob{Job: job.Job{
		ID: strconv.Itoa(f.seq), Verb: f.record.Spec.Action, Status: job.Running,
		Targets: []job.Target{{
			Name: b.Node, From: node.Status, FromGroup: node.Group, Applied: node.Applied, Playbooks: node.Playbooks,
		}},
	}, ends: f.now.Add(f.takes()), fail: f.fails(b.Node, attempt, b.Gate), gate: b.Gate}
	f.jobs[j.ID], f.open[j.ID] = j, j

	if b.Gate {
		j.Verb = inventory.VerbVerify
	}

	served := node.Available()
	node.Status, node.Verb, node.Job = inventory.Maintenance, j.Verb, j.ID
	f.nodes[b.Node] = &node

	// A node that was down uses no further place, and a verification leaves its node in service.
	if served && !b.Gate {
		f.checkBudget(b.Node)
	}

	f.record = f.record.Begun(b, j.Job, f.now)
}

// end ends the jobs that are due.
func (f *fleet) end() {
	// In a fixed order, so that a seed repeats.
	for _, id := range slices.Sorted(maps.Keys(f.open)) {
		j := f.open[id]
		if f.now.Before(j.ends) {
			continue
		}

		delete(f.open, id)

		name := j.Targets[0].Name
		node := f.nodes[name].Clone()
		node.Job, node.Verb, node.Status = "", "", inventory.Allocated
		node.Group = "service-worker"
		j.Status = job.Complete

		row, _ := inventory.TransitionOf(j.Verb)

		switch {
		case j.fail:
			j.Status, j.Cause, j.Message = job.Errored, job.CauseFailed, "a task failed"
			if !j.gate {
				node.Status, node.Applied = row.Failed, ""
			}

			if j.Cancel > 0 {
				j.Status, j.Cause = job.Cancelled, job.CauseCancelled
			}
		case !j.gate:
			node.Status, node.Applied, node.Cleaned = row.Success, j.ID, false
		default:
			j.Outcomes = map[string]inventory.Outcome{name: {Verdict: f.verdict}}
		}

		f.nodes[name] = &node
	}
}

// check asserts the conditions that must hold at every instant.
func (f *fleet) check() {
	r := f.record
	window, _ := Window(r.Spec.MaxUnavailable, len(r.Nodes))

	inProgress, down, failed := 0, 0, 0
	racks := map[string]int{}

	for i := range r.Nodes {
		n := &r.Nodes[i]

		switch {
		case n.State.InProgress():
			inProgress++
			racks[n.Rack]++
		case f.nodes[n.Name] == nil:
		case f.nodes[n.Name].Status != inventory.Allocated && r.Spec.Action == inventory.VerbUpdate:
			down++
		}

		if n.State == Failed && !n.Excused {
			failed++
		}
	}

	// A failed update leaves its node out of service, so it counts on.
	f.maxDown = max(f.maxDown, inProgress+down)

	if inProgress+down > window {
		f.t.Fatalf("seed %d: %d in progress and %d down exceed the window of %d", f.seed, inProgress, down, window)
	}

	// All nodes are of one group.
	if s := r.Spec.Strategies[inventory.GroupWorker]; s.MaxUnavailable != "" {
		if n, _ := Window(s.MaxUnavailable, len(r.Nodes)); inProgress+down > n {
			f.t.Fatalf("seed %d: %d in progress and %d down exceed the %d of the group", f.seed, inProgress, down, n)
		}
	}

	if s := r.Spec.Strategies[inventory.GroupWorker]; s.MaxFailures != nil && failed > *s.MaxFailures+window {
		f.t.Fatalf("seed %d: %d failed, the limit of the group is %d and the window %d", f.seed, failed,
			*s.MaxFailures, window)
	}

	if failed > r.Spec.MaxFailures+window {
		f.t.Fatalf("seed %d: %d failed, the limit is %d and the window %d", f.seed, failed, r.Spec.MaxFailures, window)
	}

	for rack, n := range racks {
		if r.Spec.Order.By == ByLabel && n > 1 {
			f.t.Fatalf("seed %d: %d nodes of rack %s at once", f.seed, n, rack)
		}
	}

	if r.Spec.Canary > 0 && r.CanaryDone.IsZero() {
		if c := r.Count(); c.InProgress+c.Succeeded+failed > r.Spec.Canary {
			f.t.Fatalf("seed %d: more than the canary was begun: %+v", f.seed, c)
		}
	}
}

// run simulates until the rollout has ended or waits for a person, at most for that long.
func (f *fleet) run(limit time.Duration, each func()) {
	f.t.Helper()

	for until := f.now.Add(limit); f.now.Before(until); {
		if each != nil {
			each()
		}

		f.end()

		acts, due := f.decide()
		f.check()

		if !acts && !f.jump(due) {
			return
		}
	}

	f.t.Fatalf("seed %d: the rollout is still %s after %s: %+v, waits %q",
		f.seed, f.record.Status, limit, f.record.Count(), f.record.Waits)
}

// jump moves the clock to the next event, and reports false if there is none.
func (f *fleet) jump(due time.Time) bool {
	next := due
	for _, j := range f.open {
		if next.IsZero() || j.ends.Before(next) {
			next = j.ends
		}
	}

	for _, at := range f.late {
		if at.After(f.now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}

	if next.IsZero() {
		return false
	}

	if next.After(f.now) {
		f.now = next
	}

	return true
}

// holdsNothing asserts that no node is left in an in-progress status.
func (f *fleet) holdsNothing() {
	f.t.Helper()

	for _, n := range f.nodes {
		if n.Status.InProgress() {
			f.t.Errorf("seed %d: %s is left %s", f.seed, n.Name, n.Status)
		}
	}

	for i := range f.record.Nodes {
		if n := &f.record.Nodes[i]; n.State.InProgress() || n.State == Waiting {
			f.t.Errorf("seed %d: %s is left %s in the record", f.seed, n.Name, n.State)
		}
	}
}
