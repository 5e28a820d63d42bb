// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/variable"
)

// TestVariablesHistory: every change of a scope is recorded with its revision, within
// the limits of the history, and goes with its node.
func TestVariablesHistory(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := within(t, patience)
	name := seen(t, s, 1)[0]
	scope := state.ScopeNode(name)
	set := func(vars, before configuration.Vars) int64 {
		t.Helper()

		revision, err := putVars(ctx, s, s.View(), scope, vars, variable.Change{
			Time: noon, Actor: "root", Action: variable.ActionSet, Before: before, After: vars,
		})
		must(t, err)

		return revision
	}
	history := func() []variable.Change {
		t.Helper()
		h, err := s.VarsHistory(ctx, scope)
		must(t, err)
		return h
	}

	first := set(configuration.Vars{"a": "1"}, nil)
	before := s.View()
	second := set(nil, configuration.Vars{"a": "1"})
	want := []variable.Change{
		{Seq: 1, Revision: first, Time: noon, Actor: "root", Action: "set", After: configuration.Vars{"a": "1"}},
		{Seq: 2, Revision: second, Time: noon, Actor: "root", Action: "set", Before: configuration.Vars{"a": "1"}},
	}

	if got := history(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}

	// A write that changes nothing is not recorded.
	_, err := putVars(
		ctx,
		s,
		s.View(),
		scope,
		nil,
		variable.Change{Time: noon, Actor: "root", Action: variable.ActionSet},
	)
	must(t, err)

	for i := range variable.HistoryLimit {
		set(configuration.Vars{"a": fmt.Sprint(i)}, nil)
	}

	got := history()
	if len(got) != variable.HistoryLimit || got[0].Seq != 3 || got[0].Revision <= second {
		t.Errorf("%d changes are kept, from %+v on", len(got), got[0])
	}

	// Large changes leave room for fewer, and the newest always stays.
	large := strings.Repeat("x", variable.HistoryBytes/3)
	for range 3 {
		set(configuration.Vars{"a": large}, nil)
	}

	if got := history(); len(got) != 2 || got[1].Seq != variable.HistoryLimit+5 {
		t.Errorf("%d changes are kept beside large ones", len(got))
	}

	set(configuration.Vars{"a": large + large + large}, nil)

	if got := history(); len(got) != 1 || got[0].Seq != variable.HistoryLimit+6 {
		t.Errorf("%d changes are kept beside one beyond the limit", len(got))
	}

	// A change that was decided before another is refused, and not recorded.
	_, err = putVars(ctx, s, before, scope, configuration.Vars{"a": "late"}, variable.Change{
		Time: noon, Action: variable.ActionSet, After: configuration.Vars{"a": "late"},
	})
	if inventory.KindOf(err) != inventory.KindConflict || len(history()) != 1 {
		t.Errorf("a late change: %v", err)
	}

	v := s.View()
	n, err := v.Node(name)
	must(t, err)

	_, err = s.Forget(ctx, v.Revision, nil, []state.NodeWrite{{
		Node: n, Tombstone: &inventory.Tombstone{Name: name, Label: n.Label, Serial: n.Serial, Time: time.Now()},
	}}, nil)
	must(t, err)

	if got := history(); len(got) != 0 {
		t.Errorf("a forgotten node left %d changes", len(got))
	}
}
