// SPDX-License-Identifier: Apache-2.0

package access

import (
	"errors"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

// TestFilter compares scopes with nodes. A name or a group is matched as a whole.
func TestFilter(t *testing.T) {
	t.Parallel()

	worker := &inventory.Node{Name: "node-1", Label: "node", Group: "worker", Labels: map[string]string{"rack": "r1"}}
	neighbour := &inventory.Node{
		Name:   "node-10",
		Label:  "node",
		Group:  "worker2",
		Labels: map[string]string{"rack": "r10"},
	}
	idle := &inventory.Node{Name: "node-2", Label: "node"}

	for _, tt := range []struct {
		scope Scope
		want  [3]bool // worker, neighbour, idle
	}{
		{Scope{}, [3]bool{true, true, true}},
		{Scope{Groups: []string{"worker"}}, [3]bool{true, false, false}},
		{Scope{Groups: []string{"worker", "worker2"}}, [3]bool{true, true, false}},
		{Scope{Selector: "rack=r1"}, [3]bool{true, false, false}},
		{Scope{Selector: "name=node-1"}, [3]bool{true, false, false}},
		{Scope{Selector: "label=node"}, [3]bool{true, true, true}},
		{Scope{Selector: "!rack"}, [3]bool{false, false, true}},
		{Scope{Groups: []string{"worker"}, Selector: "rack=r10"}, [3]bool{false, false, false}},
		{Scope{Groups: []string{"gone"}}, [3]bool{false, false, false}},
	} {
		f, err := tt.scope.Filter()
		if err != nil {
			t.Fatal(err)
		}
		if got := [3]bool{f.Contains(worker), f.Contains(neighbour), f.Contains(idle)}; got != tt.want {
			t.Errorf("%q contains %v, want %v", tt.scope, got, tt.want)
		}

		if f.Contains(nil) {
			t.Errorf("%q contains a node that does not exist", tt.scope)
		}
	}

	if _, err := (Scope{Selector: "rack in ("}).Filter(); inventory.KindOf(err) != inventory.KindForbidden {
		t.Errorf("a scope that is not valid any more: %v", err)
	}
}

// TestFilterOfTargets expects a job to stay visible after it took its node out of the
// group, and a node without a record never to match a selector.
func TestFilterOfTargets(t *testing.T) {
	t.Parallel()

	left := &inventory.Node{Name: "node-1", Labels: map[string]string{"rack": "r1"}}
	target := job.Target{Name: "node-1", FromGroup: "worker"}

	for _, tt := range []struct {
		scope           Scope
		kept, forgotten bool
	}{
		{Scope{Groups: []string{"worker"}}, true, true},
		{Scope{Groups: []string{"other"}}, false, false},
		{Scope{Selector: "rack=r1"}, true, false},
		{Scope{Selector: "!rack"}, false, false},
		{Scope{Groups: []string{"worker"}, Selector: "rack=r1"}, true, false},
		{Scope{Groups: []string{"worker"}, Selector: "rack=r2"}, false, false},
	} {
		f, err := tt.scope.Filter()
		if err != nil {
			t.Fatal(err)
		}
		if got := f.ContainsTarget(target, left); got != tt.kept {
			t.Errorf("%q, a node that left: %t", tt.scope, got)
		}

		if got := f.ContainsTarget(target, nil); got != tt.forgotten {
			t.Errorf("%q, a node that was forgotten: %t", tt.scope, got)
		}
	}
}

// TestScopeCheck expects a scope to name what exists, and to suit the role.
func TestScopeCheck(t *testing.T) {
	t.Parallel()

	many := Scope{}
	for range maxScopeGroups + 1 {
		many.Groups = append(many.Groups, inventory.GroupWorker)
	}

	for _, tt := range []struct {
		scope Scope
		role  Role
		want  inventory.Kind
	}{
		{Scope{}, RoleAdmin, ""},
		{Scope{Groups: []string{inventory.GroupWorker}, Selector: "rack=r1"}, RoleOperator, ""},
		{Scope{Selector: "group=" + inventory.GroupMaster}, RoleViewer, ""},
		{Scope{Groups: []string{"nosuch"}}, RoleOperator, inventory.KindNotFound},
		{Scope{Selector: "group=nosuch"}, RoleOperator, inventory.KindInvalid},
		{Scope{Selector: "rack in ("}, RoleOperator, inventory.KindInvalid},
		{Scope{Selector: " "}, RoleOperator, inventory.KindInvalid},
		{Scope{Groups: []string{inventory.GroupWorker, inventory.GroupWorker}}, RoleOperator, inventory.KindInvalid},
		{many, RoleOperator, inventory.KindTooLarge},
		{Scope{Selector: "rack=r1"}, RoleAdmin, inventory.KindInvalid},
		{Scope{Selector: "rack=r1"}, RoleMonitor, inventory.KindInvalid},
	} {
		err := tt.scope.CheckRole(tt.role)
		if err == nil {
			err = tt.scope.Check(inventory.DefaultGroups())
		}

		if inventory.KindOf(err) != tt.want {
			t.Errorf("%s within %q: %v, want %q", tt.role, tt.scope, err, tt.want)
		}
	}
}

// TestCallerCheck expects a caller with a scope to change what is in it only: not the manager as a whole, and
// a node outside is answered as one that does not exist, before the precondition is looked at.
func TestCallerCheck(t *testing.T) {
	t.Parallel()

	v := &state.View{}
	v.SetNodes([]*inventory.Node{{Name: "a-1", Group: "worker"}, {Name: "b-1", Group: "master"}}...)

	filter, err := Scope{Groups: []string{"worker"}}.Filter()
	if err != nil {
		t.Fatal(err)
	}

	everyone := func(s *state.Scoped) error { return nil }
	move := func(group string) Subject {
		return func(s *state.Scoped) error { return s.CheckMove([]string{"a-1"}, group) }
	}

	for what, tt := range map[string]struct {
		subject       Subject
		scoped, whole string // the error, or "met" where the precondition is looked at
	}{
		"the manager":      {nil, "the request is about no nodes of a scope: this concerns the whole manager", "met"},
		"nothing":          {everyone, "met", "met"},
		"its node":         {Node("a-1"), "met", "met"},
		"another node":     {Node("b-1"), `there is no node "b-1"`, "met"},
		"no node":          {Node("c-1"), `there is no node "c-1"`, `there is no node "c-1"`},
		"nodes":            {Nodes("a-1", "b-1"), "no such node: b-1", "met"},
		"its group":        {move("worker"), "met", "met"},
		"another group":    {move("master"), `there is no group "master"`, "met"},
		"its variables":    {Variables(state.ScopeNode("a-1")), "met", "met"},
		"other variables":  {Variables(state.ScopeNode("b-1")), `there is no node "b-1"`, "met"},
		"global variables": {Variables(state.ScopeGlobal), "the globals are those of every node: ", "met"},
	} {
		for scope, want := range map[*Filter]string{filter: tt.scoped, nil: tt.whole} {
			c := Caller{Scope: scope, Precondition: func(*state.View) error { return errors.New("met") }}
			if _, err := c.Check(t.Context(), nil, v, tt.subject); err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%s: %v, want %s", what, err, want)
			}
		}
	}
}
