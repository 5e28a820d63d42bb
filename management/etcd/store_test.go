// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/notify"
	"github.com/contiv/cluster/management/plan"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/secret"
	"github.com/contiv/cluster/management/sshkey"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/variable"
	"github.com/contiv/cluster/management/window"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// shared is the server of all tests that neither stop nor compact it. Each test has its
// own prefix.
var shared *etcd.Server

// prefixes counts the prefixes, so that a repeated test gets a new one.
var prefixes atomic.Int64

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "etcd" { // a server in a child process
		os.Exit(etcd.Main(os.Args[2]))
	}

	debug.SetGCPercent(400) // the process ends before it needs much memory
	raiseParallel()
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "cm")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)

		if shared, err = etcd.StartServer(
			context.Background(),
			etcd.ServerOptions{Dir: dir, NoSync: true, Log: silent()},
		); err != nil {
			panic(err)
		}

		defer shared.Close()

		return m.Run()
	}())
}

// raiseParallel runs more tests at a time than there are processors, because most of
// them wait for etcd.
func raiseParallel() {
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
}

func silent() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

// patience bounds every wait of a test that fails. Under the race detector, with seven others beside it, a test of a
// minute is a slow one.
const patience = 5 * time.Minute

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func dial(t *testing.T, s *etcd.Server, prefix string) *etcd.Client {
	t.Helper()

	c, err := etcd.Dial(within(t, patience), prefix, s.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })

	return c
}

// testKinds are the kinds of all stores.
var testKinds = slices.Concat(state.Kinds, []record.Any{
	&job.Kind, &plan.Kind, &rollout.Kind,
	&access.TokenKind, &access.TokenUseKind, &access.RevocationKind, &sshkey.Kind, &window.FreezeKind,
	&notify.DeliveryKind, &notify.PositionKind,
})

// testKey encrypts the secrets of all stores.
var testKey = secret.NewKey()

func testSecrets() *Secrets { return NewSecrets(secret.NewRing(testKey), nil) }

// open returns a store that waits for an etcd that is slow, because many tests use the
// same one at a time: only tests of outages want the bounds of the product.
func open(t *testing.T, c *etcd.Client) *Store {
	t.Helper()

	s, err := Open(within(t, patience), c, testKinds, testSecrets(), silent(), 10*StaleAfter)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)

	return s
}

// openStale returns a store with a view that becomes stale early.
func openStale(t *testing.T, c *etcd.Client) *Store {
	t.Helper()
	s, err := Open(within(t, patience), c, testKinds, testSecrets(), silent(), 600*time.Millisecond)
	must(t, err)
	t.Cleanup(s.Close)
	return s
}

func store(t *testing.T) *Store {
	t.Helper()
	return open(t, dial(t, shared, fmt.Sprintf("/%d", prefixes.Add(1))))
}

func must(t *testing.T, err error) {
	t.Helper()

	if err != nil {
		t.Fatal(err)
	}
}

func conflict(t *testing.T, err error) {
	t.Helper()

	if inventory.KindOf(err) != inventory.KindConflict {
		t.Fatalf("no conflict, but %v", err)
	}
}

// seen stores the nodes n-0000… as a monitor does at their first observation.
func seen(t *testing.T, s *Store, count int) []string {
	t.Helper()
	var writes []state.NodeWrite

	var names []string
	for i := range count {
		n, e := inventory.NewNode(
			inventory.Observation{
				Observer: "gossip",
				Label:    "n",
				Serial:   fmt.Sprintf("%04d", i),
				Addr:     fmt.Sprintf("10.0.%d.%d", i/250, i%250+1),
				Alive:    true,
			},
			nil,
			noon,
		)
		writes = append(writes, state.NodeWrite{Node: n, Entries: []inventory.HistoryEntry{e}})
		names = append(names, n.Name)
	}

	conflicts, err := s.PutNodes(within(t, patience), writes)
	if err != nil || len(conflicts) > 0 {
		t.Fatal(conflicts, err)
	}

	return names
}

// accepted stores a queued commission of the nodes.
func accepted(t *testing.T, s *Store, names []string) job.Job {
	t.Helper()

	j := job.Job{
		Verb:     inventory.VerbCommission,
		Status:   job.Queued,
		Group:    inventory.GroupMaster,
		Timeout:  time.Hour,
		Accepted: noon,
		Actor:    "anna",
	}
	for _, name := range names {
		j.Targets = append(j.Targets, job.Target{Name: name, Group: inventory.GroupMaster})
	}

	j, err := accept(within(t, patience), s, j, job.Inputs{})
	must(t, err)

	return j
}

// putJob stores the job if it is still at j.Revision.
func putJob(ctx context.Context, s *Store, j job.Job) (_ job.Job, err error) {
	j.Revision, err = record.Replace(ctx, s, &job.Kind, j.ID, j.Revision, &j)
	return j, err
}

// dropJobs removes jobs with their inputs and logs.
func dropJobs(t *testing.T, s *Store, ids ...string) {
	t.Helper()

	for _, id := range ids {
		must(t, second(commit(t, s, func(tx *record.Tx) { state.DropJob(tx, id) })))
	}
}

// accept stores a Queued job and its inputs under the next number.
func accept(ctx context.Context, s *Store, j job.Job, in job.Inputs) (job.Job, error) {
	tx := record.NewTx(s)
	j.ID = state.ViewOf(tx).NextID()
	state.AcceptJob(tx, j, in)

	var err error
	j.Revision, err = s.Commit(ctx, tx)

	return j, err
}

// held returns the Running job and the writes of its claim, decided on the view.
func held(t *testing.T, v *state.View, j job.Job) (job.Job, []state.NodeWrite) {
	t.Helper()
	row, _ := inventory.TransitionOf(j.Verb)
	j.Status, j.Started = job.Running, noon

	var writes []state.NodeWrite
	for _, target := range j.Targets {
		n, err := v.Node(target.Name)
		must(t, err)
		m, e, err := n.Hold(row, j.Group, inventory.Trigger{Actor: "anna", Job: j.ID, Time: noon})
		must(t, err)
		writes = append(writes, state.NodeWrite{Node: m, Entries: []inventory.HistoryEntry{e}})
	}

	return j, writes
}

// released returns the ended job and the writes that release its nodes.
func released(t *testing.T, v *state.View, j job.Job) (job.Job, []state.NodeWrite) {
	t.Helper()
	j.Status, j.Ended = job.Complete, noon

	var writes []state.NodeWrite
	for _, target := range j.Targets {
		n, err := v.Node(target.Name)
		must(t, err)

		if n.Job != j.ID {
			continue
		}

		m, e := n.Release(
			inventory.Outcome{Status: inventory.Allocated, Group: j.Group, Applied: j.ID},
			inventory.Trigger{Job: j.ID, Time: noon},
		)
		writes = append(writes, state.NodeWrite{Node: m, Entries: []inventory.HistoryEntry{e}})
	}

	return j, writes
}

// statuses counts the nodes of each status.
func statuses(v *state.View) map[inventory.Status]int {
	out := map[inventory.Status]int{}
	for _, n := range v.Nodes() {
		out[n.Status]++
	}

	return out
}

// changeAddr changes a node as a monitor does that reports a new address.
func changeAddr(t *testing.T, s *Store, name string) {
	t.Helper()
	n, err := s.View().Node(name)
	must(t, err)
	m, _, _ := n.Observe(
		inventory.Observation{Observer: "gossip", Label: n.Label, Serial: n.Serial, Addr: "10.9.9.9", Alive: true},
		noon,
	)

	conflicts, err := s.PutNodes(within(t, patience), []state.NodeWrite{{Node: m}})
	if err != nil || len(conflicts) > 0 {
		t.Fatal(conflicts, err)
	}
}

