// SPDX-License-Identifier: Apache-2.0

package desired_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/desired"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/merge"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/state/statetest"
)

var key = configuration.NewChecksumKey()

// world is a view with settings, both of which a test may replace.
type world struct {
	view     *state.View
	settings merge.Settings
	source   *desired.Source
}

// newWorld has one node of each group, and one without a group, configured as desired.
func newWorld() *world {
	playbooks := map[string]*state.Playbooks{"i": {Digest: "p"}, "other": {Digest: "x"}}
	w := &world{
		view: &state.View{
			Snapshot: job.Snapshot{View: record.With(record.View{}, &state.InstancePlaybooks, playbooks)},
		},
		settings: merge.Settings{
			Groups: inventory.DefaultGroups(), Vars: configuration.Vars{"file": "1"}, Sources: []string{"outside"},
		},
	}
	statetest.SetChecksumKey(w.view, key)
	statetest.SetVars(w.view, state.ScopeGlobal, configuration.Vars{"a": "1", "db_password": "s"})
	statetest.SetVars(w.view, state.ScopeNode("w2"), configuration.Vars{"a": "2"})
	statetest.SetVars(w.view, state.ScopeGroup(inventory.GroupMaster), configuration.Vars{"m": "1"})
	w.source = desired.New("i", func() merge.Settings { return w.settings })
	w.view.SetNodes([]*inventory.Node{
		{Name: "m1", Status: inventory.Allocated, Group: inventory.GroupMaster},
		{Name: "u1", Status: inventory.Unallocated},
		{Name: "w1", Status: inventory.Allocated, Group: inventory.GroupWorker},
		{Name: "w2", Status: inventory.Allocated, Group: inventory.GroupWorker},
	}...)

	w.apply()

	return w
}

// apply configures every node in service as desired.
func (w *world) apply() {
	now := w.source.Of(w.view)

	for _, n := range w.view.Nodes() {
		m := n.Clone()
		if want, ok := now.Of(n); ok {
			m.Configured = &inventory.Configured{Configuration: want, Time: time.Unix(1, 0)}
		}
		w.view.PutNode(&m)
	}
}

// change replaces the view by a changed copy.
func (w *world) change(f func(v *state.View)) {
	v := *w.view
	f(&v)
	w.view = &v
}

// groups replaces the groups by changed ones.
func (w *world) groups(f func(inventory.Groups)) {
	w.settings.Groups = slices.Clone(w.settings.Groups)
	f(w.settings.Groups)
}

// outdated returns the nodes that differ, with the parts, and those of which it is unknown.
func (w *world) outdated() []string {
	now := w.source.Of(w.view)

	var out []string
	for _, n := range w.view.Nodes() {
		switch j := now.Judge(n); {
		case j.Outdated:
			out = append(out, fmt.Sprint(n.Name, j.Differs))
		case j.InService && !j.Known:
			out = append(out, n.Name+"?")
		}
	}

	return out
}

