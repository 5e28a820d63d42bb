// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/job/jobtest"
)

// site is a simulated world: nodes, jobs with scripted ends, and a clock that jumps to the next
// event.
type site struct {
	t    testing.TB
	seed uint64
	rand *rand.Rand

	now    time.Time
	nodes  map[string]*inventory.Node
	all    []string // the names of the nodes
	jobs   map[string]*simJob
	open   map[string]*simJob // of jobs: those that have not ended
	seq    int
	fleets []*fleet
	// changers are the newest jobs that changed the nodes, in rollouts with evidence.
	changers map[string]*simJob

	takes   func() time.Duration // a job, once it runs
	queues  func() time.Duration // a job, before it runs
	lags    func() time.Duration // the report of the end of a job
	fails   func(node string, attempt int, gate bool) bool
	ends    func(gate bool) end // of a job that fails
	accepts func() answer
	checks  func() time.Duration // until the check of a gate succeeds; negative: never
	kill    func() bool          // whether the decider dies after this operation
	killed  int
	stored  int // writes
	most    int // decisions at one time
	allowed func(*inventory.Node, time.Time) Permission
	groups  inventory.Groups   // their budgets are those of the site
	churns  bool               // nodes disappear and come back
	verdict *inventory.Verdict // of every verification that completes
	pressed int                // decisions in which a budget held a node back
}

// fleet is a rollout over nodes of the site.
type fleet struct {
	*site

	names    []string
	record   Record         // as stored
	evidence *evidence      // nil: not kept
	visits   map[string]int // jobs of the action by node/attempt
	maxDown  int
	undone   *fleet // that this one takes back
	repaired string // its nodes, when all nodes were last brought back into service
}

// end is the way in which a job fails.
type end int

const (
	endsFailed    end = iota
	endsUntouched     // it failed before its first task
	endsRefused       // it was no longer legal when its turn came
	endsForbidden     // it was no longer legal between two of its runs
	endsDrifted       // a verification only
	endsUnjudged      // a verification only: complete, without a verdict
)

// answer is that to the request for a job.
type answer int

const (
	accepts answer = iota
	postpones
	refuses
)

// simJob is a job that ends at a time. Its record has the end once that was reported.
type simJob struct {
	job.Job

	of     *fleet
	digest string // of its playbooks
	starts time.Time
	ends   time.Time
	shows  time.Time // the report of its end
	fail   bool
	end    end // if it fails
	gate   bool

	asked, passes time.Time // the check after it; zero: not asked, never
}

var epoch = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

func newFleet(t testing.TB, seed uint64, nodes int) *fleet {
	s := &site{
		t: t, seed: seed, rand: rand.New(rand.NewPCG(seed, 1)), now: epoch,
		nodes: map[string]*inventory.Node{}, jobs: map[string]*simJob{}, open: map[string]*simJob{}, seq: 100,
		changers: map[string]*simJob{},
		takes:    func() time.Duration { return time.Minute },
		queues:   func() time.Duration { return 0 },
		lags:     func() time.Duration { return 0 },
		fails:    func(string, int, bool) bool { return false },
		ends:     func(bool) end { return endsFailed },
		accepts:  func() answer { return accepts },
		checks:   func() time.Duration { return time.Second },
		kill:     func() bool { return false },

		verdict: &inventory.Verdict{Result: inventory.Clean},
	}

	for i := range nodes {
		name := fmt.Sprintf("w-%04d", i)
		s.all = append(s.all, name)
		s.nodes[name] = &inventory.Node{
			Name: name, Label: "w", Serial: name[2:], Addr: fmt.Sprintf("10.0.%d.%d", i/250, i%250+1),
			Status: inventory.Allocated, State: inventory.Discovered, Group: "service-worker",
			Labels: map[string]string{"rack": fmt.Sprintf("r%d", i%7)}, Applied: "1",
			Playbooks: map[string]string{"service-worker": "former"},
		}
	}

	return s.fleet(s.all)
}

// fleet adds a rollout over nodes of the site, which is still to be started.
func (s *site) fleet(names []string) *fleet {
	f := &fleet{site: s, names: names, visits: map[string]int{}}
	s.fleets = append(s.fleets, f)
	return f
}

func (s *site) snapshot() job.Snapshot {
	var snapshot job.Snapshot
	jobtest.SetNewest(&snapshot, uint64(s.seq))

	for _, name := range s.all {
		if n := s.nodes[name]; n != nil {
			snapshot.PutNode(n)
		}
	}

	return snapshot
}

// start stores a running rollout.
func (f *fleet) start(spec Spec) {
	f.t.Helper()
	r, err := Make(f.snapshot(), inventory.DefaultGroups(), nil, Request{Spec: spec, Nodes: f.names}, f.now)
	errtest.None(f.t, err)
	f.begun(r)
}