// TestRoundTrip checks that the view shows every write at once, and that a second store
// reads the same view.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := within(t, patience)
	names := seen(t, s, 3)
	yes := true
	rev, err := putVars(ctx, s, s.View(),
		state.ScopeGlobal,
		configuration.Vars{"a": 1.5, "deep": map[string]any{"list": []any{"x", nil, true}}},
		variable.Change{},
	)
	must(t, err)

	if _, err = putVars(ctx, s, s.View(),
		state.ScopeNode(names[0]),
		configuration.Vars{"b": "c"},
		variable.Change{},
	); err != nil {
		t.Fatal(err)
	}

	setConnection(t, s, names[1], configuration.Connection{User: "root", Port: 2222, Become: &yes})
	must(t, putOverlay(ctx, s, s.View(), configuration.Vars{"log_level": "debug"}))
	inputs := job.Inputs{
		Vars: map[string]map[string]configuration.Var{
			names[0]: {"a": {Value: "x", Origin: "global", Trusted: true}},
		},
		Connections: map[string]configuration.Connection{names[0]: {User: "u"}},
		Extra:       configuration.Vars{"e": "f"},
	}
	j, err := accept(
		ctx,
		s,
		job.Job{
			Verb:     inventory.VerbCommission,
			Status:   job.Queued,
			Accepted: noon,
			Group:    inventory.GroupMaster,
			Targets: []job.Target{
				{Name: names[0], Residue: []string{"g"}},
			},
			Warnings: []string{"w"},
			Timeout:  time.Minute,
		},
		inputs,
	)
	must(t, err)

	if j.ID != "1" || j.Revision == 0 {
		t.Errorf("%+v", j)
	}

	j.Runs = []job.Run{
		{
			Phase:   job.PhaseConfigure,
			Hosts:   names[:1],
			Results: map[string]job.HostResult{names[0]: {Done: true, OK: 3}},
			Started: noon,
		},
	}
	j.Outcomes = map[string]inventory.Outcome{names[0]: {Status: inventory.Allocated}}
	j, err = putJob(ctx, s, j)
	must(t, err)

	in, err := s.Inputs(ctx, "1")
	if err != nil || !reflect.DeepEqual(in, inputs) {
		t.Errorf("%+v, %v", in, err)
	}

	if _, err := s.Inputs(ctx, "7"); inventory.KindOf(err) != inventory.KindNotFound {
		t.Errorf("%v", err)
	}

	first, second := s.View(), open(t, s.client).View()
	if first.Revision < j.Revision || second.Revision < first.Revision {
		t.Errorf("revisions %d, %d, %d", j.Revision, first.Revision, second.Revision)
	}
	record.Differences(first.View, second.View, func(ref record.Ref, _ any) {
		t.Errorf("the second store has another %s %s", ref.Kind, ref.Key)
	})

	again := *second

	again.Revision, again.View = first.Revision, first.View
	if !reflect.DeepEqual(*first, again) {
		t.Errorf("the second store has\n%+v\nwant\n%+v", again, *first)
	}

	if got, err := first.Job("1"); err != nil || !reflect.DeepEqual(got, j) {
		t.Errorf("%+v, %v", got, err)
	}

	if len(first.Nodes()) != 3 || fmt.Sprint(state.VarsOf(first, state.ScopeGlobal)["a"]) != "1.5" ||
		first.Connection(names[1]).Port != 2222 ||
		first.Connection(names[0]) != nil ||
		state.OverlayOf(first)["log_level"] != "debug" ||
		first.Newest() != 1 ||
		first.Stale {
		t.Errorf("%+v", first)
	}

	at := func(v *state.View, scope state.Scope) int64 {
		return record.Revision(v, &state.Variables, string(scope))
	}
	if at(first, state.ScopeGlobal) != rev || at(first, state.ScopeNode(names[0])) <= rev ||
		state.ConfigAt(first) == 0 {
		t.Errorf("variables not at %d, or configuration at %d", rev, state.ConfigAt(first))
	}

	// Remove all of it again.
	_, err = putVars(ctx, s, s.View(), state.ScopeGlobal, nil, variable.Change{})
	must(t, err)
	setConnection(t, s, names[1], configuration.Connection{})
	must(t, putOverlay(ctx, s, s.View(), configuration.Vars{}))

	if v := s.View(); state.VarsOf(v, state.ScopeGlobal) != nil || v.Connection(names[1]) != nil ||
		len(state.OverlayOf(v)) != 0 ||
		state.ConfigAt(v) <= state.ConfigAt(first) ||
		at(v, state.ScopeGlobal) != 0 ||
		state.VarsOf(v, state.ScopeNode(names[0])) == nil {
		t.Errorf("%+v", v)
	}

	if state.VarsOf(first, state.ScopeGlobal) == nil {
		t.Error("a snapshot changed")
	}

	// A new digest of an instance's file is a change of the configuration.
	for _, digest := range []string{"one", "two"} {
		before := s.View()
		_, err := record.Replace(ctx, s, &state.ConfigFiles, "i1",
			record.Revision(before, &state.ConfigFiles, "i1"), &state.ConfigFile{Digest: digest})
		must(t, err)

		changes, err := s.Changes(before.Revision, 9)
		must(t, err)

		if state.ConfigAt(s.View()) <= state.ConfigAt(before) || len(changes.List) != 1 ||
			changes.List[0].Ref != state.Config {
			t.Errorf("%s: %+v", digest, changes.List)
		}
	}
}

func TestConflicts(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := within(t, patience)
	names := seen(t, s, 2)
	old := s.View()
	changeAddr(t, s, names[0])

	// A conflict on one node does not keep the call from writing the others.
	var writes []state.NodeWrite
	for _, name := range names {
		n, _ := old.Node(name)
		n = n.Clone()
		n.HostKeys = []string{"k"}
		writes = append(writes, state.NodeWrite{Node: n})
	}

	conflicts, err := s.PutNodes(ctx, writes)
	if err != nil || !slices.Equal(conflicts, names[:1]) {
		t.Errorf("%v, %v", conflicts, err)
	}

	a, _ := s.View().Node(names[0])

	b, _ := s.View().Node(names[1])
	if a.HostKeys != nil || a.Addr != "10.9.9.9" || len(b.HostKeys) != 1 {
		t.Errorf("%+v, %+v", a, b)
	}

	// Two callers create the same node.
	n, _ := old.Node(names[0])

	n.Revision = 0
	if conflicts, err = s.PutNodes(ctx, []state.NodeWrite{{Node: n}}); err != nil || len(conflicts) != 1 {
		t.Errorf("%v, %v", conflicts, err)
	}

	late := record.NewTx(s)
	j := accepted(t, s, names[:1])
	state.AcceptJob(late, job.Job{ID: j.ID}, job.Inputs{})
	conflict(t, second(s.Commit(ctx, late)))
	later, err := putJob(ctx, s, j)
	must(t, err)
	_, err = putJob(ctx, s, j)
	conflict(t, err)
	_, err = s.Finish(ctx, j, nil)
	conflict(t, err)
	later.Status = job.Cancelled
	_, err = s.Finish(ctx, later, nil)
	must(t, err)

	before := s.View()
	_, err = putVars(ctx, s, before, state.ScopeGlobal, configuration.Vars{"a": "1"}, variable.Change{})
	must(t, err)
	_, err = putVars(ctx, s, before, state.ScopeGlobal, configuration.Vars{"a": "2"}, variable.Change{})
	conflict(t, err)
	_, err = putVars(ctx, s, before, state.ScopeGroup("g"), configuration.Vars{"a": "2"}, variable.Change{})
	must(t, err)
	must(t, putOverlay(ctx, s, s.View(), configuration.Vars{"a": "b"}))
	conflict(t, putOverlay(ctx, s, before, configuration.Vars{"a": "c"}))
}

