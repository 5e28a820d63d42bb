// SPDX-License-Identifier: Apache-2.0

package management

import (
	"reflect"
	"slices"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
)

// Merger says what variables nodes get, by one view and the settings of one
// moment. It is immutable.
type Merger struct {
	view     *View
	settings Settings
}

// MergerOf returns the merger of the view and the settings.
func MergerOf(v *View, settings Settings) Merger { return Merger{v, settings} }

// Of are the node's variables as a job would pin them, without a request's,
// secrets hidden.
func (m Merger) Of(n *inventory.Node) map[string]configuration.Var {
	return m.settings.Secrets.HideMerged(merged(m.view, m.settings, n.Group, n.Name))
}

// Alike returns what tells, without merging anything, whether an older merger
// gave a node the same variables; nil where it gave all nodes the same. It
// relies on the fact that variables are replaced as a whole and never changed.
func (m Merger) Alike(older Merger) func(n *inventory.Node) bool {
	settings := older.view != nil && SameMap(m.settings.Vars, older.settings.Vars) &&
		slices.Equal(m.settings.Secrets, older.settings.Secrets)
	switch {
	case !settings:
		return func(*inventory.Node) bool { return false }
	case SameMap(m.view.Variables, older.view.Variables):
		return nil
	}

	same := func(s Scope) bool { return SameMap(m.view.Variables[s], older.view.Variables[s]) }
	if !same(ScopeGlobal) {
		return func(*inventory.Node) bool { return false }
	}

	groups := map[string]bool{}

	return func(n *inventory.Node) bool {
		group, ok := groups[n.Group]
		if !ok {
			group = n.Group == "" || same(ScopeGroup(n.Group))
			groups[n.Group] = group
		}

		return group && same(ScopeNode(n.Name))
	}
}

// SameMap tells whether both are the very same map: what views share has not changed.
func SameMap[K comparable, V any](a, b map[K]V) bool {
	return reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer()
}