// begun stores the rollout as started.
func (f *fleet) begun(r Record) {
	number := slices.Index(f.fleets, f)
	if r.ID = fmt.Sprintf("r%08x", number); r.UndoOf == "" {
		r.Playbooks = fmt.Sprintf("new-%d", number)
	}

	f.record = r.Begin("ann", f.now)
	f.evidence.started()
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
			j := f.jobs[f.node(node).Job]
			return CheckResult{OK: j.passed(f.now), Since: j.asked, Error: "the status is 503"}
		},
		Allowed: f.allowed,
		Room:    job.MaxQueued,
	}

	if f.groups.Budgeted() {
		w.Permits = f.permits
	}

	return w
}

// passed reports whether the check after the job has succeeded.
func (j *simJob) passed(now time.Time) bool { return !j.passes.IsZero() && !now.Before(j.passes) }

// node returns the entry of the record.
func (f *fleet) node(name string) Node {
	return f.record.Nodes[slices.IndexFunc(f.record.Nodes, func(n Node) bool { return n.Name == name })]
}

// permits answers as the manager does.
func (f *fleet) permits(working []string) Permits {
	taking := f.groups.Taking(f.snapshot().Nodes(), working)

	return func(n *inventory.Node) (bool, string) {
		if err := taking.Take(n); err != nil {
			f.pressed++
			return false, job.Message(err)
		}

		return true, ""
	}
}

// churn lets a node disappear or come back, now and then.
func (s *site) churn() {
	if s.rand.IntN(5) > 0 {
		return
	}

	n := s.nodes[s.all[s.rand.IntN(len(s.all))]].Clone()

	if n.State != inventory.Discovered {
		n.State = inventory.Discovered
	} else if s.rand.IntN(2) == 0 {
		n.State = inventory.Disappeared
	}

	s.nodes[n.Name] = &n
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
	asked := f.carryOut(s)
	return s.Changed || asked || len(s.Begin)+len(s.Cancel) > 0, s.Due
}

// carryOut reports whether it asked a check for the first time.
func (f *fleet) carryOut(s Steps) (asked bool) {
	if s.Changed {
		f.record = s.Record
	}

	f.evidence.audit()

	if s.Changed && f.dies() {
		return asked
	}

	for _, c := range s.Checks {
		asked = f.ask(f.jobs[f.node(c.Node).Job]) || asked
	}

	for _, c := range s.Cancel {
		if j := f.jobs[c.Job]; !j.Status.Ended() && (!c.Queued || j.Status == job.Queued) {
			f.cancel(j)

			if f.dies() {
				return asked
			}
		}
	}

	for _, b := range s.Begin {
		answer := f.accepts()
		if f.record.PlaybooksOf(b.Node) == "" {
			answer = refuses // nobody knows with which playbooks
		}

		switch answer {
		case accepts:
			f.submit(b)
			f.check()
		case postpones:
			f.record = f.record.Postponed(b, "an internal error", f.now)
		case refuses:
			f.record = f.record.Refused(b, "no play", f.now)
			f.evidence.refused(b)
		}

		if f.dies() {
			return asked
		}
	}

	f.evidence.auditAbort()

	return asked
}

// ask begins the check after a job.
func (f *fleet) ask(j *simJob) bool {
	if !j.asked.IsZero() {
		return false
	}

	j.asked = f.now
	if after := f.checks(); after >= 0 {
		j.passes = f.now.Add(after)
	}

	return true
}

// cancel ends a queued job at once, and a running one soon. It may complete meanwhile.
func (f *fleet) cancel(j *simJob) {
	f.evidence.cancelled(j)

	stops := f.now
	if j.Cancel++; j.Status == job.Running {
		stops = stops.Add(f.lags())
	}
	if stops.Before(j.ends) || j.Status == job.Queued {
		j.ends, j.shows, j.fail, j.end = stops, stops.Add(f.lags()), true, endsFailed
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
	attempt := f.node(b.Node).Attempt

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
		ID: strconv.Itoa(f.seq), Verb: f.record.Spec.Action, Status: job.Queued,
		Targets: []job.Target{{
			Name: b.Node, From: node.Status, FromGroup: node.Group, Applied: node.Applied, Playbooks: node.Playbooks,
		}},
	}, of: f, digest: f.record.PlaybooksOf(b.Node), fail: f.fails(b.Node, attempt, b.Gate), gate: b.Gate}
	f.jobs[j.ID], f.open[j.ID] = j, j

	if b.Gate {
		j.Verb = inventory.VerbVerify
	}

	j.starts = f.now.Add(f.queues())
	j.ends = j.starts.Add(f.takes())

	if j.fail {
		if j.end = f.ends(b.Gate); j.end == endsRefused {
			j.ends = j.starts
		}
	}

	j.shows = j.ends.Add(f.lags())
	j.begin(f.now)

	served := node.Available()
	node.Status, node.Verb, node.Job = inventory.Maintenance, j.Verb, j.ID
	f.nodes[b.Node] = &node

	// A node that was down uses no further place, and a verification leaves its node in service.
	if served && !b.Gate {
		f.checkBudget(b.Node)
	}

	f.evidence.given(b, j)
	f.record = f.record.Begun(b, j.Job, f.now)
}

// begin lets the job run when its turn has come.
func (j *simJob) begin(now time.Time) {
	lapses := j.fail && j.end == endsRefused
	if j.Status == job.Queued && j.Cancel == 0 && !now.Before(j.starts) && !lapses {
		j.Status, j.Started = job.Running, j.starts
	}
}

