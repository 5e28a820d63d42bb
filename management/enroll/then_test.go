// SPDX-License-Identifier: Apache-2.0

package enroll

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/enroll/listing"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/record/recordtest"
	"github.com/contiv/cluster/management/state"
)

// jobs accepts jobs, each in one transaction with what belongs to it.
type jobs struct {
	store *recordtest.Store

	mu       sync.Mutex
	accepted []job.Job
	calls    int
	fails    func(job.Request) error // of a call; nil: none does
	ending   atomic.Bool             // a job ends, which is no commit of an import
}

func (j *jobs) SubmitWith(
	ctx context.Context, c access.Caller, r job.Request, with func(tx *record.Tx, j *job.Job) error,
) (job.Job, error) {
	j.mu.Lock()
	defer j.mu.Unlock()

	j.calls++

	if j.fails != nil {
		if err := j.fails(r); err != nil {
			return job.Job{}, err
		}
	}

	out := job.Job{ID: fmt.Sprint(len(j.accepted) + 1), Verb: r.Verb, Actor: c.Principal, Status: job.Running}
	for _, name := range r.Nodes {
		out.Targets = append(out.Targets, job.Target{Name: name, From: inventory.Enrolled})
	}

	_, _, err := record.Decide(ctx, j.store, func(tx *record.Tx) (none struct{}, err error) {
		record.Put(tx, &job.Kind, &out)
		return none, with(tx, &out)
	})
	if err != nil {
		return job.Job{}, err
	}

	j.accepted = append(j.accepted, out)

	return out, nil
}

// end ends the newest job. Some nodes have failed.
func (j *jobs) end(t *testing.T, failed ...string) {
	t.Helper()
	j.endAs(t, job.Errored, failed)
}

// cancel ends the newest job by a cancel, which some nodes had not come to the end by.
func (j *jobs) cancel(t *testing.T, failed ...string) {
	t.Helper()
	j.endAs(t, job.Cancelled, failed)
}

