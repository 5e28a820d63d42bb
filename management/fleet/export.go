// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// Mapping is a mapping with an order of its keys.
type Mapping struct {
	keys   []string
	values map[string]any
}

// set adds a key, unless the value is an empty mapping and optional.
func (m *Mapping) set(key string, value any, optional bool) {
	if part, ok := value.(*Mapping); ok && optional && len(part.keys) == 0 {
		return
	}

	if m.values == nil {
		m.values = map[string]any{}
	}

	if _, has := m.values[key]; !has {
		m.keys = append(m.keys, key)
	}

	m.values[key] = value
}

// MarshalJSON writes the keys in their order.
func (m *Mapping) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer

	b.WriteByte('{')

	for i, key := range m.keys {
		if i > 0 {
			b.WriteByte(',')
		}

		name, err := json.Marshal(key)
		if err != nil {
			return nil, err
		}

		value, err := json.Marshal(m.values[key])
		if err != nil {
			return nil, err
		}

		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}

	b.WriteByte('}')

	return b.Bytes(), nil
}

// Export returns the fleet file of a manager, in the form of File. It has every section
// that the caller may see, so that applied with Prune it is complete. Secrets are kept,
// never written. A node that a job holds, or that is Quarantined, has no group in it.
func Export(s *Snapshot) *Mapping {
	parts := map[Cell]map[string]any{} // by the cell without its key
	for cell, value := range s.Cells() {
		at := cell
		at.Key = ""

		if parts[at] == nil {
			parts[at] = map[string]any{}
		}

		if cell.Part == api.PartSecrets {
			value = Keep
		}

		parts[at][cell.Key] = value
	}

	section := func(level, name, part string) *Mapping {
		out := &Mapping{}

		values := parts[Cell{Level: level, Name: name, Part: part}]
		for _, key := range slices.Sorted(maps.Keys(values)) {
			out.set(key, values[key], false)
		}

		return out
	}

	file := &Mapping{}
	file.set("fleet", Version, false)

	if !s.Partial {
		file.set(api.PartSettings, section(api.LevelManager, "", api.PartSettings), false)
		file.set(api.PartConnection, section(api.LevelManager, "", api.PartConnection), false)
		file.set(api.PartVars, section(api.LevelManager, "", api.PartVars), false)
		file.set(api.PartSecrets, section(api.LevelManager, "", api.PartSecrets), false)
	}

	file.set("groups", exportGroups(s, section), false)
	file.set("nodes", exportNodes(s, section), false)

	return file
}

func exportGroups(s *Snapshot, section func(level, name, part string) *Mapping) *Mapping {
	groups := &Mapping{}

	for _, name := range append(s.Config.names(), inventory.GroupPrepare) {
		group := section(api.LevelGroup, name, api.PartRules)
		for _, part := range []string{api.PartConnection, api.PartVars, api.PartSecrets} {
			group.set(part, section(api.LevelGroup, name, part), true)
		}

		// Its hosts are being prepared: it is no group of nodes.
		groups.set(name, group, name == inventory.GroupPrepare)
	}

	return groups
}

func exportNodes(s *Snapshot, section func(level, name, part string) *Mapping) *Mapping {
	nodes := &Mapping{}

	for _, n := range s.Nodes {
		node := &Mapping{}
		if group := groupOf(n); group != "" {
			node.set("group", group, false)
		}
		for _, part := range []string{api.PartLabels, api.PartConnection, api.PartVars, api.PartSecrets} {
			node.set(part, section(api.LevelNode, n.Name, part), true)
		}

		nodes.set(n.Name, node, false)
	}

	return nodes
}

// groupOf returns the group of a node in a file; "" if it is not decided now.
func groupOf(n *inventory.Node) string {
	switch serving(n).Status {
	case inventory.Allocated:
		return n.Group
	case inventory.Unallocated, inventory.Decommissioned:
		return NoGroup
	}

	return ""
}
