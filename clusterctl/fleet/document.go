// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"maps"
	"slices"

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

// The levels of cells, from the whole manager to a node.
const (
	LevelManager = "manager"
	LevelGroup   = "group"
	LevelNode    = "node"
)

// The parts of a level.
const (
	PartSettings   = "settings"
	PartConnection = "connection"
	PartVars       = "vars"
	PartSecrets    = "secrets"
	PartLabels     = "labels"
	PartRules      = "rules"
	PartGroup      = "group" // that a group exists; of the manager: the order of the groups
)

// Cell is the address of one value.
type Cell struct {
	Level string `json:"level"`
	Name  string `json:"name,omitempty"` // of the group or node
	Part  string `json:"part"`
	Key   string `json:"key,omitempty"`
}

// String returns the cell in words.
func (c Cell) String() string {
	item := c.Item()
	if c.Level == LevelManager {
		return item
	}

	return fmt.Sprintf("%s %s: %s", c.Level, c.Name, item)
}

// Item returns the cell in words, without its level and name.
func (c Cell) Item() string {
	switch {
	case c.Part == PartGroup && c.Level == LevelManager:
		return "the order of the groups"
	case c.Part == PartGroup:
		return "the group itself"
	case c.Part == PartSettings:
		return "setting " + c.Key
	}

	words := map[string]string{
		PartConnection: "connection",
		PartVars:       "variable",
		PartSecrets:    "secret",
		PartLabels:     "label",
		PartRules:      "rule",
	}

	return words[c.Part] + " " + c.Key
}

// Where returns the level and the name of the cell in words.
func (c Cell) Where() string {
	switch {
	case c.Level != LevelManager:
		return c.Level + " " + c.Name
	case c.Part == PartVars, c.Part == PartSecrets, c.Part == PartConnection:
		return "every node"
	}

	return "manager"
}

// compareCells orders cells as a file does.
func compareCells(a, b Cell) int {
	rank := func(c Cell) int {
		return slices.Index([]string{LevelManager, LevelGroup, LevelNode}, c.Level)*10 +
			slices.Index([]string{
				PartGroup, PartSettings, PartRules, PartLabels, PartConnection, PartVars, PartSecrets,
			}, c.Part)
	}

	return cmpOr(rank(Cell{Level: a.Level})-rank(Cell{Level: b.Level}), compareText(a.Name, b.Name), rank(a)-rank(b),
		compareText(a.Key, b.Key))
}

// Place is a position in a fleet file.
type Place struct {
	File         string
	Line, Column int // from 1
}

func (p Place) String() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column) }

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
