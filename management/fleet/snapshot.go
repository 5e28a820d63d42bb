// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// The settings that other parts of a file describe.
const (
	settingGroups   = "groups"
	settingGroupSSH = "group_ssh"
	settingSSH      = "ssh." // and a key of api.Connection
	settingSecrets  = "secret_vars"
)

// Snapshot is the state of a manager, as far as the caller may see it.
type Snapshot struct {
	Config Config
	// Partial is set for a caller with a scope: the settings, the connection and the
	// variables of every node, and the connections of groups are not part of the
	// snapshot. Scope describes it.
	Partial bool
	Scope   string

	Vars        map[string]configuration.Vars // by scope: global, group/NAME, node/NAME; secrets hidden
	Nodes       []*inventory.Node             // sorted by name
	Connections map[string]*configuration.Connection
	Jobs        []*job.Job // that have not ended
}

// Config is the part of a snapshot that the configuration of the manager contains.
type Config struct {
	Settings api.Config                // values in the normal form
	Groups   []map[string]any          // rules with their names, in order
	GroupSSH map[string]map[string]any // connections of groups
}

// The origins of a setting, as in api.Setting.
const (
	originDefault = "default"
	originOverlay = "overlay"
)

// load reads what the caller may see in the view.
func (m Manager) load(v *state.Scoped, scope access.Scope) (*Snapshot, error) {
	s := &Snapshot{
		Partial: !v.All(), Scope: scope.String(), Vars: map[string]configuration.Vars{},
		Nodes: v.Nodes(), Connections: maps.Collect(record.All(v.View, &state.Connections)),
	}

	for _, j := range v.Jobs() {
		if !j.Status.Ended() {
			s.Jobs = append(s.Jobs, j)
		}
	}

	hide := m.Variables.Hider()
	for scope, vars := range record.All(v, &state.Variables) {
		s.Vars[scope] = hide(vars.Vars)
	}

	var err error
	s.Config, err = m.config(v)

	return s, err
}

// config returns the configuration in force; for a caller with a scope, its groups only.
func (m Manager) config(v *state.Scoped) (Config, error) {
	if !v.All() {
		groups, err := normal(v.Groups(m.Settings.Groups()))
		return Config{Groups: mappings(groups)}, err
	}

	c := Config{Settings: api.Config{}, GroupSSH: map[string]map[string]any{}}

	for key, s := range m.Settings.Config() {
		var err error
		if s.Value, err = normal(s.Value); err != nil {
			return c, err
		}

		c.Settings[key] = s
	}

	c.Groups = mappings(c.Settings[settingGroups].Value)

	groups, _ := c.Settings[settingGroupSSH].Value.(map[string]any)
	for name, v := range groups {
		c.GroupSSH[name], _ = v.(map[string]any)
	}

	return c, nil
}

// mappings returns the mappings in a list.
func mappings(v any) []map[string]any {
	list, _ := v.([]any)

	var out []map[string]any
	for _, e := range list {
		if m, ok := e.(map[string]any); ok {
			out = append(out, m)
		}
	}

	return out
}

// names returns the names of the groups, in order.
func (c Config) names() []string {
	var names []string
	for _, g := range c.Groups {
		names = append(names, fmt.Sprint(g["name"]))
	}

	return names
}

// rules returns the groups with the rules that this program knows.
func (c Config) rules() inventory.Groups {
	var groups inventory.Groups
	for _, g := range c.Groups {
		groups = append(groups, inventory.Group{Name: fmt.Sprint(g["name"]), Requires: requirementsOf(g[ruleRequires])})
	}

	return groups
}

// ruleRequires is the rule on which the order of jobs depends.
const ruleRequires = "requires"

// requirementsOf returns the requirements of a group as they are in a snapshot or a file.
func requirementsOf(v any) inventory.Requirements {
	values, _ := v.(map[string]any)

	out := inventory.Requirements{}
	for name, v := range values {
		if least, ok := v.(int64); ok {
			out[name] = int(least)
		}
	}

	return out
}

// connectionKeys are the settings of a connection, as in a file and in the settings.
var connectionKeys = namesOf(fieldsOf(reflect.TypeFor[api.Connection]()))

// isConnection reports whether a setting is one of the site's connection.
func isConnection(key string) bool {
	name, ok := strings.CutPrefix(key, settingSSH)
	return ok && slices.Contains(connectionKeys, name)
}

