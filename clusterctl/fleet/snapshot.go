// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
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

	Vars  map[string]configuration.Vars // by scope: global, group/NAME, node/NAME
	Nodes []api.Node                    // sorted by name
	Jobs  []api.Job                     // that have not ended
}

// Config is the part of a snapshot that the configuration of the manager contains.
type Config struct {
	Settings map[string]Setting
	Groups   []map[string]any          // rules with their names, in order
	GroupSSH map[string]map[string]any // connections of groups
}

// Setting is one setting in force.
type Setting struct {
	Value    any
	Origin   string
	Settable bool
}

// The origins of a setting, as in api.Setting.
const (
	originDefault = "default"
	originOverlay = "overlay"
)

// Load reads a manager: settings, groups, variables and nodes as of one revision.
func Load(ctx context.Context, m *client.Client) (*Snapshot, error) {
	who, err := m.WhoAmI(ctx)
	if err != nil {
		return nil, err
	}

	s := &Snapshot{Vars: map[string]configuration.Vars{}, Partial: who.Scope != nil, Scope: who.Scope.String()}
	kinds := []api.WatchKind{api.WatchNodes, api.WatchVars, api.WatchJobs}

	if s.Partial {
		if s.Config, err = groupsOnly(ctx, m); err != nil {
			return nil, err
		}
	} else {
		kinds = append(kinds, api.WatchConfig)
	}

	// The beginning of a watch is the state as of one revision, in one request.
	for change, err := range m.Newest().Watch(ctx, client.WatchOptions{Kinds: kinds}) {
		if err != nil {
			return nil, err
		}

		if change.Type == api.ChangeSync {
			break
		}

		if err := s.add(change); err != nil {
			return nil, err
		}
	}

	slices.SortFunc(s.Nodes, func(a, b api.Node) int { return strings.Compare(a.Name, b.Name) })

	return s, nil
}

// add adds an object of the watch.
func (s *Snapshot) add(c api.Change) (err error) {
	if c.Type != api.ChangePut {
		return nil
	}

	switch c.Kind {
	case api.WatchNodes:
		n, err := c.Node()
		s.Nodes = append(s.Nodes, n)

		return err
	case api.WatchJobs:
		j, err := c.Job()
		if err == nil && !j.Status.Ended() {
			s.Jobs = append(s.Jobs, j)
		}

		return err
	case api.WatchVars:
		s.Vars[c.Name], err = configuration.ParseJSONVars(c.Object)
	case api.WatchConfig:
		values, err := configuration.ParseJSONVars(c.Object)
		if err != nil {
			return err
		}

		s.Config, err = configOf(values)

		return err
	}

	return err
}

// groupsOnly returns the configuration for a caller with a scope.
func groupsOnly(ctx context.Context, m *client.Client) (Config, error) {
	groups, err := m.Groups(ctx)
	if err != nil {
		return Config{}, err
	}

	v, err := normal(groups.Items)
	if err != nil {
		return Config{}, err
	}

	return Config{Groups: mappings(v)}, nil
}

// readConfig returns the configuration as it is now, with its tag.
func readConfig(ctx context.Context, m *client.Client) (Config, string, error) {
	all, tag, err := m.Newest().TaggedConfig(ctx)
	if err != nil {
		return Config{}, "", err
	}

	v, err := normal(all)
	if err != nil {
		return Config{}, "", err
	}

	values, _ := v.(map[string]any)
	c, err := configOf(values)

	return c, tag, err
}

// configOf returns the configuration in the settings by key.
func configOf(values map[string]any) (Config, error) {
	c := Config{Settings: map[string]Setting{}, GroupSSH: map[string]map[string]any{}}

	for key, v := range values {
		fields, ok := v.(map[string]any)
		if !ok {
			return c, inventory.Errorf(inventory.KindInternal, "the setting %s of the manager has no value", key)
		}

		origin, _ := fields["origin"].(string)
		settable, _ := fields["settable"].(bool)
		c.Settings[key] = Setting{fields["value"], origin, settable}
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
		maps.Copy(cells, nodeCells(n))
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
				cells[Cell{LevelManager, "", PartConnection, name}] = setting.Value
			}
		case setting.Settable && setting.Origin != originDefault:
			cells[Cell{LevelManager, "", PartSettings, key}] = setting.Value
		}
	}

	for _, g := range c.Groups {
		name := fmt.Sprint(g["name"])
		cells[Cell{LevelGroup, name, PartGroup, ""}] = true

		for key, value := range g {
			if key != "name" && !isZero(value) {
				cells[Cell{LevelGroup, name, PartRules, key}] = value
			}
		}
	}

	for name, connection := range c.GroupSSH {
		for key, value := range connection {
			if !isZero(value) {
				cells[Cell{LevelGroup, name, PartConnection, key}] = value
			}
		}
	}

	return cells
}

// removable reports whether the value of a cell can be removed: of the settings, only
// those that were set at run time can.
func (c Config) removable(at Cell) bool {
	if at.Level != LevelManager || at.Part != PartSettings && at.Part != PartConnection {
		return true
	}

	return c.Settings[settingOf(at)].Origin == originOverlay
}

// settingOf returns the key of the setting in a cell of the manager.
func settingOf(at Cell) string {
	if at.Part == PartConnection {
		return settingSSH + at.Key
	}

	return at.Key
}

// cellOf returns the level of a scope of variables: global, group/NAME or node/NAME.
func cellOf(scope string) Cell {
	level, name, named := strings.Cut(scope, "/")
	if !named {
		level = LevelManager
	}

	return Cell{Level: level, Name: name}
}

// scopeOf returns the scope of variables of a cell.
func scopeOf(c Cell) client.Scope {
	switch c.Level {
	case LevelGroup:
		return client.ScopeGroup(c.Name)
	case LevelNode:
		return client.ScopeNode(c.Name)
	}

	return client.ScopeGlobal
}

// varCell returns the cell of a variable. One with a hidden value is a secret.
func varCell(base Cell, key string, value any) Cell {
	base.Part, base.Key = PartVars, key
	if value == configuration.Hidden {
		base.Part = PartSecrets
	}

	return base
}

// nodeCells returns the labels and the connection of a node.
func nodeCells(n api.Node) map[Cell]any {
	cells := map[Cell]any{}

	for key, value := range n.Labels {
		cells[Cell{LevelNode, n.Name, PartLabels, key}] = value
	}

	for key, value := range connectionValues(n.Connection) {
		cells[Cell{LevelNode, n.Name, PartConnection, key}] = value
	}

	return cells
}

// connectionValues returns the settings of a connection that are set.
func connectionValues(c *api.Connection) map[string]any {
	if c == nil {
		return nil
	}

	v, err := normal(c)
	if err != nil {
		return nil
	}

	values, _ := v.(map[string]any)

	return values
}

// node returns the node of that name.
func (s *Snapshot) node(name string) (api.Node, bool) {
	i, ok := slices.BinarySearchFunc(s.Nodes, name, func(n api.Node, name string) int {
		return strings.Compare(n.Name, name)
	})
	if !ok {
		return api.Node{}, false
	}

	return s.Nodes[i], true
}

// nodeNames returns the names of the nodes.
func (s *Snapshot) nodeNames() []string {
	names := make([]string, len(s.Nodes))
	for i, n := range s.Nodes {
		names[i] = n.Name
	}

	return names
}