// TestConflictsInAChunk checks that conflicting nodes do not hold back the other nodes
// of their chunk.
func TestConflictsInAChunk(t *testing.T) {
	t.Parallel()
	s := store(t)
	names := seen(t, s, 100)
	old := s.View()
	changeAddr(t, s, names[7])
	changeAddr(t, s, names[70])

	var writes []state.NodeWrite
	for _, n := range old.Nodes() {
		m, e, _ := n.Observe(inventory.Observation{Observer: "gossip", Label: n.Label, Serial: n.Serial}, noon)
		writes = append(writes, state.NodeWrite{Node: m, Entries: []inventory.HistoryEntry{*e}})
	}

	conflicts, err := s.PutNodes(within(t, patience), writes)
	if err != nil || !slices.Equal(conflicts, []string{names[7], names[70]}) {
		t.Errorf("%v, %v", conflicts, err)
	}

	gone := 0
	for _, n := range s.View().Nodes() {
		if n.State == inventory.Disappeared {
			gone++
		}
	}

	if gone != 98 {
		t.Errorf("%d nodes disappeared, want 98", gone)
	}
}

// TestClaim claims and releases batches of one chunk and of many.
func TestClaim(t *testing.T) {
	t.Parallel()

	for _, count := range []int{1, 60, 1000} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			t.Parallel()
			s := store(t)
			ctx := within(t, patience)
			names := seen(t, s, count)
			j := accepted(t, s, names)
			stopWatching := watchForPartialClaims(t, s, count)
			v := s.View()
			running, writes := held(t, v, j)
			j, err := s.Claim(ctx, state.Claim{Job: running, Writes: writes, Revision: v.Revision})
			must(t, err)

			v = s.View()
			if got := statuses(v); got[inventory.Provisioning] != count {
				t.Errorf("%v", got)
			}

			if got, _ := v.Job(
				j.ID,
			); got.Status != job.Running || got.Revision != j.Revision {
				t.Errorf("%+v", got)
			}

			ending, writes := released(t, v, j)
			if _, err = s.Finish(ctx, ending, writes); err != nil {
				t.Fatal(err)
			}

			if got := statuses(s.View()); got[inventory.Allocated] != count {
				t.Errorf("%v", got)
			}

			stopWatching()

			for _, name := range []string{names[0], names[count-1]} {
				h, err := s.History(ctx, name, 10)
				if err != nil || len(h) != 3 || h[0].To != inventory.Unallocated || h[1].To != inventory.Provisioning ||
					h[2].To != inventory.Allocated {
					t.Errorf("history of %s: %+v, %v", name, h, err)
				}
			}
		})
	}
}

// changeGenerations changes the generations of groups, as the end of a job does.
func changeGenerations(t *testing.T, s *Store, groups ...string) error {
	t.Helper()
	return second(s.commit(t.Context(), s.generations(0, nil, groups)))
}

// watchForPartialClaims fails the test if a view shows a part of a claim: a Queued job
// holds no node, and a Running one starts with all of them. It watches until the
// returned function is called.
func watchForPartialClaims(t *testing.T, s *Store, count int) (end func()) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)

		for {
			changed := s.Changed()
			v := s.View()
			in := statuses(v)

			queued := slices.ContainsFunc(v.Jobs(), func(j *job.Job) bool { return j.Status == job.Queued })
			if queued && in[inventory.Unallocated] != count || !queued && in[inventory.Unallocated] != 0 {
				t.Errorf("the view shows a part of a claim: queued %v, %v", queued, in)
			}

			select {
			case <-changed:
			case <-stop:
				return
			}
		}
	}()

	return func() { close(stop); <-stopped }
}

// TestClaimRefused checks that a change since the decision, in any chunk of the claim,
// leaves every node as it was.
func TestClaimRefused(t *testing.T) {
	t.Parallel()

	for name, disturb := range map[string]func(t *testing.T, s *Store, names []string, j *job.Job){
		"the first node": func(t *testing.T, s *Store, names []string, _ *job.Job) {
			changeAddr(t, s, names[0])
		},
		"the last node": func(t *testing.T, s *Store, names []string, _ *job.Job) {
			changeAddr(t, s, names[len(names)-1])
		},
		"the generation of a group": func(t *testing.T, s *Store, _ []string, _ *job.Job) {
			must(t, changeGenerations(t, s, "masters"))
		},
		"the generation of all": func(t *testing.T, s *Store, _ []string, _ *job.Job) {
			_, err := s.commit(t.Context(), etcd.Ops{
				Then: []clientv3.Op{clientv3.OpPut(allGenerations(s.client.Prefix), "")},
			})
			must(t, err)
		},
		"the job":          func(_ *testing.T, _ *Store, _ []string, j *job.Job) { j.Revision-- },
		"the job is ended": cancelled,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := store(t)
			ctx := within(t, patience)
			names := seen(t, s, 150)
			j := accepted(t, s, names)
			v := s.View()
			running, writes := held(t, v, j)
			disturb(t, s, names, &running)
			before := s.View()
			uses := []string{"workers", "masters"}
			_, err := s.Claim(ctx, state.Claim{Job: running, Writes: writes, Revision: v.Revision, Uses: uses})
			conflict(t, err)

			after := s.View()
			for i := range after.Nodes() {
				n, want := *after.Nodes()[i], *before.Nodes()[i]
				// A withdrawn reservation leaves a newer record and a gap in the numbers.
				n.Revision, n.Entries, n.Updated, n.Actor = want.Revision, want.Entries, want.Updated, want.Actor
				if !reflect.DeepEqual(n, want) {
					t.Fatalf("before\n%+v\nafter\n%+v", want, n)
				}
			}

			for _, name := range names {
				if h, err := s.History(ctx, name, 10); err != nil || len(h) != 1 {
					t.Fatalf("the history of %s shows a reservation: %+v, %v", name, h, err)
				}
			}

			// Another process reads the same.
			for _, n := range open(t, s.client).View().Nodes() {
				if n.Status != inventory.Unallocated || n.Job != "" || n.Before != nil {
					t.Fatalf("%+v", n)
				}
			}

			if name == "the job is ended" {
				return
			}

			// The scheduler decides again and succeeds.
			v = s.View()
			j, err = v.Job(j.ID)
			must(t, err)
			running, writes = held(t, v, j)
			_, err = s.Claim(ctx, state.Claim{Job: running, Writes: writes, Revision: v.Revision})
			must(t, err)

			if got := statuses(s.View()); got[inventory.Provisioning] != 150 {
				t.Errorf("%v", got)
			}

			for _, name := range names {
				if h, err := s.History(ctx, name, 10); err != nil || len(h) != 2 {
					t.Fatalf("the history of %s: %+v, %v", name, h, err)
				}
			}
		})
	}
}

