// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job/jobtest"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/state"
)

// fixed is a view that never changes.
type fixed struct{ view *state.View }

func (f fixed) View() *state.View                 { return f.view }
func (f fixed) Changed() <-chan struct{}          { return nil }
func (f fixed) Wait(context.Context, int64) error { return nil }
func (f fixed) Sync(context.Context) error        { return nil }

// writes is a store that keeps the names of written nodes. It does nothing else.
type writes struct {
	node.Store
	names []string
}

func (s *writes) PutNodes(_ context.Context, writes []state.NodeWrite) ([]string, error) {
	for _, w := range writes {
		s.names = append(s.names, w.Node.Name)
	}

	return nil, nil
}

// audits counts audit records.
type audits int

func (a *audits) Record(context.Context, access.Record) { *a++ }

// TestMoreNodesThanFit: with as many nodes as the calculation of the store's size allows
// for, a report of a further one is refused as a whole, with a remedy. Known nodes are
// observed as before.
func TestMoreNodesThanFit(t *testing.T) {
	t.Parallel()

	all := make([]*inventory.Node, node.MaxNodes)
	for i := range all {
		label := fmt.Sprintf("host%05d", i)
		all[i] = &inventory.Node{
			Name: inventory.NodeName(label, "1"), Label: label, Serial: "1", Addr: "10.0.0.1",
			Status: inventory.Unallocated, State: inventory.Disappeared,
		}
	}

	log := logrus.New()
	log.SetOutput(io.Discard)

	var recorded audits

	store := &writes{}
	nodes := node.New(node.Options{
		State: fixed{&state.View{Snapshot: jobtest.With(all...)}}, Store: store, Audit: &recorded, Logger: log,
		Settings: func() node.Settings { return node.Settings{} },
	})

	seen := func(label string) inventory.Observation {
		return inventory.Observation{Label: label, Serial: "1", Addr: "10.0.0.1", Alive: true}
	}

	err := nodes.Observe(t.Context(), "post", []inventory.Observation{seen("host00000"), seen("new")})
	if inventory.KindOf(err) != inventory.KindRefused ||
		!strings.Contains(err.Error(), "10000 nodes are known already") ||
		!strings.Contains(err.Error(), "forget some") {
		t.Errorf("a further node: %v", err)
	}

	refused, _, err := nodes.Report(t.Context(), "rack-1", nil, []inventory.Observation{seen("new"), seen("host00001")})
	if err != nil || len(refused) != 1 || inventory.KindOf(refused[0]) != inventory.KindRefused {
		t.Errorf("a report with a further node: %v, %v", refused, err)
	}

	if err := nodes.Observe(t.Context(), "post", []inventory.Observation{seen("host00002")}); err != nil {
		t.Errorf("a known node: %v", err)
	}

	if want := "host00001-1 host00002-1"; strings.Join(store.names, " ") != want {
		t.Errorf("written are %q, want %q", store.names, want)
	}

	if recorded != 3 {
		t.Errorf("%d audit records, want 3", recorded)
	}
}