// TestOutdated changes one input after the other: exactly the nodes that it concerns are
// outdated, and a node that was configured again is not.
func TestOutdated(t *testing.T) {
	t.Parallel()

	set := func(s state.Scope, vars configuration.Vars) func(*world) {
		return func(w *world) { w.change(func(v *state.View) { statetest.SetVars(v, s, vars) }) }
	}
	node := func(name string, f func(*inventory.Node)) func(*world) {
		return func(w *world) {
			w.change(func(v *state.View) {
				i := slices.IndexFunc(v.Nodes(), func(n *inventory.Node) bool { return n.Name == name })
				m := v.Nodes()[i].Clone()
				f(&m)
				v.PutNode(&m)
			})
		}
	}
	playbooks := func(p state.Playbooks) func(*world) {
		return func(w *world) {
			w.change(func(v *state.View) { v.View = record.Set(v.View, &state.InstancePlaybooks, "i", &p) })
		}
	}

	all := []string{"m1[variables]", "w1[variables]", "w2[variables]"}

	masters := []string{"m1[masters]", "w1[masters]", "w2[masters]"}

	for name, tt := range map[string]struct {
		change func(*world)
		want   []string
	}{
		"nothing":                     {func(*world) {}, nil},
		"another address of a master": {node("m1", func(n *inventory.Node) { n.Addr = "192.0.2.9" }), masters},
		"another address of a worker": {node("w1", func(n *inventory.Node) { n.Addr = "192.0.2.9" }), nil},
		"a master more": {
			node("u1", func(n *inventory.Node) { n.Status, n.Group = inventory.Allocated, inventory.GroupMaster }),
			[]string{"m1[masters]", "u1?", "w1[masters]", "w2[masters]"},
		},
		"a worker more": {
			node("u1", func(n *inventory.Node) { n.Status, n.Group = inventory.Allocated, inventory.GroupWorker }),
			[]string{"u1?"},
		},
		"a master that leaves": {
			node("m1", func(n *inventory.Node) { n.Status = inventory.Decommissioning }),
			[]string{"w1[masters]", "w2[masters]"},
		},
		"a master under work": {node("m1", func(n *inventory.Node) { n.Status = inventory.Maintenance }), nil},
		"a variable of the masters": {
			set(state.ScopeGroup(inventory.GroupMaster), configuration.Vars{"m": "2"}),
			[]string{"m1[variables masters]", "w1[masters]", "w2[masters]"},
		},
		"a variable of one master": {
			set(state.ScopeNode("m1"), configuration.Vars{"n": "1"}),
			[]string{"m1[variables masters]", "w1[masters]", "w2[masters]"},
		},
		"a variable of a master with the value that it had": {
			set(state.ScopeNode("m1"), configuration.Vars{"a": "1", "m": "1"}), nil,
		},
		"a secret of the masters that is locked": {
			set(state.ScopeNode("m1"), configuration.Vars{"pw": configuration.LockedSecret("", "", "lost")}),
			[]string{"m1?"},
		},
		"a record without the variables of the masters": {
			func(w *world) {
				node("w1", func(n *inventory.Node) {
					n.Configured.Masters = n.Configured.Masters[:strings.LastIndex(n.Configured.Masters, "-")]
				})(w)
				set(state.ScopeGroup(inventory.GroupMaster), configuration.Vars{"m": "2"})(w)
			}, []string{"m1[variables masters]", "w2[masters]"},
		},
		"a record without masters": {
			node("w1", func(n *inventory.Node) {
				n.Configured.Masters = ""
				n.Addr = "192.0.2.9"
			}), nil,
		},
		"playbooks": {
			playbooks(state.Playbooks{Digest: "q"}), []string{"m1[playbooks]", "w1[playbooks]", "w2[playbooks]"},
		},
		"only a commit":                {playbooks(state.Playbooks{Digest: "p", Commit: "c"}), nil},
		"playbooks that are not known": {playbooks(state.Playbooks{Problem: "gone"}), []string{"m1?", "w1?", "w2?"}},
		"playbooks of another instance": {
			func(w *world) {
				w.change(func(v *state.View) {
					v.View = record.Set(v.View, &state.InstancePlaybooks, "other", &state.Playbooks{Digest: "y"})
				})
			}, nil,
		},
		"globals": {set(state.ScopeGlobal, configuration.Vars{"a": "1", "db_password": "s", "b": "1"}), all},
		"a global that a node replaces": {
			set(state.ScopeGlobal, configuration.Vars{"a": "9", "db_password": "s"}),
			[]string{"m1[variables]", "w1[variables]"},
		},
		"a secret":      {set(state.ScopeGlobal, configuration.Vars{"a": "1", "db_password": "t"}), all},
		"the same anew": {set(state.ScopeGlobal, configuration.Vars{"a": "1", "db_password": "s"}), nil},
		"only a mark": {
			set(state.ScopeGlobal, configuration.Vars{"a": "1", "db_password": configuration.NewSecret("s")}), nil,
		},
		"a group": {
			set(state.ScopeGroup(inventory.GroupWorker), configuration.Vars{"g": "1"}),
			[]string{"w1[variables]", "w2[variables]"},
		},
		"the tags of a group": {
			func(w *world) { w.groups(func(gs inventory.Groups) { gs[1].SkipTags = []string{"slow"} }) },
			[]string{"w1[tags]", "w2[tags]"},
		},
		"rules of a group": {
			func(w *world) { w.groups(func(gs inventory.Groups) { gs[1].OnReturn = inventory.ReactionRepair }) }, nil,
		},
		"a node": {set(state.ScopeNode("w1"), configuration.Vars{"n": "1"}), []string{"w1[variables]"}},
		"a node without variables of its own any more": {set(state.ScopeNode("w2"), nil), []string{"w2[variables]"}},
		"the file": {func(w *world) { w.settings.Vars = configuration.Vars{"file": "2"} }, all},
		"a source": {func(w *world) { w.settings.Sources = nil }, all},
		"another key": {
			func(w *world) {
				w.change(func(v *state.View) { statetest.SetChecksumKey(v, configuration.NewChecksumKey()) })
			},
			[]string{"m1?", "w1?", "w2?"},
		},
		"no key": {
			func(w *world) {
				w.change(func(v *state.View) { statetest.SetChecksumKey(v, configuration.ChecksumKey{}) })
			},
			[]string{"m1?", "w1?", "w2?"},
		},
		"a secret that is locked": {
			set(state.ScopeGlobal, configuration.Vars{
				"a": "1", "db_password": configuration.LockedSecret("", "", "lost"),
			}),
			[]string{"m1?", "w1?", "w2?"},
		},
		"another group": {
			node("w1", func(n *inventory.Node) { n.Group = inventory.GroupMaster }),
			[]string{"m1[masters]", "w1[group variables masters]", "w2[masters]"},
		},
		"a group that is gone": {
			func(w *world) { w.settings.Groups = nil }, masters, // nobody requires them any more
		},
		"a record of an earlier version": {node("w1", func(n *inventory.Node) { n.Configured = nil }), []string{"w1?"}},
		"out of service": {
			node("w1", func(n *inventory.Node) { n.Status, n.Configured = inventory.Quarantined, nil }), nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			w := newWorld()
			if got := w.outdated(); got != nil {
				t.Fatalf("at first: %v", got)
			}
			tt.change(w)

			if got := w.outdated(); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}

			w.apply()

			for _, got := range w.outdated() {
				if got[len(got)-1] != '?' {
					t.Errorf("configured again, and outdated: %s", got)
				}
			}
		})
	}
}