// Cells returns every value of the snapshot that a file can hold. Values at their
// default are not part of it.
func (s *Snapshot) Cells() map[Cell]any {
	cells := s.Config.cells()

	for scope, vars := range s.Vars {
		base := cellOf(scope)
		for key, value := range vars {
			// In a file, null stands for no value.
			if value != nil {
				cells[varCell(base, key, value)] = value
			}
		}
	}

	for _, n := range s.Nodes {
		maps.Copy(cells, nodeCells(n, s.Connections[n.Name]))
	}

	return cells
}

// cells returns the values of the configuration.
func (c Config) cells() map[Cell]any {
	cells := map[Cell]any{}

	for key, setting := range c.Settings {
		name, site := strings.CutPrefix(key, settingSSH)

		switch {
		case key == settingGroups, key == settingGroupSSH:
		case site && isConnection(key):
			// An empty value that was set at run time overrides the configuration file.
			if setting.Origin == originOverlay || !isZero(setting.Value) {
				cells[Cell{Level: api.LevelManager, Part: api.PartConnection, Key: name}] = setting.Value
			}
		case setting.Settable && setting.Origin != originDefault:
			cells[Cell{Level: api.LevelManager, Part: api.PartSettings, Key: key}] = setting.Value
		}
	}

	for _, g := range c.Groups {
		name := fmt.Sprint(g["name"])
		cells[Cell{Level: api.LevelGroup, Name: name, Part: api.PartGroup}] = true

		for key, value := range g {
			if key != "name" && !isZero(value) {
				cells[Cell{Level: api.LevelGroup, Name: name, Part: api.PartRules, Key: key}] = value
			}
		}
	}

	for name, connection := range c.GroupSSH {
		for key, value := range connection {
			if !isZero(value) {
				cells[Cell{Level: api.LevelGroup, Name: name, Part: api.PartConnection, Key: key}] = value
			}
		}
	}

	return cells
}

// removable reports whether the value of a cell can be removed: of the settings, only
// those that were set at run time can.
func (c Config) removable(at Cell) bool {
	if at.Level != api.LevelManager || at.Part != api.PartSettings && at.Part != api.PartConnection {
		return true
	}
	return c.Settings[settingOf(at)].Origin == originOverlay
}

// settingOf returns the key of the setting in a cell of the manager.
func settingOf(at Cell) string {
	if at.Part == api.PartConnection {
		return settingSSH + at.Key
	}
	return at.Key
}

// cellOf returns the level of a scope of variables: global, group/NAME or node/NAME.
func cellOf(scope string) Cell {
	level, name, named := strings.Cut(scope, "/")
	if !named {
		level = api.LevelManager
	}
	return Cell{Level: level, Name: name}
}

// scopeOf returns the scope of variables of a cell.
func scopeOf(c Cell) state.Scope {
	switch c.Level {
	case api.LevelGroup:
		return state.ScopeGroup(c.Name)
	case api.LevelNode:
		return state.ScopeNode(c.Name)
	}

	return state.ScopeGlobal
}

// varCell returns the cell of a variable. One with a hidden value is a secret.
func varCell(base Cell, key string, value any) Cell {
	base.Part, base.Key = api.PartVars, key
	if value == configuration.Hidden {
		base.Part = api.PartSecrets
	}
	return base
}

// nodeCells returns the labels and the connection of a node.
func nodeCells(n *inventory.Node, connection *configuration.Connection) map[Cell]any {
	cells := map[Cell]any{}

	for key, value := range n.Labels {
		cells[Cell{Level: api.LevelNode, Name: n.Name, Part: api.PartLabels, Key: key}] = value
	}

	for key, value := range connectionValues(connection) {
		cells[Cell{Level: api.LevelNode, Name: n.Name, Part: api.PartConnection, Key: key}] = value
	}

	return cells
}

// connectionValues returns the settings of a connection that are set and that an operator
// can set.
func connectionValues(c *configuration.Connection) map[string]any {
	if c == nil {
		return nil
	}

	v, err := normal(c)
	if err != nil {
		return nil
	}
	values, _ := v.(map[string]any)
	maps.DeleteFunc(values, func(key string, _ any) bool { return !slices.Contains(connectionKeys, key) })

	return values
}

// node returns the node of that name, or nil.
func (s *Snapshot) node(name string) *inventory.Node { return job.Find(s.Nodes, name) }

// nodeNames returns the names of the nodes.
func (s *Snapshot) nodeNames() []string {
	names := make([]string, len(s.Nodes))
	for i, n := range s.Nodes {
		names[i] = n.Name
	}

	return names
}
