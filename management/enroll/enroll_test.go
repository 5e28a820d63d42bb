// SPDX-License-Identifier: Apache-2.0

package enroll

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/record/recordtest"
	"github.com/contiv/cluster/management/state"
)

// world is a store in memory, with nodes and their history.
type world struct {
	*recordtest.Store

	t    *testing.T
	jobs *jobs

	mu      sync.Mutex
	nodes   map[string]inventory.Node
	history map[string][]inventory.HistoryEntry
}

func newWorld(t *testing.T, nodes ...inventory.Node) *world {
	t.Helper()

	w := &world{
		t:       t,
		jobs:    &jobs{},
		nodes:   map[string]inventory.Node{},
		history: map[string][]inventory.HistoryEntry{},
	}
	for _, n := range nodes {
		w.nodes[n.Name] = n
	}

	w.Store = recordtest.NewStore(
		&Kind, &state.Machines, &state.Connections, &state.Variables, &state.Facts, &state.Agents, &job.Kind,
	)
	w.jobs.store = w.Store
	w.Base = func(records record.View, revision int64) record.Reader {
		w.mu.Lock()
		defer w.mu.Unlock()

		v := &state.View{Snapshot: job.Snapshot{View: records}, Revision: revision}
		for _, n := range w.nodes {
			v.PutNode(&n)
		}

		return v
	}
	w.Attached = func(part any) {
		w.mu.Lock()
		defer w.mu.Unlock()

		write, ok := part.(state.NodeWrite)
		if !ok {
			t.Errorf("attached %T", part)
		}

		w.nodes[write.Node.Name] = write.Node
		w.history[write.Node.Name] = append(w.history[write.Node.Name], write.Entries...)
	}

	return w
}

func (w *world) View() *state.View {
	r, _ := w.Latest()

	v, ok := r.(*state.View)
	if !ok {
		w.t.Fatalf("the store reads %T", r)
	}

	return v
}

func (w *world) History(_ context.Context, name string, _ int) ([]inventory.HistoryEntry, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.history[name], nil
}

func (w *world) Wait(context.Context, int64) error { return nil }

func (w *world) Forget(
	_ context.Context, _ int64, _ []string, writes []state.NodeWrite, _ *access.Key,
) (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	for _, write := range writes {
		delete(w.nodes, write.Node.Name)
	}

	return 1, nil
}

type noAudit struct{}

func (noAudit) Record(context.Context, access.Record) {}

func (w *world) service() *Service {
	log := logrus.New()
	log.SetOutput(io.Discard)

	return New(Options{State: w, Store: w, Jobs: w.jobs, Audit: noAudit{}, Logger: log})
}

// run runs the loop of a service until the end of the test.
func (w *world) run() *Service {
	s := w.service()
	s.Start(w.t.Context())
	w.t.Cleanup(s.Stop)

	return s
}

func (w *world) request(s *Service, r api.Import) (api.Imported, error) {
	return s.Import(w.t.Context(), access.Caller{Principal: "anna"}, nil, r)
}

// imported imports a list and returns a line for each machine.
func (w *world) imported(s *Service, r api.Import) string {
	w.t.Helper()

	done, err := w.request(s, r)
	if err != nil {
		w.t.Fatal(err)
	}

	var lines []string

	for _, m := range done.Machines {
		line := fmt.Sprintf("%s %s", m.Node, m.Action)
		if m.Reason != "" {
			line += ": " + m.Reason
		}

		if len(m.Changes) > 0 {
			line += ": " + inWords(m.Changes)
		}

		lines = append(lines, line)
	}

	return strings.Join(lines, "\n")
}