// TestShared: configurations are made anew only if an input has changed, and nodes whose
// judgement stays are known.
func TestShared(t *testing.T) {
	t.Parallel()

	w := newWorld()
	first := w.source.Of(w.view)

	// The store shares the variables that have not changed.
	same := *w.view
	same.Revision++
	same.SetNodes(same.Nodes()[:1]...)
	same.View = record.With(same.View, &state.InstancePlaybooks, map[string]*state.Playbooks{"i": {Digest: "p"}})

	if w.source.Of(&same) != first || first.Alike(first) != nil {
		t.Error("the same inputs have other configurations")
	}

	w.change(func(v *state.View) { statetest.SetVars(v, state.ScopeNode("w1"), configuration.Vars{"x": "1"}) })
	third := w.source.Of(w.view)

	if third == first {
		t.Fatal("changed inputs have the same configurations")
	}

	alike := third.Alike(first)
	for _, n := range w.view.Nodes() {
		if alike(n) != (n.Name != "w1") {
			t.Errorf("%s is alike: %t", n.Name, alike(n))
		}
	}

	if counts := third.Count(w.view.Nodes()); counts != (desired.Counts{Outdated: 1}) {
		t.Errorf("%+v", counts)
	}
}

// BenchmarkJudge judges 10 000 nodes after a change of the globals; one in ten has
// variables of its own.
func BenchmarkJudge(b *testing.B) {
	w := newWorld()
	w.view.SetNodes()

	globals := configuration.Vars{}
	for i := range 200 {
		globals[fmt.Sprintf("v%03d", i)] = fmt.Sprintf("value %d", i)
	}

	statetest.SetVars(w.view, state.ScopeGlobal, globals)

	for i := range 10_000 {
		name := fmt.Sprintf("n%05d", i)
		w.view.PutNode(&inventory.Node{
			Name: name, Status: inventory.Allocated, Group: inventory.GroupWorker,
		})

		if i%10 == 0 {
			statetest.SetVars(w.view, state.ScopeNode(name), configuration.Vars{"own": name})
		}
	}

	w.apply()

	for b.Loop() {
		w.change(func(v *state.View) {
			vars := maps.Clone(globals)
			vars["v000"] = time.Now().String()
			statetest.SetVars(v, state.ScopeGlobal, vars)
		})

		if c := w.source.Of(w.view).Count(w.view.Nodes()); c.Outdated != 10_000 {
			b.Fatalf("%+v", c)
		}
	}
}
