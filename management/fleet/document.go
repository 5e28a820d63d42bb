// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// Version is the version of the format, the value of the key fleet.
const Version = 1

// NoGroup is the group of a node that is to be out of service.
const NoGroup = "none"

// File is the form of a fleet file. Its types, tags and order are the grammar: the
// reader, the schema and the export follow them. Values that a file does not name stay
// as they are.
type File struct {
	Fleet      int               `json:"fleet"`
	Settings   map[string]any    `json:"settings,omitempty"`
	Connection *api.Connection   `json:"connection,omitempty"`
	Vars       map[string]any    `json:"vars,omitempty"`
	Secrets    map[string]Secret `json:"secrets,omitempty"`
	Groups     map[string]Group  `json:"groups,omitempty"`
	Nodes      map[string]Node   `json:"nodes,omitempty"`
}

// Group is a group in a fleet file, besides the fields of inventory.Group that are its
// rules.
type Group struct {
	Rule       inventory.Group   `json:",inline"`
	Selector   string            `json:"selector,omitempty"`
	Connection *api.Connection   `json:"connection,omitempty"`
	Vars       map[string]any    `json:"vars,omitempty"`
	Secrets    map[string]Secret `json:"secrets,omitempty"`
}

// Node is a node in a fleet file.
type Node struct {
	Group      string            `json:"group,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	Connection *api.Connection   `json:"connection,omitempty"`
	Vars       map[string]any    `json:"vars,omitempty"`
	Secrets    map[string]Secret `json:"secrets,omitempty"`
}

// Secret is a secret variable in a fleet file: the word keep, or the source of its
// value on the host of clusterctl.
type Secret struct {
	File string `json:"file,omitempty"`
	Env  string `json:"env,omitempty"`
}

// Keep is the secret that stays as it is.
const Keep = "keep"

// Cell is the address of one value.
type Cell = api.FleetCell

// The levels and parts of cells, in the order of a file.
var (
	levels = []string{api.LevelManager, api.LevelGroup, api.LevelNode}
	parts  = []string{
		api.PartGroup,
		api.PartSettings,
		api.PartRules,
		api.PartLabels,
		api.PartConnection,
		api.PartVars,
		api.PartSecrets,
	}
)

// compareCells orders cells as a file does.
func compareCells(a, b Cell) int {
	rank := func(c Cell) int { return slices.Index(levels, c.Level)*10 + slices.Index(parts, c.Part) }

	return cmp.Or(
		rank(Cell{Level: a.Level})-rank(Cell{Level: b.Level}),
		strings.Compare(a.Name, b.Name),
		rank(a)-rank(b),
		strings.Compare(a.Key, b.Key),
	)
}

// Place is a position in a fleet file.
type Place = api.FleetPlace

// Want is one value of a file. nil removes the value.
type Want struct {
	Cell
	Value any
	At    Place
}

// Member is the group of a node in a file.
type Member struct {
	Group string // or NoGroup
	At    Place
}

// Selected is the selector of a group.
type Selected struct {
	Selector string
	At       Place
}

// Document is the content of one or more files, before the comparison with a manager.
type Document struct {
	Wants     []Want // in the order of the files
	Groups    []string
	Nodes     []string
	Members   map[string]Member   // by node
	Selectors map[string]Selected // by group
	// Sections are the top-level keys that the files have, and Places the positions of
	// groups ("group NAME") and nodes ("node NAME").
	Sections map[string]Place
	Places   map[string]Place
}

// names reports whether the section nodes has the node.
func (d *Document) names(node string) bool {
	_, named := d.Places["node "+node]
	return named
}

// sortedGroups returns the groups with a selector.
func (d *Document) sortedGroups() []string { return slices.Sorted(maps.Keys(d.Selectors)) }