// TestWithdrawWithoutNode withdraws a claim although one of its nodes is gone.
func TestWithdrawWithoutNode(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := within(t, patience)
	names := seen(t, s, 150)
	v := s.View()
	running, writes := held(t, v, accepted(t, s, names))

	gone, err := v.Node(names[149])
	must(t, err)

	tombstone := &inventory.Tombstone{Name: gone.Name, Time: noon}
	_, err = s.Forget(ctx, v.Revision, nil, []state.NodeWrite{{Node: gone, Tombstone: tombstone}}, nil)
	must(t, err)

	_, err = s.Claim(ctx, state.Claim{Job: running, Writes: writes, Revision: v.Revision})
	conflict(t, err)

	s.view.mu.Lock()
	defer s.view.mu.Unlock()

	for name := range s.view.reserved {
		t.Errorf("the reservation of %s is left", name)
	}
}

// cancelled ends the job before its claim.
func cancelled(t *testing.T, s *Store, _ []string, j *job.Job) {
	over, err := s.View().Job(j.ID)
	must(t, err)
	over.Status, over.Ended = job.Cancelled, noon
	_, err = s.Finish(t.Context(), over, nil)
	must(t, err)
}

// setConnection sets the ssh parameters of a node.
func setConnection(t *testing.T, s *Store, name string, c configuration.Connection) {
	t.Helper()
	n, err := s.View().Node(name)
	must(t, err)

	if conflicts, err := s.PutNodes(
		t.Context(),
		[]state.NodeWrite{{Node: n, Connection: &c}},
	); err != nil ||
		len(conflicts) > 0 {
		t.Fatal(conflicts, err)
	}
}

// reserveOnly writes the reservations of a claim without its commit point, like a
// process that dies in between.
func reserveOnly(t *testing.T, s *Store, writes []state.NodeWrite) {
	t.Helper()
	parts, err := s.nodeOps(writes)
	must(t, err)

	for _, ops := range pack(parts, 2) {
		_, err := s.commit(t.Context(), ops)
		must(t, err)
	}
}

// TestReservationKeepsPresence: absences and conflicts that an observer writes during a claim stay. A fence does
// not get through a claim, and its return stays pending.
func TestReservationKeepsPresence(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := within(t, patience)
	names := seen(t, s, 1)
	_, writes := held(t, s.View(), accepted(t, s, names))
	reserveOnly(t, s, writes)

	write := func(n inventory.Node, e inventory.HistoryEntry) inventory.Node {
		t.Helper()
		conflicts, err := s.PutNodes(ctx, []state.NodeWrite{{Node: n, Entries: []inventory.HistoryEntry{e}}})
		must(t, err)

		got, err := s.View().Node(names[0])
		if err != nil || len(conflicts) > 0 || s.view.reserved[names[0]] == nil {
			t.Fatalf("%+v, %v, %v", got, conflicts, err)
		}
		return got
	}

	n, err := s.View().Node(names[0])
	must(t, err)

	lost, back, fenced := noon.Add(time.Hour), noon.Add(2*time.Hour), noon.Add(3*time.Hour)
	seenBy := inventory.Observation{Observer: "gossip", Label: "n", Serial: "0000", Addr: n.Addr}
	m, e, _ := n.Observe(seenBy, lost)

	got := write(m, *e)
	if got.State != inventory.Disappeared || !got.Presence.Lost.Equal(lost) || !got.Presence.Since.Equal(lost) {
		t.Errorf("its loss: %+v", got)
	}

	seenBy.Alive = true
	m, e, _ = got.Observe(seenBy, back)

	got = write(m, *e)
	if got.State != inventory.Discovered || !got.Presence.Returned().Equal(back) || !got.Presence.Pending() {
		t.Errorf("its return: %+v", got)
	}

	other := seenBy
	other.Observer, other.Addr = "m2", "192.0.2.250"
	m, e, _ = got.Observe(other, back)

	got = write(m, *e)
	if !slices.Equal(got.Duplicates, []string{other.Addr}) || got.Sightings["m2"].Addr != other.Addr {
		t.Errorf("the conflict: %+v", got)
	}
	got = write(
		got.SetAsideOthers().Note(inventory.VerbTrust, inventory.Trigger{Actor: "ann", Reason: "misconfigured"}),
	)
	if len(got.Duplicates) > 0 || !slices.Equal(got.SetAside, []string{other.Addr}) {
		t.Errorf("set aside: %+v", got)
	}
	got = write(got.Quarantine(inventory.Trigger{Actor: "policy:returns", Reason: "foreign", Time: fenced}))
	if got.Status != inventory.Unallocated || !got.Presence.Pending() || !got.Presence.Fenced.IsZero() {
		t.Errorf("the fence: %+v", got)
	}
	got = write(got.Decided(inventory.Trigger{Actor: "policy:returns", Reason: "left", Time: fenced}))
	if got.Presence.Pending() {
		t.Errorf("the decision: %+v", got)
	}
}

// TestAbandonedReservation checks that an uncommitted reservation counts as absent
// through observations, the end of its job, another claim and a restart.
func TestAbandonedReservation(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := within(t, patience)
	names := seen(t, s, 2)
	first := accepted(t, s, names)
	_, writes := held(t, s.View(), first)
	reserveOnly(t, s, writes)
	before, err := s.View().Node(names[0])
	must(t, err)

	if before.Status != inventory.Unallocated || before.Job != "" || before.Group != "" {
		t.Fatalf("%+v", before)
	}

	// An observation keeps the reservation, because the claim may still commit.
	m, e, _ := before.Observe(inventory.Observation{Observer: "gossip", Label: "n", Serial: "0000"}, noon)
	m.Labels, m.Alerts = map[string]string{"rack": "r1"}, []inventory.Alert{{ID: "a1"}}
	_, err = s.PutNodes(ctx, []state.NodeWrite{{Node: m, Entries: []inventory.HistoryEntry{*e}}})
	must(t, err)

	got, _ := s.View().Node(names[0])
	if got.State != inventory.Disappeared || got.Status != inventory.Unallocated || got.Job != "" {
		t.Errorf("%+v", got)
	}

	if raw := s.view.reserved[names[0]]; raw.Status != inventory.Provisioning || raw.Job != first.ID ||
		raw.State != inventory.Disappeared ||
		raw.Labels["rack"] != "r1" || len(raw.Alerts) != 1 {
		t.Errorf("the reservation is lost: %+v", raw)
	}

	// So does a write in a transaction on records.
	_, _, err = record.Decide(ctx, s, func(tx *record.Tx) (none struct{}, err error) {
		n, err := state.ViewOf(tx).Node(names[0])
		m, entry, _ := n.EndAlert("a1", inventory.Trigger{Actor: "ann", Time: noon})
		tx.Attach(state.NodeWrite{Node: m, Entries: []inventory.HistoryEntry{entry}})

		return none, err
	})
	must(t, err)

	if raw := s.view.reserved[names[0]]; raw.Job != first.ID || len(raw.Alerts) != 0 {
		t.Errorf("the reservation is lost: %+v", raw)
	}

	changeAddr(t, s, names[0])

	// The job is cancelled before it begins, and another one claims the nodes.
	first.Status, first.Ended = job.Cancelled, noon
	_, err = s.Finish(ctx, first, nil)
	must(t, err)
	second := accepted(t, s, names)
	v := s.View()
	running, writes := held(t, v, second)
	_, err = s.Claim(ctx, state.Claim{Job: running, Writes: writes, Revision: v.Revision})
	must(t, err)

	for _, n := range s.View().Nodes() {
		if n.Job != second.ID || n.Status != inventory.Provisioning || n.PrevStatus != inventory.Unallocated ||
			n.Before.Status != inventory.Unallocated {
			t.Errorf("%+v", n)
		}
	}

	h, err := s.History(ctx, names[1], 10)
	if err != nil || len(h) != 2 || h[1].Job != second.ID {
		t.Errorf("%+v, %v", h, err)
	}

	// The history omits the abandoned claim even without the record of its job.
	dropJobs(t, s, first.ID)

	if h, err := s.History(ctx, names[1], 10); err != nil || len(h) != 2 || h[1].Job != second.ID {
		t.Errorf("%+v, %v", h, err)
	}

	// A restart reads the same.
	for _, n := range open(t, s.client).View().Nodes() {
		if n.Job != second.ID {
			t.Errorf("%+v", n)
		}
	}
}