func (w *world) expect(s *Service, r api.Import, want string) {
	w.t.Helper()

	if got := w.imported(s, r); got != want {
		w.t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

const one = `[{"name":"r1","pm_type":"ipmi","pm_addr":"10.9.0.5","pm_user":"root","ports":["52:54:00:AA:00:01"],` +
	`"memory":8192}]`

func TestAgainAndChanged(t *testing.T) {
	t.Parallel()

	w := newWorld(t)
	s := w.run()

	w.expect(s, api.Import{File: one, DryRun: true}, "r1 created")

	if len(w.View().Nodes()) != 0 {
		t.Error("a preview has created nodes")
	}

	w.expect(s, api.Import{File: one}, "r1 created")
	w.expect(s, api.Import{File: one}, "r1 same")

	changed := strings.NewReplacer("8192", "16384", "AA", "aa", `"name":"r1",`, "").Replace(one)
	w.expect(s, api.Import{File: changed}, "r1 changed: memory_mb 8192 → 16384")
	w.expect(s, api.Import{File: changed}, "r1 same")

	n, _ := w.View().Lookup("r1")
	if n.Status != inventory.Enrolled || n.State != inventory.Unknown || len(w.history["r1"]) != 2 {
		t.Errorf("got %+v with the history %+v", n, w.history["r1"])
	}

	for _, e := range w.history["r1"] {
		if e.Verb != inventory.VerbRegister || e.Actor != "anna" {
			t.Errorf("history %+v", e)
		}
	}
}

func TestIdentity(t *testing.T) {
	t.Parallel()

	w := newWorld(t)
	s := w.run()
	w.expect(s, api.Import{File: `[
{"name":"a","pm_type":"ipmi","pm_addr":"10.0.0.1","mac":["52:54:00:00:00:01"],"addr":"10.1.0.1"},
{"name":"b","pm_type":"ipmi","pm_addr":"10.0.0.2","uuid":"4C4C4544-0000-1000-8000-000000000002"},
{"name":"p1","pm_type":"ipmi","pm_addr":"10.0.0.3","pm_port":6230},
{"name":"p2","pm_type":"ipmi","pm_addr":"10.0.0.3","pm_port":6231}]`}, "a created\nb created\np1 created\np2 created")

	// Any evidence finds the machine, whatever the list calls it.
	for _, e := range []string{
		`{"name":"x","addr":"10.1.0.1"}`,
		`{"pm_type":"ipmi","pm_addr":"10.0.0.1","pm_port":623}`,
		`{"name":"a","pm_type":"ipmi","pm_addr":"10.0.0.1"}`,
	} {
		w.expect(s, api.Import{File: "[" + e + "]"}, "a same")
	}

	w.expect(s, api.Import{
		File: `[{"name":"z","uuid":"4c4c4544-0000-1000-8000-000000000002","pm_type":"ipmi","pm_addr":"10.0.0.9"}]`,
	}, "b changed: bmc.address 10.0.0.2 → 10.0.0.9")

	// Vendors give many machines the same UUID.
	const madeUp = `"uuid":"03000200-0400-0500-0006-000700080009"`

	w.expect(s, api.Import{File: `[{"name":"m1","addr":"10.3.0.1",` + madeUp + `},{"name":"m2","addr":"10.3.0.2",` +
		madeUp + `}]`}, "m1 created\nm2 created")

	before := len(w.View().Nodes())

	for list, says := range map[string]string{
		`[{"pm_type":"ipmi","pm_addr":"10.0.0.9","mac":["52:54:00:00:00:01"]},
		{"name":"ok","addr":"10.2.0.1"}]`: "b by its bmc",
		`[{"name":"a","pm_type":"ipmi","pm_addr":"10.0.0.77"}]`: "another BMC",
		`[{"name":"n","pm_type":"ipmi","pm_addr":"10.0.0.88","mac":["52:54:00:00:00:09"],"addr":"10.1.0.1"}]`: "it " +
			"seems to be another machine than a: it has the same address 10.1.0.1, but another BMC, MAC (-10)",
		`[{"addr":"10.1.0.1"},{"pm_type":"ipmi","pm_addr":"10.0.0.1"}]`: "as is entry 1",
	} {
		_, err := w.request(s, api.Import{File: list})
		if inventory.KindOf(err) != inventory.KindInvalid || !strings.Contains(fmt.Sprint(err), says) {
			t.Errorf("%s: %v, want %q", list, err, says)
		}
	}

	if after := len(w.View().Nodes()); after != before {
		t.Errorf("a refused import has changed the number of nodes from %d to %d", before, after)
	}
}

func nodeOf(name string, status inventory.Status, state inventory.State) inventory.Node {
	return inventory.Node{
		Name:   name,
		Label:  strings.TrimSuffix(name, "-1"),
		Serial: "1",
		Addr:   name + ".example",
		Status: status,
		State:  state,
	}
}

func TestServiceIsNeverTouched(t *testing.T) {
	t.Parallel()

	held := nodeOf("held-1", inventory.Provisioning, inventory.Discovered)
	held.Job = "7"

	w := newWorld(t, nodeOf("serves-1", inventory.Allocated, inventory.Discovered), held,
		nodeOf("free-1", inventory.Unallocated, inventory.Discovered))
	s := w.run()

	w.expect(s, api.Import{File: `[{"addr":"serves-1.example","name":"serves-1","labels":{"rack":"r1"}},
{"name":"held-1","addr":"held-1.example","labels":{"rack":"r1"}},{"name":"free-1","addr":"free-1.example"},
{"name":"new","addr":"10.0.0.1"}]`},
		"serves-1 skipped: it is Allocated: in service\nheld-1 skipped: it is Provisioning: job 7 holds it\n"+
			"free-1 changed\nnew created")

	for _, name := range []string{"serves-1", "held-1"} {
		if len(w.history[name]) > 0 || len(w.nodes[name].Labels) > 0 {
			t.Errorf("%s was touched", name)
		}
	}
}

func TestPrune(t *testing.T) {
	t.Parallel()

	w := newWorld(t, nodeOf("found-1", inventory.Unallocated, inventory.Discovered))
	s := w.run()
	w.imported(s, api.Import{File: `[{"name":"gone","addr":"10.0.0.1"},{"name":"serves","addr":"10.0.0.2"},
{"name":"stays","addr":"10.0.0.3"}]`})

	n := w.nodes["serves"]
	n.Status = inventory.Allocated
	w.nodes["serves"] = n

	const want = "stays same\nfound-1 kept: it was not imported\ngone removed\nserves kept: it is Allocated: in service"

	r := api.Import{File: `[{"name":"stays","addr":"10.0.0.3"}]`, Prune: true}
	preview := r
	preview.DryRun = true

	w.expect(s, preview, want)

	if _, there := w.nodes["gone"]; !there {
		t.Error("a preview has removed a node")
	}

	w.expect(s, r, want)

	var left []string
	for name := range w.nodes {
		left = append(left, name)
	}

	slices.Sort(left)

	if got := strings.Join(left, " "); got != "found-1 serves stays" {
		t.Errorf("left are %s", got)
	}
}

func many(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "ipmi,10.9.%d.%d,root,,52:54:00:00:%02x:%02x\n", i>>8, i&255, i>>8, i&255)
	}

	return b.String()
}

