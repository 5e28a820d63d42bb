// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/record/recordtest"
	"github.com/contiv/cluster/management/state"
)

// memory is a store of nodes in memory, and the view on it.
type memory struct {
	fixed
	node.Store
	other *recordtest.Store // of records that are no nodes

	mu      sync.Mutex
	nodes   map[string]*inventory.Node
	history []inventory.HistoryEntry
	records []access.Record
}

func newMemory() *memory {
	return &memory{nodes: map[string]*inventory.Node{}, other: recordtest.NewStore(&state.Observers)}
}

// The records of a store come after those of a state.
func (m *memory) Changed() <-chan struct{}          { return m.other.Changed() }
func (m *memory) Sync(ctx context.Context) error    { return m.other.Sync(ctx) }
func (m *memory) Latest() (record.Reader, int64)    { return m.other.Latest() }
func (m *memory) Wait(context.Context, int64) error { return nil }

func (m *memory) Commit(ctx context.Context, tx *record.Tx) (int64, error) {
	return m.other.Commit(ctx, tx)
}

func (m *memory) View() *state.View {
	m.mu.Lock()
	defer m.mu.Unlock()

	v := &state.View{}
	records, _ := m.other.Latest()
	v.Snapshot.View = records.(record.View)

	for _, name := range slices.Sorted(maps.Keys(m.nodes)) {
		v.PutNode(m.nodes[name])
	}

	return v
}

func (m *memory) PutNodes(_ context.Context, writes []state.NodeWrite) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()

	for _, w := range writes {
		m.nodes[w.Node.Name] = &w.Node
		m.history = append(m.history, w.Entries...)
	}

	return nil, nil
}

func (m *memory) Record(_ context.Context, r access.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records = append(m.records, r)
}

// state returns the state of a node, and its observers with their reports.
func (m *memory) state(name string) (inventory.State, map[string]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.nodes[name].State, m.nodes[name].Seen
}

// TestSilentMonitor: the reports of a monitor are void once it is silent, and only
// those. It counts again with its next report.
func TestSilentMonitor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := logrus.New()
		log.SetOutput(io.Discard)

		const timeout = 5 * time.Minute

		m := newMemory()

		var leads atomic.Bool

		leads.Store(true)

		nodes := node.New(node.Options{
			State: m, Store: m, Audit: m, Logger: log, Leads: leads.Load,
			Settings: func() node.Settings { return node.Settings{MonitorTimeout: timeout} },
		})
		report := func(observer string, alive bool, labels ...string) {
			var all []inventory.Observation
			for _, label := range labels {
				all = append(all, inventory.Observation{Label: label, Serial: "1", Addr: "10.0.0.1", Alive: alive})
			}

			if refused, _, err := nodes.Report(t.Context(), observer, nil, all); err != nil || len(refused) > 0 {
				t.Fatal(refused, err)
			}
		}

		report("rack1", true, "a", "b", "c", "d")
		report("rack2", true, "b")
		report(inventory.ObserverGossip, true, "c")
		report(inventory.ObserverPost, true, "d")

		// A former process recorded this observer, which never reports again.
		report("retired", false, "a")

		watch := nodes.WatchMonitors()
		watch.Start(t.Context())
		defer watch.Stop()

		for range 10 {
			time.Sleep(time.Minute)
			report("rack1", true, "a") // partial, and unchanged
		}

		synctest.Wait()

		for name, want := range map[string]map[string]bool{
			"a-1": {"rack1": true},
			"b-1": {"rack1": true}, // rack2 is silent
			"c-1": {"rack1": true, inventory.ObserverGossip: true},
			"d-1": {"rack1": true, inventory.ObserverPost: true},
		} {
			if s, seen := m.state(name); s != inventory.Discovered || !maps.Equal(seen, want) {
				t.Errorf("%s is %s, reported by %v, not %v", name, s, seen, want)
			}
		}

		before := len(m.history)

		time.Sleep(timeout - time.Minute)

		if s, _ := m.state("a-1"); s != inventory.Discovered {
			t.Errorf("after a short silence a-1 is %s", s)
		}

		time.Sleep(2 * time.Minute)
		synctest.Wait()

		for name, want := range map[string]inventory.State{
			"a-1": inventory.Disappeared, "b-1": inventory.Disappeared,
			"c-1": inventory.Discovered, "d-1": inventory.Discovered,
		} {
			if s, seen := m.state(name); s != want || seen["rack1"] {
				t.Errorf("%s is %s, reported by %v", name, s, seen)
			}
		}

		entries := m.history[before:]
		if len(entries) != 2 || !strings.Contains(entries[0].Reason, "rack1 has been silent for 5m") ||
			entries[0].Verb != inventory.VerbDisappeared {
			t.Errorf("the history has %+v", entries)
		}

		last := m.records[len(m.records)-1]
		if last.Principal != access.Manager || last.Action != "monitors.expire" || len(last.Targets) != 4 {
			t.Errorf("the audit trail has %+v", last)
		}

		report("rack1", true, "a")

		if s, _ := m.state("a-1"); s != inventory.Discovered {
			t.Errorf("reported again, a-1 is %s", s)
		}

		// An instance that does not lead changes nothing.
		leads.Store(false)

		time.Sleep(3 * timeout)
		synctest.Wait()

		if s, _ := m.state("a-1"); s != inventory.Discovered {
			t.Errorf("without the lead, a-1 is %s", s)
		}

		// What it has not heard meanwhile is no silence.
		leads.Store(true)

		time.Sleep(timeout / 2)
		synctest.Wait()

		if s, _ := m.state("a-1"); s != inventory.Discovered {
			t.Errorf("soon after the gain of the lead, a-1 is %s", s)
		}
	})
}