// TestReservedAgain checks that the history shows one claim of a job that succeeded at
// its second attempt.
func TestReservedAgain(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := within(t, patience)
	names := seen(t, s, 1)
	j := accepted(t, s, names)
	_, writes := held(t, s.View(), j)
	reserveOnly(t, s, writes)
	v := s.View()
	running, writes := held(t, v, j)
	_, err := s.Claim(ctx, state.Claim{Job: running, Writes: writes, Revision: v.Revision})
	must(t, err)

	h, err := s.History(ctx, names[0], 10)
	if err != nil || len(h) != 2 || h[0].To != inventory.Unallocated || h[1].To != inventory.Provisioning ||
		h[1].Seq != writes[0].Entries[0].Seq {
		t.Errorf("%+v, %v", h, err)
	}
}

// TestMonitorDuringAJob checks that a claimed node keeps observations, also beyond the
// end of the job.
func TestMonitorDuringAJob(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := within(t, patience)
	names := seen(t, s, 1)
	v := s.View()
	running, writes := held(t, v, accepted(t, s, names))
	j, err := s.Claim(ctx, state.Claim{Job: running, Writes: writes, Revision: s.View().Revision})
	must(t, err)
	ending, stale := released(t, s.View(), j)
	changeAddr(t, s, names[0])

	if n, _ := s.View().
		Node(names[0]); n.Status != inventory.Provisioning || n.Addr != "10.9.9.9" || n.Job != j.ID ||
		n.Before == nil {
		t.Errorf("%+v", n)
	}

	_, err = s.Finish(ctx, ending, stale)
	conflict(t, err)
	ending, fresh := released(t, s.View(), j)
	_, err = s.Finish(ctx, ending, fresh)
	must(t, err)

	if n, _ := s.View().
		Node(names[0]); n.Status != inventory.Allocated || n.Addr != "10.9.9.9" || n.Job != "" ||
		n.Before != nil {
		t.Errorf("%+v", n)
	}
}

// TestFinishAgain repeats the end of a job after a partial failure.
func TestFinishAgain(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := within(t, patience)
	names := seen(t, s, 150)
	v := s.View()
	running, writes := held(t, v, accepted(t, s, names))
	j, err := s.Claim(ctx, state.Claim{Job: running, Writes: writes, Revision: s.View().Revision})
	must(t, err)
	ending, writes := released(t, s.View(), j)
	changeAddr(t, s, names[149]) // the last chunk conflicts
	_, err = s.Finish(ctx, ending, writes)
	conflict(t, err)

	if got := statuses(s.View()); got[inventory.Allocated] == 0 || got[inventory.Provisioning] == 0 {
		t.Fatalf("the end was not written in part: %v", got)
	}

	if got, _ := s.View().Job(j.ID); got.Status != job.Running {
		t.Errorf("%+v", got)
	}

	ending, writes = released(t, s.View(), j)
	_, err = s.Finish(ctx, ending, writes)
	must(t, err)

	if got, _ := s.View().
		Job(j.ID); got.Status != job.Complete ||
		statuses(s.View())[inventory.Allocated] != 150 {
		t.Errorf("%+v", got)
	}

	for _, name := range names {
		if h, err := s.History(ctx, name, 10); err != nil || len(h) != 3 {
			t.Fatalf("history of %s: %+v, %v", name, h, err)
		}
	}
}

// TestViewNeverGoesBack reads and writes in parallel: revisions only grow, and each
// writer reads its own writes.
func TestViewNeverGoesBack(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := within(t, patience)
	names := seen(t, s, 4)
	var writers, readers sync.WaitGroup

	done := make(chan struct{})
	for range 2 {
		readers.Go(func() {
			last := int64(0)
			for {
				changed := s.Changed()

				v := s.View()
				if v.Revision < last {
					t.Errorf("revision %d after %d", v.Revision, last)
				}
				last = v.Revision
				for _, n := range v.Nodes() {
					_ = n.Seen["gossip"]
				}

				select {
				case <-changed:
				case <-done:
					return
				}
			}
		})
	}

	for _, name := range names {
		writers.Go(func() {
			for i := range 20 {
				n, err := s.View().Node(name)
				if err != nil {
					t.Error(err)
					return
				}

				n = n.Clone()
				n.Addr = fmt.Sprintf("10.0.0.%d", i+1)

				n.Seen["gossip"] = i%2 == 0
				if conflicts, err := s.PutNodes(
					ctx,
					[]state.NodeWrite{{Node: n}},
				); err != nil ||
					len(conflicts) > 0 {
					t.Error(conflicts, err)
					return
				}

				if got, _ := s.View().Node(name); got.Addr != n.Addr {
					t.Errorf("a write returned before the view shows it: %s, not %s", got.Addr, n.Addr)
				}
			}
		})
	}

	writers.Wait()
	close(done)
	readers.Wait()
}

func TestForget(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := within(t, patience)
	names := seen(t, s, 60)
	_, err := putVars(ctx, s, s.View(), state.ScopeNode(names[0]), configuration.Vars{"a": "b"}, variable.Change{})
	must(t, err)
	setConnection(t, s, names[0], configuration.Connection{User: "u"})
	forgets := func(count int) (writes []state.NodeWrite) {
		for _, n := range s.View().Nodes()[:count] {
			writes = append(
				writes,
				state.NodeWrite{
					Node:      *n,
					Tombstone: &inventory.Tombstone{Name: n.Name, Time: noon, HostKeys: []string{"k"}},
				},
			)
		}

		return writes
	}
	decided, uses := s.View().Revision, []string{"masters"}
	writes := forgets(2)
	changeAddr(t, s, names[1])
	_, err = s.Forget(ctx, decided, uses, writes, nil)
	conflict(t, err)

	if len(s.View().Nodes()) != 60 || len(record.List(s.View(), &state.Tombstones)) != 0 {
		t.Error("a refused request forgot nodes")
	}

	must(t, changeGenerations(t, s, "masters"))
	_, err = s.Forget(ctx, decided, uses, forgets(1), nil)
	conflict(t, err)

	// Other groups do not matter.
	decided = s.View().Revision
	must(t, changeGenerations(t, s, "workers"))
	rev, err := s.Forget(ctx, decided, uses, forgets(59), &access.Key{ID: "k", Request: "r"})
	must(t, err)

	if d, err := s.Result(ctx, "k"); err != nil || d == nil || d.Request != "r" || d.Revision != rev {
		t.Errorf("%+v, %v", d, err)
	}

	v := s.View()
	if len(v.Nodes()) != 1 || len(record.List(v, &state.Tombstones)) != 59 ||
		record.Get(v, &state.Tombstones, names[0]).HostKeys[0] != "k" ||
		state.VarsOf(v, state.ScopeNode(names[0])) != nil ||
		v.Connection(names[0]) != nil {
		t.Errorf("%d nodes, %d tombstones", len(v.Nodes()), len(record.List(v, &state.Tombstones)))
	}

	if h, err := s.History(ctx, names[0], 10); err != nil || len(h) != 0 {
		t.Errorf("%v, %v", h, err)
	}
}

