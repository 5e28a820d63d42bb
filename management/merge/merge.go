// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"fmt"
	"slices"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// Settings is the part of the configuration that variables depend on.
type Settings struct {
	Groups      inventory.Groups
	Vars        configuration.Vars // the lowest layer; its values may be templates
	Secrets     configuration.Secrets
	Sources     []string                            // names of variables with a source outside, sorted
	Connection  configuration.Connection            // of the site
	Connections map[string]configuration.Connection // by group
	Rotation    *KeyRotation                        // of the site's ssh key; nil: none is running
	FolderVars  FolderVars                          // nil: none are known
}

// FolderVars returns the variables that the playbooks with that digest set for a node of the group by themselves; false
// if the playbooks cannot be read.
type FolderVars func(digest, node, group string) (configuration.FolderVars, bool)

// KeyRotation is a rotation of the site's ssh key that has begun to use the new one.
type KeyRotation struct {
	Setting string // the value of ssh.key_file for the new key; "": ssh finds it by itself
	KeyFile string // the new key
	Former  string // the old key, which some nodes still need
}

// Merge returns the variables of a node in a group, each with its origin. An
// empty name leaves out that layer.
func (s Settings) Merge(r record.Reader, group, node string) map[string]configuration.Var {
	layers := []configuration.Layer{
		{Origin: configuration.OriginConfig, Vars: s.Vars, Trusted: true},
		{Origin: configuration.OriginConfig, Vars: s.sourced()},
		{Origin: configuration.OriginGlobal, Vars: state.VarsOf(r, state.ScopeGlobal)},
	}
	if group != "" {
		groupVars := state.VarsOf(r, state.ScopeGroup(group))
		layers = append(layers, configuration.Layer{Origin: configuration.OriginGroup, Vars: groupVars})
	}

	if node != "" {
		nodeVars := state.VarsOf(r, state.ScopeNode(node))
		layers = append(layers, configuration.Layer{Origin: configuration.OriginNode, Vars: nodeVars})
	}

	return configuration.Merge(layers...)
}

// sourced returns the variables with a source outside.
func (s Settings) sourced() configuration.Vars {
	vars := make(configuration.Vars, len(s.Sources))
	for _, name := range s.Sources {
		vars[name] = configuration.SourcedSecret()
	}

	return vars
}

// Connect returns the ssh parameters of a node in a group.
func (s Settings) Connect(v *state.View, group, node string) configuration.Connection {
	site := s.Connection
	if r := s.Rotation; r != nil && site.KeyFile == r.Setting {
		site.KeyFile, site.FormerKeyFile = r.KeyFile, r.Former
	}
	c := s.Connections[group].Over(site)
	if own := v.Connection(node); own != nil {
		c = own.Over(c)
	}
	return c
}

// OwnKey reports whether a node in a group has an ssh key other than the site's.
func (s Settings) OwnKey(v *state.View, group, node string) bool {
	own := v.Connection(node)
	return s.Connections[group].KeyFile != "" || own != nil && own.KeyFile != ""
}

// TemplateWarning warns about a value that looks like a template. Values from
// the API are data, so a template in them is never evaluated.
func TemplateWarning(path string) string {
	return fmt.Sprintf("the value of %s looks like a template; it is passed on as it is and never evaluated", path)
}

// Merger merges the variables of nodes, for one view and the settings of one
// moment. It is immutable.
type Merger struct {
	view     *state.View
	settings Settings
}

// NewMerger returns the merger of the view and the settings.
func NewMerger(v *state.View, settings Settings) Merger { return Merger{v, settings} }

// Of returns the node's variables as a job would get them, without those of a
// request. Secrets are hidden.
func (m Merger) Of(n *inventory.Node) map[string]configuration.Var {
	return m.settings.Secrets.HideMerged(m.settings.Merge(m.view, n.Group, n.Name))
}

// Alike returns a function that reports whether an older merger gave a node the
// same variables, or nil if it gave all nodes the same. It compares records by
// identity, because they are replaced as a whole and never changed.
func (m Merger) Alike(older Merger) func(n *inventory.Node) bool {
	never := func(*inventory.Node) bool { return false }

	sameSettings := older.view != nil && state.SameMap(m.settings.Vars, older.settings.Vars) &&
		slices.Equal(m.settings.Secrets, older.settings.Secrets) &&
		slices.Equal(m.settings.Sources, older.settings.Sources)
	if !sameSettings {
		return never
	}

	if record.Same(m.view, older.view, &state.Variables) {
		return nil
	}

	same := func(s state.Scope) bool {
		return record.Get(m.view, &state.Variables, string(s)) == record.Get(older.view, &state.Variables, string(s))
	}
	if !same(state.ScopeGlobal) {
		return never
	}

	// Thousands of nodes share a few groups.
	groups := map[string]bool{}

	return func(n *inventory.Node) bool {
		group, ok := groups[n.Group]
		if !ok {
			group = n.Group == "" || same(state.ScopeGroup(n.Group))
			groups[n.Group] = group
		}

		return group && same(state.ScopeNode(n.Name))
	}
}
