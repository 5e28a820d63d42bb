// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/node"
)

// alerted returns the numbers of alerts of nodes.
func (m *memory) alerted(names ...string) []int {
	m.mu.Lock()
	defer m.mu.Unlock()

	var all []int
	for _, name := range names {
		all = append(all, len(m.nodes[name].Alerts))
	}

	return all
}

// TestAlerts: an alert is put on all nodes or on none, ends on those that are named, and ends by itself while the
// instance leads.
func TestAlerts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := logrus.New()
		log.SetOutput(io.Discard)

		m := newMemory()
		for _, name := range []string{"a-1", "b-1", "c-1"} {
			m.nodes[name] = &inventory.Node{Name: name, Status: inventory.Unallocated}
		}

		var leads atomic.Bool

		nodes := node.New(node.Options{
			State: m, Store: m, Audit: m, Logger: log, Leads: leads.Load,
			Settings: func() node.Settings { return node.Settings{} },
		})
		ann := access.Caller{Principal: "ann"}

		add := func(r node.AlertRequest) []node.Alerted {
			r.Effects = []inventory.Effect{inventory.BlocksPower}
			all, err := nodes.Alert(t.Context(), ann, r)
			errtest.None(t, err)

			return all
		}

		_, err := nodes.Alert(t.Context(), ann, node.AlertRequest{Nodes: []string{"a-1", "x-1"}, Reason: "why"})
		if inventory.KindOf(err) != inventory.KindNotFound || !slices.Equal(m.alerted("a-1"), []int{0}) {
			t.Errorf("with an unknown node: %v", err)
		}

		all := add(node.AlertRequest{Nodes: []string{"a-1", "b-1", "c-1"}, Reason: "why"})
		add(node.AlertRequest{Nodes: []string{"a-1"}, Reason: "why"}) // a repetition

		if len(all) != 3 || all[0].Source != "ann" || len(m.history) != 3 {
			t.Errorf("%+v, %d entries", all, len(m.history))
		}

		ended, err := nodes.EndAlert(t.Context(), ann, node.AlertEnd{ID: all[0].ID, Nodes: []string{"b-1"}})
		if err != nil || len(ended) != 1 || !slices.Equal(m.alerted("a-1", "b-1", "c-1"), []int{1, 0, 1}) {
			t.Errorf("on one node: %+v, %v", ended, err)
		}

		ended, err = nodes.EndAlert(t.Context(), ann, node.AlertEnd{ID: all[0].ID})
		if err != nil || len(ended) != 2 || !slices.Equal(m.alerted("a-1", "b-1", "c-1"), []int{0, 0, 0}) {
			t.Errorf("on all nodes: %+v, %v", ended, err)
		}

		_, err = nodes.EndAlert(t.Context(), ann, node.AlertEnd{ID: all[0].ID})
		if inventory.KindOf(err) != inventory.KindNotFound {
			t.Errorf("once more: %v", err)
		}

		watch := nodes.WatchAlerts()
		watch.Start(t.Context())
		defer watch.Stop()

		for hours, name := range map[int]string{1: "a-1", 2: "b-1", 0: "c-1"} {
			r := node.AlertRequest{Nodes: []string{name}, Reason: "later"}
			if hours > 0 {
				r.Until = time.Now().Add(time.Duration(hours) * time.Hour)
			}

			add(r)
		}

		records := len(m.records)

		for _, c := range []struct {
			leads bool
			sleep time.Duration
			want  []int
		}{
			{false, 90 * time.Minute, []int{1, 1, 1}}, // another instance leads
			{true, 2 * time.Second, []int{0, 1, 1}},
			{true, time.Hour, []int{0, 0, 1}},
			{true, 24 * time.Hour, []int{0, 0, 1}},
		} {
			leads.Store(c.leads)
			time.Sleep(c.sleep)
			synctest.Wait()

			if got := m.alerted("a-1", "b-1", "c-1"); !slices.Equal(got, c.want) {
				t.Errorf("after %s: %v, want %v", c.sleep, got, c.want)
			}
		}

		if n := len(m.records) - records; n != 2 {
			t.Errorf("%d audit records of ends, want 2", n)
		}
	})
}