func (j *jobs) endAs(t *testing.T, status job.Status, failed []string) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()

	is := j.accepted[len(j.accepted)-1]
	row, _ := inventory.TransitionOf(is.Verb)
	is.Status, is.Outcomes = job.Complete, map[string]inventory.Outcome{}

	for i := range is.Targets {
		name := is.Targets[i].Name
		is.Outcomes[name] = inventory.Outcome{Status: row.Success}

		if slices.Contains(failed, name) {
			is.Status, is.Outcomes[name] = status, inventory.Outcome{
				Status: row.From[0],
				Error:  "no route to " + name,
			}
		}
	}

	j.ending.Store(true)
	defer j.ending.Store(false)

	_, _, err := record.Decide(t.Context(), j.store, func(tx *record.Tx) (none struct{}, err error) {
		record.Put(tx, &job.Kind, &is)
		return none, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// all returns the accepted jobs, once none is being accepted.
func (j *jobs) all() []job.Job {
	j.mu.Lock()
	defer j.mu.Unlock()

	return slices.Clone(j.accepted)
}

// did returns the accepted jobs: VERB NODES by ACTOR.
func (j *jobs) did() string {
	j.mu.Lock()
	defer j.mu.Unlock()

	var texts []string
	for _, a := range j.accepted {
		texts = append(texts, fmt.Sprintf("%s %s by %s", a.Verb, strings.Join(a.Names(), ","), a.Actor))
	}

	return strings.Join(texts, "; ")
}

var manage = []inventory.Verb{inventory.VerbManage}

// TestThen: one job follows, on the new nodes and the changed ones that are Enrolled still.
func TestThen(t *testing.T) {
	t.Parallel()

	w := newWorld(t, nodeOf("free-1", inventory.Unallocated, inventory.Discovered),
		nodeOf("serves-1", inventory.Allocated, inventory.Discovered))
	s := w.run()

	w.expect(s, api.Import{File: `[{"name":"old","addr":"10.0.0.1"}]`}, "old created")

	if got := w.jobs.did(); got != "" {
		t.Errorf("without then: %s", got)
	}

	done, err := w.request(s, api.Import{Then: manage, File: `[{"name":"old","addr":"10.0.0.1","memory":1},
{"name":"new","pm_type":"ipmi","pm_addr":"10.9.0.5"},{"name":"free-1","addr":"free-1.example","memory":1},
{"name":"serves-1","addr":"serves-1.example","memory":1}]`})
	if err != nil {
		t.Fatal(err)
	}

	if got := w.jobs.did(); got != "manage old,new by anna" {
		t.Errorf("the jobs are %s", got)
	}

	var got []string
	for _, m := range done.Machines {
		got = append(got, m.Node+":"+strings.Join(m.Checks, "+"))
	}

	if strings.Join(got, " ") != "old:ssh new:bmc free-1: serves-1:" || !slices.Equal(done.Jobs, []string{"1"}) {
		t.Errorf("got %s, the jobs %s", got, done.Jobs)
	}

	for _, wrong := range [][]inventory.Verb{
		{"commission"}, {"manage", "manage"}, {"polish"}, {"forget"}, {"discover"}, make([]inventory.Verb, 100),
	} {
		if _, err := w.request(s, api.Import{Then: wrong, File: one}); inventory.KindOf(err) != inventory.KindInvalid {
			t.Errorf("then %v: %v", wrong, err)
		}
	}
}

// TestThenAgain: a second import of a list goes on with the nodes that are Enrolled still, and touches no other.
func TestThenAgain(t *testing.T) {
	t.Parallel()

	const list = `[{"name":"bad","addr":"10.0.0.1"},{"name":"good","addr":"10.0.0.2"},
{"name":"held","addr":"10.0.0.3"}]`

	w := newWorld(t)
	s := w.run()
	w.expect(s, api.Import{File: list}, "bad created\ngood created\nheld created")

	change := func(name string, change func(*inventory.Node)) {
		w.mu.Lock()
		defer w.mu.Unlock()

		n := w.nodes[name]
		change(&n)
		w.nodes[name] = n
	}
	change("good", func(n *inventory.Node) { n.Status = inventory.Manageable })
	change("held", func(n *inventory.Node) { n.Status, n.Job = inventory.Verifying, "7" })

	entries := func() (count int) {
		w.mu.Lock()
		defer w.mu.Unlock()

		for _, of := range w.history {
			count += len(of)
		}

		return count
	}
	before := entries()

	w.expect(s, api.Import{File: list}, "bad same\ngood same\nheld same")

	done, err := w.request(s, api.Import{File: list, Then: manage, DryRun: true})
	if runs := Runs(w.View()); err != nil || w.jobs.did() != "" || len(runs) != 1 {
		t.Errorf("a preview: %+v, %v, %s, %+v", done, err, w.jobs.did(), runs)
	}

	done, err = w.request(s, api.Import{File: list, Then: manage})
	if err != nil || len(done.Jobs) != 1 || w.jobs.did() != "manage bad by anna" {
		t.Fatalf("%+v, %v, %s", done, err, w.jobs.did())
	}

	// It says so, there and in the list of imports.
	var got []string
	for _, m := range done.Machines {
		got = append(got, fmt.Sprint(m.Node, " ", m.Action, " ", m.Checks))
	}

	if text := strings.Join(got, ", "); text != "bad same [ssh], good same [], held same []" {
		t.Error(text)
	}

	run, err := Run(w.View(), done.ID)
	if err != nil || len(run.Nodes) != 1 || run.Nodes[0].Node != "bad" || run.Nodes[0].Action != api.ImportSame ||
		run.Nodes[0].Job != "1" {
		t.Errorf("%+v, %v", run, err)
	}

	if after := entries(); after != before {
		t.Errorf("%d entries, and %d before", after, before)
	}

	// Once all are checked, nothing follows.
	w.jobs.end(t)
	change("bad", func(n *inventory.Node) { n.Status = inventory.Manageable })

	done, err = w.request(s, api.Import{File: list, Then: manage})
	if err != nil || len(done.Jobs) > 0 || w.jobs.did() != "manage bad by anna" {
		t.Errorf("%+v, %v, %s", done, err, w.jobs.did())
	}
}

// TestThenJoins: the same list again goes on with what an earlier import has left at Manageable, and checks again what
// is reached in another way now. What is Unallocated is left alone.
func TestThenJoins(t *testing.T) {
	t.Parallel()

	const list = `[{"name":"fresh","addr":"10.0.0.1"},{"name":"left","addr":"10.0.0.2"},
{"name":"moved","addr":"10.0.0.3","mac":"52:54:00:00:00:03"},{"name":"ready","addr":"10.0.0.4"},
{"name":"spoke","addr":"10.0.0.5","mac":"52:54:00:00:00:05"}]`

	all := []inventory.Verb{inventory.VerbManage, inventory.VerbInspect, inventory.VerbProvide}

	w := newWorld(t)
	s := w.run()
	w.expect(s, api.Import{File: list}, "fresh created\nleft created\nmoved created\nready created\nspoke created")

	set := func(status inventory.Status, names ...string) {
		w.mu.Lock()
		defer w.mu.Unlock()

		for _, name := range names {
			n := w.nodes[name]
			n.Status = status
			w.nodes[name] = n
		}
	}
	set(inventory.Manageable, "left", "moved", "spoke")
	set(inventory.Unallocated, "ready")
	w.mu.Lock()
	spoke := w.nodes["spoke"]
	spoke.Label = "spoke"
	w.nodes["spoke"] = spoke
	w.mu.Unlock()

	begin := func(want string) {
		t.Helper()
		w.settle(want, func() bool { return w.jobs.did() == want })
	}

	changed := strings.NewReplacer("10.0.0.3", "10.0.0.33", "10.0.0.5", "10.0.0.55").Replace(list)
	if done, err := w.request(s, api.Import{File: changed, Then: all}); err != nil || len(done.Jobs) != 1 {
		t.Fatal(done, err)
	}

	begin("manage fresh,moved by anna")

	if n, _ := w.View().Lookup("moved"); n.Status != inventory.Enrolled {
		t.Errorf("with another address, it is %s before the check", n.Status)
	}

	// The agent of an Enrolled node would offer it for use.
	if n, _ := w.View().Lookup("spoke"); n.Status != inventory.Manageable {
		t.Errorf("a node whose agent has spoken is %s", n.Status)
	}

	w.jobs.end(t, "moved")
	set(inventory.Manageable, "fresh")
	begin("manage fresh,moved by anna; inspect fresh,left,spoke by anna")
	w.jobs.end(t, "left")

	begin("manage fresh,moved by anna; inspect fresh,left,spoke by anna; provide fresh,spoke by anna")
	w.jobs.end(t)
	set(inventory.Unallocated, "fresh", "spoke")

	run := Runs(w.View())[0]
	run, _ = Run(w.View(), run.ID)

	var got []string
	for _, n := range run.Nodes {
		got = append(got, fmt.Sprint(n.Node, " ", n.Step, " ", n.Error != ""))
	}

	want := "fresh  false, left inspect true, moved manage true, spoke  false"
	if text := strings.Join(got, ", "); !run.Done || text != want {
		t.Errorf("done %t: %s", run.Done, text)
	}

	// Where nobody is left that a check takes, the verbs begin with the first one that takes somebody.
	set(inventory.Manageable, "moved")

	done, err := w.request(s, api.Import{File: changed, Then: all})
	if did := w.jobs.did(); err != nil || len(done.Jobs) != 1 ||
		!strings.HasSuffix(did, "; inspect left,moved by anna") {
		t.Fatal(done, err, did)
	}

	before := w.jobs.did() + "; provide left,moved by anna"

	w.jobs.end(t)
	begin(before)
	w.jobs.end(t)

	// Nothing but a check is asked for: whoever is checked stays as it is.
	if done, err := w.request(s, api.Import{File: changed, Then: manage}); err != nil || w.jobs.did() != before {
		t.Error(done, err, w.jobs.did())
	}
}

// TestThenIsRefused: the machines are registered all the same, and the answer has the reason.
func TestThenIsRefused(t *testing.T) {
	t.Parallel()

	w := newWorld(t)
	w.jobs.fails = func(job.Request) error {
		return inventory.Errorf(inventory.KindInvalid, "no such job is accepted")
	}
	s := w.run()

	done, err := w.request(s, api.Import{Then: manage, File: one})
	if err != nil || len(done.Jobs) > 0 ||
		!strings.Contains(strings.Join(done.Warnings, " "), "no such job is accepted") {
		t.Errorf("got %+v, %v", done, err)
	}

	if got := w.came(done.ID); got !=
		"done true, failed 1 of 1; r1 manage: manage was refused: no such job is accepted" {
		t.Errorf("got %s", got)
	}

	if n, _ := w.View().Lookup("r1"); n.Status != inventory.Enrolled {
		t.Errorf("got %+v", n)
	}
}

// TestThenWaits: a refusal that names no node may pass by itself. The job is asked for again, for a while, and no other
// import waits for that.
func TestThenWaits(t *testing.T) {
	t.Parallel()

	w := newWorld(t)

	var passes atomic.Bool

	w.jobs.fails = func(r job.Request) error {
		switch {
		case slices.Contains(r.Nodes, "lost"):
			return errors.New("the disk is full")
		case slices.Contains(r.Nodes, "late") && !passes.Load():
			return inventory.Errorf(inventory.KindRefused, "1000 jobs are queued already")
		}

		return nil
	}

	s := w.run()
	s.Stop() // the rounds are made below

	ctx := t.Context()
	ids := map[string]string{}

	for _, name := range []string{"late", "lost", "good"} {
		_, accepted, err := s.accept(ctx, access.Caller{Principal: "anna"}, func(v *state.View) (planned, error) {
			entries, _, _ := listing.Parse([]byte(`[{"name":"` + name + `","addr":"` + name + `.example"}]`))
			p, _ := plan(v, entries, false)
			p.then = manage

			return p, nil
		})
		if err != nil {
			t.Fatal(err)
		}

		ids[name] = accepted.ID
		_, _ = s.round(ctx)
	}

	if _, err := s.round(ctx); err == nil || w.jobs.did() != "manage good by anna" {
		t.Errorf("%v, the jobs are %s", err, w.jobs.did())
	}

	const waits = "manage was refused: 1000 jobs are queued already"

	run, err := Run(w.View(), ids["late"])
	if err != nil || run.Done || run.Failed > 0 || run.Waits != waits {
		t.Errorf("%+v, %v", run, err)
	}

	passes.Store(true)

	if _, err := s.round(ctx); err == nil || w.jobs.did() != "manage good by anna; manage late by anna" {
		t.Errorf("%v, the jobs are %s", err, w.jobs.did())
	}

	if run, err = Run(w.View(), ids["late"]); err != nil || run.Waits != "" {
		t.Errorf("%+v, %v", run, err)
	}

	// It has an end.
	s.refused[ids["lost"]] = time.Now().Add(-refusedFor)
	_, _ = s.round(ctx)
	_, _ = s.round(ctx)

	if got := w.came(
		ids["lost"],
	); got != "done true, failed 1 of 1; lost manage: manage was refused: the disk is full" {
		t.Errorf("got %s", got)
	}
}

// TestThenIsCancelled: who cancels a job of a chain ends the chain.
func TestThenIsCancelled(t *testing.T) {
	t.Parallel()

	w := newWorld(t)
	s := w.run()

	done, err := w.request(s, api.Import{
		Then: []inventory.Verb{inventory.VerbManage, inventory.VerbInspect},
		File: `[{"name":"first","addr":"10.0.0.1"},{"name":"second","addr":"10.0.0.2"}]`,
	})
	if err != nil {
		t.Fatal(err)
	}

	w.jobs.cancel(t, "second")
	w.settle("the end", func() bool {
		run, _ := Run(w.View(), done.ID)
		return run.Done || len(run.Jobs) > 1
	})

	if got := w.jobs.did(); got != "manage first,second by anna" {
		t.Errorf("the jobs are %s", got)
	}

	if got := w.came(done.ID); got != "done true, failed 2 of 2; "+
		"first inspect: it was not begun, because job 1 was cancelled; second manage:1 no route to second" {
		t.Errorf("got %s", got)
	}
}

// TestThenAfterACrash stops the leader after each number of commits, and once between the job and its record. The job
// is accepted once.
func TestThenAfterACrash(t *testing.T) {
	t.Parallel()

	const nodes = 40

	for crash := 1; crash < 6; crash++ {
		w := newWorld(t)

		commits, crashed := 0, make(chan struct{})
		w.Before = func(*record.Tx) error {
			if commits++; commits <= crash {
				return nil
			}

			if commits == crash+1 {
				close(crashed)
			}

			return errors.New("the process was killed")
		}

		first := w.service()
		first.Start(t.Context())

		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)

		go func() {
			_, err := first.Import(
				ctx,
				access.Caller{Principal: "anna"},
				nil,
				api.Import{File: many(nodes), Then: manage},
			)
			result <- err
		}()

		select {
		case <-crashed:
		case err := <-result:
			// All commits were made before: there was no crash.
			result <- err
		}

		first.Stop()
		cancel()
		<-result

		w.Before = nil
		w.run()

		for !over(w) {
			changed := w.Changed()
			if over(w) {
				break
			}

			select {
			case <-changed:
			case <-time.After(time.Minute):
				t.Fatal("the import does not end")
			}
		}

		if all := w.jobs.all(); len(all) != 1 || len(all[0].Targets) != nodes {
			t.Errorf("crash after %d commits: %d jobs were accepted: %s", crash, len(all), w.jobs.did())
		}
	}
}

// settle waits until a condition holds.
func (w *world) settle(what string, holds func() bool) {
	w.t.Helper()

	limit := time.After(time.Minute)

	for {
		changed := w.Changed()
		if holds() {
			return
		}

		select {
		case <-changed:
		case <-limit:
			w.t.Fatalf("%s: it did not happen; jobs: %s", what, w.jobs.did())
		}
	}
}

// came returns how far the nodes of an import came: NODE STEP:JOB ERROR.
func (w *world) came(id string) string {
	w.t.Helper()

	run, err := Run(w.View(), id)
	if err != nil {
		w.t.Fatal(err)
	}

	lines := []string{fmt.Sprintf("done %t, failed %d of %d", run.Done, run.Failed, run.Total)}
	for _, n := range run.Nodes {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s:%s %s", n.Node, n.Step, n.Job, n.Error)))
	}

	return strings.Join(lines, "; ")
}

// TestChain: a node that fails stops there with its error, one that is refused stops with the reason, and the others go
// on to the end. All of it can be read.
func TestChain(t *testing.T) {
	t.Parallel()

	w := newWorld(t)
	w.jobs.fails = func(r job.Request) error {
		if r.Verb == inventory.VerbProvide && slices.Contains(r.Nodes, "held") {
			return inventory.Errorf(inventory.KindRefused, "held is claimed by several live hosts").About("held")
		}

		return nil
	}
	s := w.run()

	chain := []inventory.Verb{inventory.VerbManage, inventory.VerbInspect, inventory.VerbProvide}

	done, err := w.request(s, api.Import{Then: chain, File: `[{"name":"good","addr":"10.0.0.1"},
{"name":"dead","addr":"10.0.0.2"},{"name":"odd","addr":"10.0.0.3"},{"name":"held","addr":"10.0.0.4"}]`})
	if err != nil || done.ID == "" {
		t.Fatalf("%+v, %v", done, err)
	}

	expect := func(want string) {
		t.Helper()

		if got := w.came(done.ID); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	jobs := func(n int) func() bool {
		return func() bool { run, _ := Run(w.View(), done.ID); return len(run.Jobs) == n }
	}

	expect("done false, failed 0 of 4; dead manage:1; good manage:1; held manage:1; odd manage:1")

	w.jobs.end(t, "dead")
	w.settle("the second job", jobs(2))
	expect("done false, failed 1 of 4; dead manage:1 no route to dead; good inspect:2; held inspect:2; odd inspect:2")

	w.jobs.end(t, "odd")
	w.settle("the third job", jobs(3))
	expect("done false, failed 3 of 4; dead manage:1 no route to dead; good provide:3; " +
		"held provide: provide was refused: held is claimed by several live hosts; odd inspect:2 no route to odd")

	w.jobs.end(t)
	expect("done true, failed 3 of 4; dead manage:1 no route to dead; good :; " +
		"held provide: provide was refused: held is claimed by several live hosts; odd inspect:2 no route to odd")

	const jobsWere = "manage good,dead,odd,held by anna; inspect good,odd,held by anna; provide good by anna"
	if got := w.jobs.did(); got != jobsWere {
		t.Errorf("the jobs are %s", got)
	}

	if all := Runs(w.View()); len(all) != 1 || all[0].Nodes != nil || all[0].Failed != 3 || all[0].Total != 4 {
		t.Errorf("the list has %+v", all)
	}

	if _, err := Run(w.View(), "nope"); inventory.KindOf(err) != inventory.KindNotFound {
		t.Errorf("an import that never was: %v", err)
	}
}

// TestChainOfNodes begins with nodes that are registered already, each in a status from which the verbs lead on.
func TestChainOfNodes(t *testing.T) {
	t.Parallel()

	w := newWorld(
		t,
		nodeOf("m-1", inventory.Manageable, inventory.Unknown),
		nodeOf(
			"m-2",
			inventory.Manageable,
			inventory.Unknown,
		),
		nodeOf("a-1", inventory.Allocated, inventory.Discovered),
	)
	s := w.run()

	then := []inventory.Verb{inventory.VerbInspect, inventory.VerbProvide}

	for _, tt := range []struct {
		r    api.Import
		want inventory.Kind
	}{
		{api.Import{Nodes: []string{"m-1", "nope"}, Then: then}, inventory.KindNotFound},
		{api.Import{Nodes: []string{"m-1", "a-1"}, Then: then}, inventory.KindInvalid},
		{api.Import{Nodes: []string{"m-1"}}, inventory.KindInvalid},
		{api.Import{Nodes: []string{"m-1"}, Then: then, Prune: true}, inventory.KindInvalid},
		{api.Import{Nodes: []string{"m-1"}, Then: then, File: one}, inventory.KindInvalid},
	} {
		if _, err := w.request(s, tt.r); inventory.KindOf(err) != tt.want {
			t.Errorf("%+v: %v", tt.r, err)
		}
	}

	if got := w.jobs.did(); got != "" {
		t.Fatalf("refused requests began %s", got)
	}

	done, err := w.request(s, api.Import{Nodes: []string{"m-2", "m-1", "m-2"}, Then: then})
	if err != nil {
		t.Fatal(err)
	}

	w.jobs.end(t, "m-1")
	w.settle("the end", func() bool { return len(w.jobs.did()) > 0 && strings.Contains(w.jobs.did(), "provide") })
	w.jobs.end(t)

	if got := w.jobs.did(); got != "inspect m-1,m-2 by anna; provide m-2 by anna" {
		t.Errorf("the jobs are %s", got)
	}

	if got := w.came(done.ID); got != "done true, failed 1 of 2; m-1 inspect:1 no route to m-1; m-2 :" {
		t.Errorf("got %s", got)
	}
}

// TestChainAfterACrash stops the leader after each number of its commits on the way of three verbs. Each verb is one
// job all the same.
func TestChainAfterACrash(t *testing.T) {
	t.Parallel()

	chain := []inventory.Verb{inventory.VerbManage, inventory.VerbInspect, inventory.VerbProvide}

	for crash := 1; ; crash++ {
		w := newWorld(t)

		var (
			commits atomic.Int64
			crashed = make(chan struct{})
		)

		w.Before = func(*record.Tx) error {
			if w.jobs.ending.Load() {
				return nil
			}

			switch n := commits.Add(1); {
			case n <= int64(crash):
				return nil
			case n == int64(crash)+1:
				close(crashed)
			}

			return errors.New("the process was killed")
		}

		// drive ends the jobs until nothing follows any more, or the leader crashed.
		drive := func() (isOver bool) {
			limit := time.After(time.Minute)

			for {
				changed := w.Changed()

				runs := Runs(w.View())
				switch {
				case len(runs) > 0 && runs[0].Done:
					return true
				case len(runs) > 0 && len(runs[0].Jobs) > 0 && w.jobs.runs(w.View()):
					w.jobs.end(t)
					continue
				}

				select {
				case <-changed:
				case <-crashed:
					if w.Before != nil {
						return false
					}

					crashed = nil
				case <-limit:
					t.Fatalf("crash after %d commits: the import does not end; jobs: %s", crash, w.jobs.did())
				}
			}
		}

		first := w.service()
		first.Start(t.Context())

		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)

		go func() {
			_, err := first.Import(ctx, access.Caller{Principal: "anna"}, nil, api.Import{File: many(40), Then: chain})
			result <- err
		}()

		whole := drive()

		first.Stop()
		cancel()
		<-result

		if !whole {
			w.Before = nil
			w.run()
			drive()
		}

		var verbs []string

		all := w.jobs.all()
		for _, j := range all {
			if len(j.Targets) == 40 {
				verbs = append(verbs, string(j.Verb))
			}
		}

		if got := strings.Join(verbs, " "); got != "manage inspect provide" || len(all) != 3 {
			t.Errorf("crash after %d commits: the jobs were %s", crash, w.jobs.did())
		}

		if whole {
			if crash < 5 {
				t.Errorf("the way has only %d commits", crash)
			}

			return
		}
	}
}

// runs reports whether the newest job runs.
func (j *jobs) runs(v *state.View) bool {
	j.mu.Lock()
	defer j.mu.Unlock()

	if len(j.accepted) == 0 {
		return false
	}

	is, err := v.Job(j.accepted[len(j.accepted)-1].ID)

	return err == nil && !is.Status.Ended()
}

// over reports whether nothing follows the imports any more.
func over(w *world) bool {
	return len(pending(w)) == 0 && !slices.ContainsFunc(record.List(w.View(), &Kind), func(i *Import) bool {
		return len(i.Then) > 0
	})
}