// TestForgetAtTheEndOfAJob forgets a node with the end of its job.
func TestForgetAtTheEndOfAJob(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := within(t, patience)
	names := seen(t, s, 2)
	running, writes := held(t, s.View(), accepted(t, s, names))
	j, err := s.Claim(ctx, state.Claim{Job: running, Writes: writes, Revision: s.View().Revision})
	must(t, err)
	ending, writes := released(t, s.View(), j)
	n, _ := s.View().Node(names[0])
	writes[0] = state.NodeWrite{Node: n, Tombstone: &inventory.Tombstone{Name: n.Name, Time: noon}}
	_, err = s.Finish(ctx, ending, writes)
	must(t, err)

	v := s.View()
	if len(v.Nodes()) != 1 || v.Nodes()[0].Name != names[1] || len(record.List(v, &state.Tombstones)) != 1 {
		t.Errorf("%+v", v.Nodes())
	}
}

func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := within(t, patience)
	name := seen(t, s, 1)[0]

	seq := uint64(1)
	for seq < inventory.HistoryLimit+20 {
		n, err := s.View().Node(name)
		must(t, err)

		var entries []inventory.HistoryEntry
		for range 40 {
			seq++
			entries = append(entries, inventory.HistoryEntry{Seq: seq, To: inventory.Unallocated})
		}

		n.Entries = seq
		if conflicts, err := s.PutNodes(
			ctx,
			[]state.NodeWrite{{Node: n, Entries: entries}},
		); err != nil ||
			len(conflicts) > 0 {
			t.Fatal(conflicts, err)
		}
	}

	all, err := s.History(ctx, name, 5000)
	if err != nil || len(all) != inventory.HistoryLimit || all[len(all)-1].Seq != seq ||
		all[0].Seq != seq-inventory.HistoryLimit+1 {
		t.Errorf("%d entries, %v", len(all), err)
	}

	some, err := s.History(ctx, name, 3)
	if err != nil || len(some) != 3 || some[0].Seq != seq-2 || some[2].Seq != seq {
		t.Errorf("%+v, %v", some, err)
	}
}

// TestBadRecord checks that a damaged record does not hide the others.
func TestBadRecord(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := within(t, patience)
	names := seen(t, s, 2)
	resp, err := s.client.Put(ctx, s.nodeKey("broken-1"), "{nonsense")
	must(t, err)
	must(t, s.Wait(ctx, resp.Header.Revision))

	if got := len(s.View().Nodes()); got != 2 {
		t.Errorf("%d nodes", got)
	}

	if got := len(open(t, s.client).View().Nodes()); got != 2 {
		t.Errorf("%d nodes after a restart", got)
	}

	changeAddr(t, s, names[0])
}

// damage replaces a record below the prefix by one that cannot be read.
func damage(t *testing.T, s *Store, key string) {
	t.Helper()
	resp, err := s.client.Put(within(t, patience), s.key("/%s", key), "{nonsense")
	must(t, err)
	must(t, s.Wait(within(t, patience), resp.Header.Revision))
}

// removeUnreadable removes a record and waits for the view.
func removeUnreadable(t *testing.T, s *Store, key string) {
	t.Helper()
	must(t, RemoveUnreadable(within(t, patience), s.client, testKinds, key))
	must(t, s.Sync(within(t, patience)))
}

// TestUnreadableJob damages the record of a running job. The job holds its nodes until
// the record is removed, also after a restart; then they are Quarantined.
func TestUnreadableJob(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := within(t, patience)

	const count = 150 // more than one transaction

	names := seen(t, s, count)
	running, writes := held(t, s.View(), accepted(t, s, names[1:]))
	_, err := s.Claim(ctx, state.Claim{Job: running, Writes: writes, Revision: s.View().Revision})
	must(t, err)

	key := "v/jobs/" + running.ID
	damage(t, s, key)

	for when, v := range map[string]*state.View{"at once": s.View(), "after a restart": open(t, s.client).View()} {
		if got := statuses(v)[inventory.Provisioning]; got != count-1 {
			t.Errorf("%s, %d nodes are held, want %d", when, got, count-1)
		}

		if v.Damaged(&job.Kind, running.ID) == nil || v.UnreadableFiles() == nil {
			t.Errorf("%s, the record is not reported", when)
		}
	}

	if h, err := s.History(ctx, names[1], 10); err != nil || len(h) != 2 {
		t.Errorf("%+v, %v", h, err)
	}

	removeUnreadable(t, s, key)

	if got := statuses(s.View()); got[inventory.Quarantined] != count-1 || got[inventory.Unallocated] != 1 {
		t.Errorf("after the removal, the nodes are %v", got)
	}

	n, err := s.View().Node(names[1])
	must(t, err)

	if n.Job != "" || n.Before != nil || n.Group != inventory.GroupMaster || !strings.Contains(n.LastError, "unknown") {
		t.Errorf("%+v", n)
	}

	if h, err := s.History(ctx, names[1], 10); err != nil || len(h) != 3 || h[2].To != inventory.Quarantined {
		t.Errorf("%+v, %v", h, err)
	}

	for _, key := range []string{s.inputsKey(running.ID), s.jobKey(running.ID)} {
		if resp, err := s.client.Get(ctx, key); err != nil || len(resp.Kvs) > 0 {
			t.Errorf("%s is left: %v, %v", key, resp, err)
		}
	}
}

// TestUnreadableNode removes the record of a node. Its host comes back Quarantined, with
// the groups of its history as residue, and begins a new history.
func TestUnreadableNode(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := within(t, patience)
	name := seen(t, s, 1)[0]
	label, serial := s.View().Nodes()[0].Label, s.View().Nodes()[0].Serial

	running, writes := held(t, s.View(), accepted(t, s, []string{name}))
	j, err := s.Claim(ctx, state.Claim{Job: running, Writes: writes, Revision: s.View().Revision})
	must(t, err)

	ended, writes := released(t, s.View(), j)
	_, err = s.Finish(ctx, ended, writes)
	must(t, err)

	damage(t, s, "v/nodes/"+name)
	removeUnreadable(t, s, "v/nodes/"+name)

	tomb := record.Get(s.View(), &state.Tombstones, name)
	if tomb == nil || tomb.Reason != "unreadable record removed" ||
		!slices.Equal(tomb.Residue, []string{running.Group}) {
		t.Fatalf("%+v", tomb)
	}

	if h, err := s.History(ctx, name, 10); err != nil || len(h) > 0 {
		t.Errorf("%+v, %v", h, err)
	}

	// A tombstone that cannot be read is replaced by another one.
	damage(t, s, "v/tombstones/"+name)
	removeUnreadable(t, s, "v/tombstones/"+name)

	if tomb = record.Get(s.View(), &state.Tombstones, name); tomb == nil || s.View().UnreadableNode(name) != nil {
		t.Errorf("%+v, %v", tomb, s.View().Unreadable)
	}

	o := inventory.Observation{Observer: "gossip", Label: label, Serial: serial, Addr: "10.0.0.1", Alive: true}
	if n, _ := inventory.NewNode(o, tomb, noon); n.Status != inventory.Quarantined {
		t.Errorf("%+v", n)
	}
}