// TestCrash stops the leader after each number of commits; the next one goes on. Each node is registered once.
func TestCrash(t *testing.T) {
	t.Parallel()

	const nodes = 100

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
			_, err := first.Import(ctx, access.Caller{Principal: "anna"}, nil, api.Import{File: many(nodes)})
			result <- err
		}()

		<-crashed
		first.Stop()
		cancel()

		if err := <-result; err == nil {
			t.Errorf("crash after %d commits: the request has succeeded", crash)
		}

		w.Before = nil
		w.run()

		for len(pending(w)) > 0 {
			changed := w.Changed()
			if len(pending(w)) == 0 {
				break
			}

			select {
			case <-changed:
			case <-time.After(time.Minute):
				t.Fatal("the import does not end")
			}
		}

		for name, entries := range w.history {
			if len(entries) != 1 {
				t.Errorf("crash after %d commits: %s has %d entries", crash, name, len(entries))
			}
		}

		if len(w.nodes) != nodes {
			t.Errorf("crash after %d commits: %d nodes, want %d", crash, len(w.nodes), nodes)
		}
	}
}

func pending(w *world) []*Import {
	return slices.DeleteFunc(slices.Clone(record.List(w.View(), &Kind)), func(i *Import) bool {
		return !i.Ended.IsZero()
	})
}

