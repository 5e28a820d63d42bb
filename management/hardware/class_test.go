// SPDX-License-Identifier: Apache-2.0

package hardware_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/inventory/facts"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/hardware"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/record/recordtest"
	"github.com/contiv/cluster/management/state"
)

type noAudit struct{}

func (noAudit) Record(context.Context, access.Record) {}

// site is a store with a class, and nodes with alerts.
type site struct {
	*recordtest.Store

	nodes map[string]inventory.Node
}

func newSite(t *testing.T) *site {
	t.Helper()

	s := &site{Store: recordtest.NewStore(&state.Classes, &job.Nodes), nodes: map[string]inventory.Node{}}
	s.Base = func(records record.View, revision int64) record.Reader {
		v := &state.View{Snapshot: job.Snapshot{View: records}, Revision: revision}
		for _, n := range s.nodes {
			v.PutNode(&n)
		}

		return v
	}
	s.Attached = func(part any) {
		if w, ok := part.(state.NodeWrite); ok {
			s.nodes[w.Node.Name] = w.Node
		}
	}

	_, _, err := record.Decide(t.Context(), s, func(tx *record.Tx) (none struct{}, err error) {
		record.Put(tx, &state.Classes, &facts.Class{Name: "r640"})
		return none, nil
	})
	errtest.None(t, err)

	return s
}

// alert puts an alert on a node.
func (s *site) alert(t *testing.T, node, source, actor string) {
	t.Helper()

	now := time.Unix(1000, 0)
	a, err := inventory.NewAlert("DIMM B3 missing", source, nil, time.Time{}, actor, now)
	errtest.None(t, err)

	n := s.nodes[node]
	n.Name = node

	n, _, _, err = n.Alert(a, inventory.Trigger{Actor: actor, Time: now})
	errtest.None(t, err)

	s.nodes[node] = n
}

// alerts returns the sources of all alerts that are left.
func (s *site) alerts() (all []string) {
	for _, n := range s.nodes {
		for _, a := range n.Alerts {
			all = append(all, n.Name+": "+a.Source+" by "+a.Actor)
		}
	}

	return all
}

func (s *site) delete(t *testing.T, name string) error {
	t.Helper()

	return hardware.NewClasses(hardware.Options{Store: s, Audit: noAudit{}}).
		Delete(t.Context(), access.Caller{Principal: "ann"}, name)
}

func (s *site) has(class string) bool { return record.Get(view(s), &state.Classes, class) != nil }

func view(s record.Store) record.Reader {
	r, _ := s.Latest()
	return r
}

// TestDeleteEndsAlerts: the alerts of a class end with it, also those that an inspection raises meanwhile, and no
// others.
func TestDeleteEndsAlerts(t *testing.T) {
	t.Parallel()

	s := newSite(t)
	for i := range 3 {
		s.alert(t, fmt.Sprint("n", i), "class r640", access.Manager)
	}

	s.alert(t, "n0", "class r650", access.Manager)

	// Nothing has changed after a failure.
	s.Before = func(*record.Tx) error { return errors.New("the store is full") }
	if err := s.delete(t, "r640"); err == nil || !s.has("r640") || len(s.alerts()) != 4 {
		t.Fatalf("%v, %q", err, s.alerts())
	}

	raced := false
	s.Before = func(*record.Tx) error {
		if !raced {
			raced = true
			s.alert(t, "late", "class r640", access.Manager)
			errtest.None(t, s.Write("nodes/late", []byte(`{"name":"late"}`)))
		}

		return nil
	}

	commits := s.Commits()
	errtest.None(t, s.delete(t, "r640"))

	if got := s.alerts(); s.has("r640") || len(got) != 1 || got[0] != "n0: class r650 by "+access.Manager {
		t.Errorf("%q", got)
	}

	if s.Commits() != commits+1 {
		t.Errorf("%d transactions", s.Commits()-commits)
	}

	if err := s.delete(t, "r640"); inventory.KindOf(err) != inventory.KindNotFound {
		t.Errorf("once more: %v", err)
	}
}

// TestDeleteManyAlerts: alerts that do not fit one transaction end in several, and the class goes last. The alert of a
// person with the same source stays.
func TestDeleteManyAlerts(t *testing.T) {
	t.Parallel()

	s := newSite(t)
	for i := range 130 {
		s.alert(t, fmt.Sprint("n", i), "class r640", access.Manager)
	}

	s.alert(t, "mine", "class r640", "ann")

	s.Before = func(tx *record.Tx) error {
		if len(tx.Parts()) > 60 {
			t.Errorf("a transaction writes %d nodes", len(tx.Parts()))
		}

		if !s.has("r640") {
			t.Error("the class went before its alerts")
		}

		return nil
	}

	errtest.None(t, s.delete(t, "r640"))

	if got := s.alerts(); s.has("r640") || strings.Join(got, ", ") != "mine: class r640 by ann" {
		t.Errorf("%q", got)
	}
}