// TestReportToAnyInstance: reports to an instance that does not lead count as those to the leader do: their monitor is
// not silent, and its full report confirms the nodes.
func TestReportToAnyInstance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := logrus.New()
		log.SetOutput(io.Discard)

		const timeout = 5 * time.Minute

		m := newMemory()
		instance := func(leads bool) *node.Nodes {
			ns := node.New(node.Options{
				State: m, Store: m, Audit: m, Logger: log, Leads: func() bool { return leads },
				Settings: func() node.Settings { return node.Settings{MonitorTimeout: timeout} },
			})

			watch := ns.WatchMonitors()
			watch.Start(t.Context())
			t.Cleanup(watch.Stop)

			return ns
		}
		here := []inventory.Observation{{Label: "a", Serial: "1", Addr: "10.0.0.1", Alive: true}}
		report := func(ns *node.Nodes, full *inventory.NameRange) {
			if refused, _, err := ns.Report(t.Context(), "rack1", full, here); err != nil || len(refused) > 0 {
				t.Fatal(refused, err)
			}
		}

		other := instance(false)
		report(other, &inventory.NameRange{}) // before the leader begins
		leader := instance(true)

		if !leader.Observed().IsZero() {
			t.Error("a report before its time confirms the nodes")
		}

		for range 10 {
			time.Sleep(time.Minute)
			report(other, nil)
		}

		// A node that was lost for a moment has the loss in its history.
		if len(m.history) != 1 || !leader.Observed().IsZero() {
			t.Errorf("reported to the other instance, a-1 was: %+v, confirmed at %s", m.history, leader.Observed())
		}

		report(other, &inventory.NameRange{Until: "b"})

		if !leader.Observed().IsZero() {
			t.Error("a part of a full report confirms the nodes")
		}

		report(other, &inventory.NameRange{After: "b"})

		if leader.Observed().IsZero() {
			t.Error("a full report to the other instance does not confirm the nodes")
		}

		time.Sleep(2 * timeout)
		synctest.Wait()

		if s, seen := m.state("a-1"); s != inventory.Disappeared || len(seen) > 0 {
			t.Errorf("with a silent monitor a-1 is %s, reported by %v", s, seen)
		}

		time.Sleep(timeout)
		synctest.Wait()

		if left := record.List(m.View(), &state.Observers); len(left) != 0 {
			t.Errorf("of observers without reports there are %d records", len(left))
		}
	})
}

// TestObserved: the reports in the store are confirmed once each of their observers has sent a
// full report to the end.
func TestObserved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := logrus.New()
		log.SetOutput(io.Discard)

		m := newMemory()
		former := node.New(node.Options{State: m, Store: m, Audit: m, Logger: log})
		here := []inventory.Observation{{Label: "a", Serial: "1", Addr: "10.0.0.1", Alive: true}}

		report := func(ns *node.Nodes, observer string, full *inventory.NameRange) {
			if refused, _, err := ns.Report(t.Context(), observer, full, here); err != nil || len(refused) > 0 {
				t.Fatal(refused, err)
			}
		}

		report(former, "rack1", nil)
		report(former, inventory.ObserverGossip, nil)
		report(former, inventory.ObserverPost, nil)

		nodes := node.New(node.Options{State: m, Store: m, Audit: m, Logger: log})

		for _, step := range []struct {
			observer string
			full     *inventory.NameRange
			want     bool
		}{
			{"rack1", nil, false},
			{"rack1", &inventory.NameRange{Until: "b"}, false},
			{"rack1", &inventory.NameRange{After: "b"}, false},
			{inventory.ObserverGossip, &inventory.NameRange{}, true},
		} {
			report(nodes, step.observer, step.full)

			if got := !nodes.Observed().IsZero(); got != step.want {
				t.Errorf("after the report of %s on %+v: %t", step.observer, step.full, got)
			}
		}

		at := nodes.Observed()
		report(nodes, "rack2", nil)
		time.Sleep(time.Minute)

		if got := nodes.Observed(); !got.Equal(at) {
			t.Errorf("a later observer moves it from %s to %s", at, got)
		}
	})
}