// TestTwoAtOnce: of two imports of one list, one creates the machines, and the other one finds them.
func TestTwoAtOnce(t *testing.T) {
	t.Parallel()

	w := newWorld(t)
	s := w.run()

	var (
		all    sync.WaitGroup
		mu     sync.Mutex
		counts = map[api.ImportAction]int{}
	)

	for range 4 {
		all.Go(func() {
			done, err := w.request(s, api.Import{File: many(60)})
			if err != nil {
				t.Error(err)
			}

			mu.Lock()
			defer mu.Unlock()

			for _, m := range done.Machines {
				counts[m.Action]++
			}
		})
	}

	all.Wait()

	if counts[api.ImportCreated] != 60 || counts[api.ImportSame] != 180 || len(counts) != 2 || len(w.nodes) != 60 {
		t.Errorf("got %v and %d nodes", counts, len(w.nodes))
	}
}

// TestLabelsAreBounded: no list and no request gives a node more labels than it may have.
func TestLabelsAreBounded(t *testing.T) {
	t.Parallel()

	w := newWorld(t)
	s := w.run()

	labels := make([]string, inventory.MaxLabels+1)
	for i := range labels {
		labels[i] = fmt.Sprintf("\"l%d\":\"x\"", i)
	}

	list := func(labels []string) string {
		return `[{"name":"r1","addr":"10.0.0.1","labels":{` + strings.Join(labels, ",") + `}}]`
	}

	_, err := w.request(s, api.Import{File: list(labels)})
	if inventory.KindOf(err) != inventory.KindInvalid || !strings.Contains(err.Error(), "labels: it would have") {
		t.Errorf("got %v", err)
	}

	w.expect(s, api.Import{File: list(labels[1:])}, "r1 created")
	w.become("r1", inventory.Manageable)

	_, err = w.request(s, api.Import{File: list(labels[:1])})
	if inventory.KindOf(err) != inventory.KindInvalid {
		t.Errorf("one more: %v", err)
	}

	_, err = w.configure(s, api.Configure{Nodes: []string{"r1"}, Labels: map[string]string{"l0": "x"}})
	if inventory.KindOf(err) != inventory.KindRefused || !strings.Contains(err.Error(), "labels, the limit is") {
		t.Errorf("one more by configure: %v", err)
	}
}

// TestExport leaves out what was only configured: nobody has listed it.
func TestExport(t *testing.T) {
	t.Parallel()

	w := newWorld(t, nodeOf("web-1", inventory.Manageable, inventory.Discovered))
	s := w.run()
	w.expect(s, api.Import{File: one}, "r1 created")

	if _, err := w.configure(s, api.Configure{Nodes: []string{"web-1"}, BootMode: "uefi"}); err != nil {
		t.Fatal(err)
	}

	all, _ := Export(w.View())["nodes"].([]map[string]any)
	if len(all) != 1 || all[0]["name"] != "r1" {
		t.Errorf("got %v", all)
	}
}

// TestReplacedLogin: a list that is older than the login of a BMC brings back neither the password nor its user.
func TestReplacedLogin(t *testing.T) {
	t.Parallel()

	c := current{machine: state.Machine{
		Machine: machine.Machine{
			Node: "r1",
			BMC:  &machine.BMC{Driver: machine.IPMI, Address: "127.0.0.1", User: "ops"},
		},
		Secrets: configuration.Vars{
			state.SecretBMC: configuration.NewSecret("new"), state.SecretBMCFormer: configuration.NewSecret("listed"),
		},
	}}

	for password, want := range map[string]string{"listed": "ops new", "third": "root third", "": "root new"} {
		m := c.merged(Registration{
			Machine: machine.Machine{
				Node: "r1", BMC: &machine.BMC{Driver: machine.IPMI, Address: "127.0.0.1", User: "root"},
			},
			password: password,
		})

		is, err := m.Password()
		if got := m.BMC.User + " " + is; err != nil || got != want {
			t.Errorf("a list with the password %q: %s, %v; want %s", password, got, err, want)
		}
	}
}
