// SPDX-License-Identifier: Apache-2.0

package api

import (
	_ "embed" // the schema
	"encoding/json"
	"fmt"

	"github.com/contiv/cluster/inventory"
)

// MaxFleetBytes bounds the text of the files in a FleetRequest.
const MaxFleetBytes = 16 << 20

// FleetSchema is the JSON schema of fleet files, for editors. It is generated from the
// types of management/fleet.
//
//go:embed fleet.schema.json
var FleetSchema []byte

// FleetRequest asks for the difference between fleet files and the manager.
type FleetRequest struct {
	// Files are merged: each value may be in one of them only.
	Files []FleetFile `json:"files"`
	// Prune removes the values that the sections of the files do not name.
	Prune bool `json:"prune,omitempty"`
	// IgnoreMissing leaves out the nodes and secrets that the manager does not have,
	// instead of refusing the files.
	IgnoreMissing bool `json:"ignore_missing,omitempty"`
	// RewriteSecrets writes secrets with a source even where the manager has one.
	RewriteSecrets bool `json:"rewrite_secrets,omitempty"`
}

// FleetFile is one file, in YAML or JSON.
type FleetFile struct {
	Name string `json:"name"` // for positions in errors
	Text string `json:"text"`
}

// The levels of a FleetCell, from the whole manager to a node.
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

// FleetCell is the address of one value of a fleet file.
type FleetCell struct {
	Level string `json:"level"`
	Name  string `json:"name,omitempty"` // of the group or node
	Part  string `json:"part"`
	Key   string `json:"key,omitempty"`
}

// String returns the cell in words.
func (c FleetCell) String() string {
	item := c.Item()
	if c.Level == LevelManager {
		return item
	}

	return fmt.Sprintf("%s %s: %s", c.Level, c.Name, item)
}

// Item returns the cell in words, without its level and name.
func (c FleetCell) Item() string {
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
func (c FleetCell) Where() string {
	switch {
	case c.Level != LevelManager:
		return c.Level + " " + c.Name
	case c.Part == PartVars, c.Part == PartSecrets, c.Part == PartConnection:
		return "every node"
	}

	return "manager"
}

// FleetDiff is the difference between fleet files and the manager.
type FleetDiff struct {
	Differs bool          `json:"differs"`
	Changes []FleetChange `json:"changes,omitempty"`
	Jobs    []FleetJob    `json:"jobs,omitempty"`
	// Waits are the jobs that have to end before the next steps of their nodes can be
	// decided.
	Waits []FleetWait `json:"waits,omitempty"`
	// Obstacles are the reasons why a job would be refused now.
	Obstacles []string `json:"obstacles,omitempty"`
	// Skipped are the parts of the files that IgnoreMissing leaves out.
	Skipped []string `json:"skipped,omitempty"`
	// Unchecked is the reason why the settings and groups were not checked: the caller may
	// not change them.
	Unchecked string `json:"unchecked,omitempty"`
	// Steps carry the difference out, in this order.
	Steps []FleetStep `json:"steps,omitempty"`
}

// Leaving returns the nodes that are out of service after the jobs.
func (d FleetDiff) Leaving() []string {
	var names []string
	for _, j := range d.Jobs {
		if j.Leaves() {
			names = append(names, j.Nodes...)
		}
	}

	return names
}

// The actions of a FleetChange.
const (
	FleetAdd     = "add"
	FleetReplace = "change"
	FleetRemove  = "remove"
)

// FleetChange is one value that differs. Secrets are hidden.
type FleetChange struct {
	FleetCell
	Action string `json:"action"` // add, change, remove
	Before any    `json:"before,omitempty"`
	After  any    `json:"after,omitempty"`
	// Late: it comes after the jobs, because they need the value.
	Late bool `json:"late,omitempty"`
}

// FleetJob is a job that brings nodes into a group or out of service.
type FleetJob struct {
	Verb  inventory.Verb `json:"verb"`
	Group string         `json:"group,omitempty"`
	Nodes []string       `json:"nodes"`
}

// Leaves reports whether the nodes are out of service after the job.
func (j FleetJob) Leaves() bool {
	row, _ := inventory.TransitionOf(j.Verb)
	return row.Success != inventory.Allocated
}

// FleetWait is a job that decides about nodes of a fleet file.
type FleetWait struct {
	Job   string         `json:"job"`
	Verb  inventory.Verb `json:"verb"`
	Nodes []string       `json:"nodes"`
}

// FleetStep is one request of a difference. It is carried out as a whole or not at all.
type FleetStep struct {
	Title string      `json:"title"`
	Apply *FleetApply `json:"apply,omitempty"` // the body for PathFleetApply
	Job   *JobRequest `json:"job,omitempty"`   // the body for PathJobs
}

// FleetApply changes values of one record, each on the condition that it is as it was when
// the difference was made.
type FleetApply struct {
	Changes []FleetWrite `json:"changes"`
	// Groups is the order of the groups after a change of the configuration.
	Groups []string `json:"groups,omitempty"`
	// Again: an earlier attempt may have been carried out, so a secret may have its new value.
	Again bool `json:"again,omitempty"`
}

// FleetWrite is the change of one value.
type FleetWrite struct {
	FleetCell
	From json.RawMessage `json:"from,omitempty"` // as it has to be; null or absent: not set
	To   json.RawMessage `json:"to,omitempty"`   // null or absent: it is removed
	// Secret is the source of a secret. Whoever applies the difference reads it, and
	// writes To instead.
	Secret *FleetSecret `json:"secret,omitempty"`
}

// FleetSecret is the source of a secret in a fleet file.
type FleetSecret struct {
	File string     `json:"file,omitempty"`
	Env  string     `json:"env,omitempty"`
	At   FleetPlace `json:"at"`
}

// FleetPlace is a position in a fleet file.
type FleetPlace struct {
	File   string `json:"file"`
	Line   int    `json:"line"` // from 1
	Column int    `json:"column"`
}

func (p FleetPlace) String() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column) }