func TestWaitGivesUp(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	if err := s.Wait(
		ctx,
		s.View().Revision+1000,
	); inventory.KindOf(err) != inventory.KindUnavailable ||
		!errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestBehind checks that Sync waits for a view that lags, and that a probe does not
// confirm it.
func TestBehind(t *testing.T) {
	t.Parallel()
	s := store(t)
	late := &Store{client: s.client}
	late.view.init(s.client, testKinds, silent(), StaleAfter)
	revision, err := late.view.load(t.Context())
	must(t, err)

	confirmed := func() bool {
		late.view.mu.Lock()
		late.view.confirmed = time.Time{}
		late.view.mu.Unlock()
		late.view.probe(t.Context())
		return !late.View().Stale
	}
	if !confirmed() {
		t.Error("the view is stale although nothing was written")
	}

	_, err = putVars(t.Context(), s, s.View(), state.ScopeGlobal, configuration.Vars{"a": "b"}, variable.Change{})
	must(t, err)

	if err := late.Sync(within(t, 200*time.Millisecond)); inventory.KindOf(err) != inventory.KindUnavailable {
		t.Errorf("Sync did not wait: %v", err)
	}

	if confirmed() {
		t.Error("a probe confirmed a view that lags")
	}

	within, stop := context.WithCancel(t.Context())
	late.stop = stop

	late.done.Go(func() { late.view.watchLoop(within, revision) })
	defer late.Close()
	must(t, late.Sync(t.Context()))

	if !confirmed() || state.VarsOf(late.View(), state.ScopeGlobal)["a"] != "b" {
		t.Error("the view does not catch up")
	}
}

// TestSync checks that the view shows the writes of another store after a Sync, and that
// Sync does not wait for writes outside of the view.
func TestSync(t *testing.T) {
	t.Parallel()
	s := store(t)
	must(t, s.Sync(within(t, patience))) // nothing was ever written

	other := open(t, s.client)
	for i := range 200 {
		rev, err := putVars(
			t.Context(),
			other,
			other.View(),
			state.ScopeGlobal,
			configuration.Vars{"a": i},
			variable.Change{},
		)
		must(t, err)
		_, err = s.client.Put(t.Context(), s.client.Prefix+"/elsewhere", "")
		must(t, err)
		must(t, s.Sync(within(t, patience)))

		if v := s.View(); v.Revision < rev || fmt.Sprint(state.VarsOf(v, state.ScopeGlobal)["a"]) != fmt.Sprint(i) {
			t.Fatalf("Sync returned too early: %d, %v", v.Revision, state.VarsOf(v, state.ScopeGlobal))
		}
	}
}

// TestCompaction checks that a view reads all records again if the events it missed are
// compacted.
func TestCompaction(t *testing.T) {
	t.Parallel()
	server := own(t)
	s := open(t, dial(t, server, "/t"))
	ctx := within(t, patience)
	seen(t, s, 3)
	behind := s.View().Revision - 2 // the compaction removes the events after it
	other := open(t, s.client)
	n, _ := s.View().Node("n-0001")
	_, err := s.Forget(
		ctx,
		s.View().Revision, nil,
		[]state.NodeWrite{{Node: n, Tombstone: &inventory.Tombstone{Name: n.Name, Time: noon}}},
		nil,
	)
	must(t, err)
	_, err = s.client.Compact(ctx, s.View().Revision)
	must(t, err)
	other.Close()
	late := &Store{client: s.client}
	late.view.init(s.client, testKinds, silent(), StaleAfter)
	within, stop := context.WithCancel(ctx)
	late.stop = stop

	late.done.Go(func() { late.view.watchLoop(within, behind) })
	defer late.Close()
	must(t, late.Wait(ctx, s.View().Revision))

	if v := late.View(); len(v.Nodes()) != 2 || len(record.List(v, &state.Tombstones)) != 1 {
		t.Errorf("%+v", v)
	}

	changeAddr(t, s, "n-0000")
	must(t, late.Wait(ctx, s.View().Revision))
}

// own starts a server for one test.
func own(t *testing.T) *etcd.Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "cm")
	must(t, err)
	server, err := etcd.StartServer(within(t, patience), etcd.ServerOptions{Dir: dir, NoSync: true, Log: silent()})
	must(t, err)
	t.Cleanup(func() { server.Close(); os.RemoveAll(dir) })

	return server
}

// child starts a server in a child process and returns a function that signals it.
func child(t *testing.T) (*etcd.Server, func(sig string)) {
	t.Helper()
	dir, err := os.MkdirTemp("", "cm")
	must(t, err)
	pidfile := filepath.Join(dir, "pid")
	server, err := etcd.StartServer(
		within(t, patience),
		etcd.ServerOptions{Dir: filepath.Join(dir, "e"), Pause: 50 * time.Millisecond, Log: silent(),
			Command: []string{"/bin/sh", "-c", `echo $$ >"$0"; exec "$@"`, pidfile, os.Args[0], "etcd"}},
	)
	must(t, err)
	signal := func(sig string) {
		pid, err := os.ReadFile(pidfile)
		must(t, err)

		of := strings.TrimSpace(string(pid))
		if out, err := exec.Command("kill", "-"+sig, of).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}

		for ctx := within(t, patience); sig == "STOP" && !stopped(t, of); {
			if ctx.Err() != nil {
				t.Fatal("etcd does not stop")
			}
		}
	}
	t.Cleanup(func() { server.Close(); os.RemoveAll(dir) })

	return server, signal
}

// stopped reports whether no thread of the process runs any more: a signal returns before that, and a
// busy process answers one request more.
func stopped(t *testing.T, pid string) bool {
	t.Helper()

	threads, err := filepath.Glob("/proc/" + pid + "/task/*/stat")
	must(t, err)

	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		must(t, err)

		// The name of the command, in parentheses, may hold anything.
		if _, after, _ := strings.Cut(string(stat), ") "); !strings.HasPrefix(after, "T") {
			return false
		}
	}

	return len(threads) > 0
}

func awaitStale(t *testing.T, s *Store, stale bool) {
	t.Helper()

	ctx := within(t, patience)
	for {
		changed := s.Changed()
		if s.View().Stale == stale {
			return
		}

		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("the view did not become stale=%v", stale)
		}
	}
}

// TestStale suspends etcd: the view becomes stale and wakes its waiters, and a write
// fails in time. The view becomes current again without any write.
func TestStale(t *testing.T) {
	t.Parallel()
	server, signal := child(t)
	s := openStale(t, dial(t, server, "/t"))
	seen(t, s, 2)
	s.View()
	signal("STOP")
	awaitStale(t, s, true)

	if len(s.View().Nodes()) != 2 {
		t.Error("a stale view lost its nodes")
	}

	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()

	if _, err := putVars(short, s, s.View(),
		state.ScopeGlobal,
		configuration.Vars{"a": "b"},
		variable.Change{},
	); inventory.KindOf(
		err,
	) != inventory.KindUnavailable {
		t.Errorf("a write without etcd: %v", err)
	}

	if err := s.Sync(short); inventory.KindOf(err) != inventory.KindUnavailable {
		t.Errorf("Sync without etcd: %v", err)
	}

	signal("CONT")
	awaitStale(t, s, false)
	changeAddr(t, s, "n-0001")
}