// end ends the jobs of which the end is reported.
func (s *site) end() {
	// In a fixed order, so that a seed repeats.
	for _, id := range slices.Sorted(maps.Keys(s.open)) {
		j := s.open[id]
		if s.now.Before(j.shows) {
			j.begin(s.now)
			continue
		}

		delete(s.open, id)
		s.report(j)
		j.of.evidence.ended(j)
	}
}

// report stores the end of the job and what it did to its node.
func (s *site) report(j *simJob) {
	found := j.Targets[0]
	node := s.nodes[found.Name].Clone()
	row, _ := inventory.TransitionOf(j.Verb)

	node.Job, node.Verb, node.Status = "", "", inventory.Allocated
	node.Group = "service-worker"
	s.nodes[node.Name] = &node

	waited := j.Status == job.Queued
	j.Status, j.Ended = job.Complete, j.ends

	switch {
	case !j.fail && !j.gate:
		node.Status, node.Applied, node.Cleaned = row.Success, j.ID, false
		node.Playbooks = map[string]string{"service-worker": j.digest}
		return
	case !j.fail:
		j.Outcomes = map[string]inventory.Outcome{node.Name: {Verdict: s.verdict}}
		return
	case j.end == endsDrifted:
		j.Outcomes = map[string]inventory.Outcome{node.Name: {Verdict: &inventory.Verdict{Result: inventory.Drifted}}}
		return
	case j.end == endsUnjudged:
		return
	}

	j.Status, j.Cause, j.Message = job.Errored, job.CauseFailed, "a task failed"

	switch {
	case j.Cancel > 0:
		j.Status, j.Cause = job.Cancelled, job.CauseCancelled
	case j.end == endsRefused:
		j.Cause, j.Message = job.CausePrecondition, "the budget is used up"
	case j.end == endsForbidden:
		j.Cause, j.Runs = job.CausePrecondition, []job.Run{{}}
	}

	if j.end == endsUntouched {
		j.Outcomes = map[string]inventory.Outcome{node.Name: {AsBefore: true}}
	}

	if !j.gate && !waited && j.end != endsUntouched {
		node.Status, node.Applied = row.Failed, ""
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

	// A failed update leaves its node out of service, so it counts on. Other rollouts take nodes
	// out of service besides.
	if len(f.fleets) > 1 {
		down = 0
	}

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

	if !f.live(limit, each) {
		f.t.Fatalf("seed %d: after %s, %s", f.seed, limit, f.waitsFor())
	}
}

// live simulates until nothing happens any more, and reports false if that takes longer.
func (s *site) live(limit time.Duration, each func()) bool {
	s.t.Helper()

	// Decisions at one time, and in all. A fault must not let it go on for ever.
	atOnce, all := 0, 0

	for until := s.now.Add(limit); s.now.Before(until); {
		atOnce, all = atOnce+1, all+1
		if atOnce > 500+10*len(s.all) || all > 5000+100*len(s.all) {
			s.t.Fatalf("seed %d: no end after %d steps, %d of them at %s: %s",
				s.seed, all, atOnce, s.now.Sub(epoch), s.waitsFor())
		}

		if each != nil {
			each()
		}

		s.end()

		var (
			due  time.Time
			busy bool
			was  = s.now
		)

		for _, f := range s.fleets {
			acts, at := f.decide()
			f.check()
			busy = busy || acts
			due = earlier(due, at)
		}

		if !busy && !s.jump(due) {
			for _, f := range s.fleets {
				f.evidence.rests()
			}

			return true
		}

		if s.now.After(was) {
			s.most, atOnce = max(s.most, atOnce), 0
		}
	}

	return false
}

// earlier returns the earlier one of two times. Zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// waitsFor describes the rollouts and jobs that have not ended.
func (s *site) waitsFor() string {
	var text []string

	for _, f := range s.fleets {
		if r := f.record; !r.Status.Ended() {
			text = append(text, fmt.Sprintf("rollout %s is %s, %+v, waits for %q", r.ID, r.Status, r.Count(), r.Waits))
		}
	}

	for _, id := range slices.Sorted(maps.Keys(s.open)) {
		j := s.open[id]
		text = append(text, fmt.Sprintf("%s %s of %s is %s", j.Verb, id, j.Targets[0].Name, j.Status))
	}

	return strings.Join(text[:min(len(text), 20)], "; ")
}

// jump moves the clock to the next event, and reports false if there is none.
func (s *site) jump(due time.Time) bool {
	next := due
	for _, j := range s.open {
		next = earlier(next, j.shows)
		if j.Status == job.Queued && j.starts.After(s.now) {
			next = earlier(next, j.starts)
		}
	}

	for _, f := range s.fleets {
		for i := range f.record.Nodes {
			if n := &f.record.Nodes[i]; n.State == Checking {
				if at := f.jobs[n.Job].passes; at.After(s.now) {
					next = earlier(next, at)
				}
			}
		}
	}

	if next.IsZero() {
		return false
	}

	if next.After(s.now) {
		s.now = next
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