// TestOutage suspends etcd during a write, and writes again while etcd is known to be
// away: both fail soon, with the reason, and so do the reads of records outside the
// view.
func TestOutage(t *testing.T) {
	t.Parallel()
	server, signal := child(t)
	s := openStale(t, dial(t, server, "/t"))
	seen(t, s, 1)

	write := func() error {
		_, err := putVars(
			within(t, patience),
			s,
			s.View(),
			state.ScopeGlobal,
			configuration.Vars{"a": "b"},
			variable.Change{},
		)

		return err
	}
	must(t, write())
	s.ExplainOutage(func(time.Time) error { return errors.New("its disk is gone") })
	signal("STOP")

	for name, request := range map[string]func() error{
		"a write": write,
		"a read":  func() error { return errorOf(s.Result(within(t, patience), "key")) },
		"a sync":  func() error { return s.Sync(within(t, patience)) },
	} {
		begun := time.Now()
		err := request()
		took := time.Since(begun)

		if inventory.KindOf(err) != inventory.KindUnavailable || !strings.Contains(err.Error(), "its disk is gone") {
			t.Errorf("%s: got %v, want the reason", name, err)
		}

		// The probes of this view are five times as frequent as usual.
		if took > 4*time.Second {
			t.Errorf("%s took %s", name, took)
		}
	}

	signal("CONT")
	awaitStale(t, s, false)
	// etcd carries out the write that it did not answer now, or later: that one conflicts with it.
	ctx, err := within(t, patience), write()
	for ; err != nil && ctx.Err() == nil; err = write() {
		_ = s.Sync(ctx)
	}

	must(t, err)
}

// TestStoreIsKilled checks that the view continues after a restart of etcd.
func TestStoreIsKilled(t *testing.T) {
	t.Parallel()
	server, signal := child(t)
	s := open(t, dial(t, server, "/t"))
	seen(t, s, 2)
	signal("KILL")

	ctx := within(t, patience)
	for s.Sync(ctx) != nil {
		if ctx.Err() != nil {
			t.Fatal("etcd does not come back")
		}
	}

	changeAddr(t, s, "n-0001")
	awaitStale(t, s, false)
}

// TestIdle checks that a probe confirms the view when there are no writes.
func TestIdle(t *testing.T) {
	t.Parallel()
	s := openStale(t, dial(t, own(t), "/t"))
	s.view.mu.Lock()
	s.view.confirmed = time.Time{} // long ago
	s.view.mu.Unlock()
	s.View()
	awaitStale(t, s, false)
}

// TestDropJob checks that no key of a dropped job is left. One key says that jobs are gone.
func TestDropJob(t *testing.T) {
	t.Parallel()
	s := store(t)

	ctx := within(t, patience)
	for range 3 {
		j := accepted(t, s, nil)
		for _, stream := range []job.Stream{job.StreamText, job.StreamEvents} {
			must(t, s.AppendLog(ctx, j.ID, stream, 0, []byte("line\n")))
			must(t, s.AppendLog(ctx, j.ID, stream, 5, []byte("line\n")))
		}
	}

	before, err := s.client.Get(ctx, s.client.Prefix+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	must(t, err)
	dropJobs(t, s, "1", "3")
	after, err := s.client.Get(ctx, s.client.Prefix+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	must(t, err)

	if before.Count-after.Count != 2*8-1 {
		t.Errorf("%d keys, then %d", before.Count, after.Count)
	}

	if v := s.View(); len(v.Jobs()) != 1 || v.Jobs()[0].ID != "2" || v.Newest() != 3 {
		t.Errorf("%+v", v.Jobs())
	}

	if size, err := s.LogSize(ctx, "2", job.StreamText); err != nil || size != 10 {
		t.Errorf("%d, %v", size, err)
	}

	if j := accepted(t, s, nil); j.ID != "4" {
		t.Errorf("a job got the number of a dropped one: %s", j.ID)
	}
}

// TestLargeJob checks that the record of a job with 10 000 nodes fits etcd's default
// limits and survives a round trip. It runs alone: it takes seconds of a processor under the race
// detector, and among all other tests longer than a request may.
func TestLargeJob(t *testing.T) {
	s := store(t)
	ctx := within(t, patience)
	names := make([]string, 10_000)

	results := map[string]job.HostResult{}
	for i := range names {
		names[i] = fmt.Sprintf("rack-%d-host-%04d", i/40, i)
		results[names[i]] = job.HostResult{
			Begun:   true,
			Failed:  1,
			Task:    "install the packages",
			Message: strings.Repeat(fmt.Sprintf("no package %d ", i), 15),
		}
	}

	j := accepted(t, s, names)
	j.Runs = []job.Run{
		{Phase: job.PhaseConfigure, Hosts: names, Results: results, Started: noon},
		{Phase: job.PhaseUndo, Hosts: names, Results: results, Started: noon},
	}
	j, err := putJob(ctx, s, j)
	must(t, err)

	for what, v := range map[string]*state.View{
		"the view": s.View(), "a store that is opened later": open(t, s.client).View(),
	} {
		if got, err := v.Job(j.ID); err != nil || !reflect.DeepEqual(got, j) {
			t.Errorf("%s has a different job: %v", what, err)
		}
	}

	stored, err := s.client.Get(ctx, s.jobKey(j.ID))
	must(t, err)

	if size := len(stored.Kvs[0].Value); size > 1<<20 {
		t.Errorf("the record has %d bytes", size)
	}
}

// TestPackBytes checks the limit of bytes per transaction.
func TestPackBytes(t *testing.T) {
	t.Parallel()

	var parts []etcd.Ops
	for range 50 {
		parts = append(parts, etcd.Ops{Then: []clientv3.Op{clientv3.OpPut("/key", strings.Repeat("x", 100<<10))}})
	}

	count := 0
	for _, ops := range pack(parts, 2) {
		if ops.Bytes() > etcd.MaxBytes || len(ops.Then) == 0 {
			t.Errorf("%d operations of %d bytes", len(ops.Then), ops.Bytes())
		}

		count += len(ops.Then)
	}

	if count != len(parts) {
		t.Errorf("%d operations in all chunks", count)
	}

	one := []etcd.Ops{{Then: []clientv3.Op{clientv3.OpPut("/key", strings.Repeat("x", 2<<20))}}}
	if got := pack(one, 2); len(got) != 1 || len(got[0].Then) != 1 {
		t.Error("a part beyond the limit must get a chunk of its own, for etcd to refuse")
	}
}

// TestIdentity: the identity of a store is made once, also by two daemons at a time.
func TestIdentity(t *testing.T) {
	t.Parallel()
	s := store(t)
	other := open(t, s.client)

	ids := make([]string, 8)

	var all sync.WaitGroup
	for i := range ids {
		all.Go(func() {
			id, err := []*Store{s, other}[i%2].Identity(within(t, patience), "")
			if err != nil {
				t.Error(err)
			}
			ids[i] = id
		})
	}

	all.Wait()

	if slices.Sort(ids); len(ids[0]) != 16 || ids[0] != ids[len(ids)-1] {
		t.Errorf("the store has the identities %q", ids)
	}
}

// TestEpochOfFormerIdentity: a store in the place of a lost one begins a life, a new manager does not; and neither
// does a later call.
func TestEpochOfFormerIdentity(t *testing.T) {
	t.Parallel()

	fresh := store(t)
	if _, err := fresh.Identity(within(t, patience), ""); err != nil || state.EpochOf(fresh.View()) != 0 {
		t.Errorf("epoch %d, %v", state.EpochOf(fresh.View()), err)
	}

	s, began := store(t), time.Now().Unix()

	for range 2 {
		id, err := s.Identity(within(t, patience), "00112233445566ff")
		if err != nil || id != "00112233445566ff" {
			t.Fatalf("%q, %v", id, err)
		}
	}

	epoch := state.EpochOf(s.View())
	if epoch < began || epoch > time.Now().Unix() {
		t.Errorf("the epoch is %d, want the time, %d", epoch, began)
	}
}
