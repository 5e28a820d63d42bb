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

// FleetRequest is fleet files to compare with the manager.
type FleetRequest struct {
	// The files, which are merged: each value may be in one of them only.
	Files []FleetFile `json:"files" type:"array,null"`
	// Remove what the sections of the files do not name.
	Prune bool `json:"prune,omitempty"`
	// Leave out the nodes and secrets that the manager does not have.
	IgnoreMissing bool `json:"ignore_missing,omitempty"`
	// Write secrets with a source even where the manager has a value.
	RewriteSecrets bool `json:"rewrite_secrets,omitempty"`
}

// FleetFile is one file.
type FleetFile struct {
	Name string `json:"name"` // the name in positions
	Text string `json:"text"` // the file in YAML or JSON
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
	Level string `json:"level" enum:"manager,group,node"` // whose value it is
	Name  string `json:"name,omitempty"`                  // the group or node
	// The section. `group` is the group itself; of the manager, the order of the groups.
	Part string `json:"part" enum:"settings,connection,vars,secrets,labels,rules,group"`
	Key  string `json:"key,omitempty"` // the key in the section
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
	// False: there is nothing to do.
	Differs bool          `json:"differs"`
	Changes []FleetChange `json:"changes,omitempty"` // the values that differ
	Jobs    []FleetJob    `json:"jobs,omitempty"`    // the jobs, in order
	// Jobs that have to end before the next steps of their nodes can be decided. Compare
	// again then.
	Waits     []FleetWait `json:"waits,omitempty"`
	Obstacles []string    `json:"obstacles,omitempty"` // the reasons why a job would be refused now
	Skipped   []string    `json:"skipped,omitempty"`   // what `ignore_missing` leaves out
	// The reason why settings, groups and connections were not checked: the caller may not
	// change them.
	Unchecked string      `json:"unchecked,omitempty"`
	Steps     []FleetStep `json:"steps,omitempty"` // the steps that carry it out, in order
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
	Action string `json:"action" enum:"add,change,remove"` // what is done
	Before any    `json:"before,omitempty"`                // the value on the manager; absent for none
	After  any    `json:"after,omitempty"`                 // the value of the file; absent for none
	// It comes after the jobs, which need the value.
	Late bool `json:"late,omitempty"`
}

// FleetJob is a job that brings nodes into a group or out of service.
type FleetJob struct {
	Verb  inventory.Verb `json:"verb"`
	Group string         `json:"group,omitempty"` // the group after the job; absent for none
	Nodes []string       `json:"nodes"`           // the nodes
}

// Leaves reports whether the nodes are out of service after the job.
func (j FleetJob) Leaves() bool {
	row, _ := inventory.TransitionOf(j.Verb)
	return row.Success != inventory.Allocated
}

// FleetWait is a job that decides about nodes of the files.
type FleetWait struct {
	Job   string         `json:"job"` // the id of the job
	Verb  inventory.Verb `json:"verb"`
	Nodes []string       `json:"nodes"` // its nodes in the files
}

// FleetStep is one step of a difference: either `apply` or `job`.
//
// It is carried out as a whole or not at all.
type FleetStep struct {
	Title string      `json:"title"`           // the step in words
	Apply *FleetApply `json:"apply,omitempty"` // the body for `POST /v1/fleet/apply`
	Job   *JobRequest `json:"job,omitempty"`   // the body for `POST /v1/jobs`
}

// FleetApply is changes of values of one record.
//
// Each has the condition that the value is as it was when the difference was made.
type FleetApply struct {
	Changes []FleetWrite `json:"changes" type:"array,null"` // the changes
	// The order of the groups after a change of the configuration.
	Groups []string `json:"groups,omitempty" type:"array,null"`
	// An earlier attempt got no answer and may have been carried out: a secret may have its
	// new value.
	Again bool `json:"again,omitempty"`
}

// FleetWrite is the change of one value.
type FleetWrite struct {
	FleetCell
	// The value that it has to have; null or absent for none.
	From json.RawMessage `json:"from,omitempty" type:"object,array,string,number,boolean,null"`
	// The new value; null or absent to remove it.
	To json.RawMessage `json:"to,omitempty" type:"object,array,string,number,boolean,null"`
	// The source of a secret. Whoever carries the step out reads it, and sends `to` instead.
	Secret *FleetSecret `json:"secret,omitempty"`
}

// FleetSecret is the source of a secret in a fleet file.
type FleetSecret struct {
	// The file with the value; a relative path begins at the folder of the fleet file.
	File string     `json:"file,omitempty"`
	Env  string     `json:"env,omitempty"` // the environment variable with the value
	At   FleetPlace `json:"at"`
}

// FleetPlace is a position in a fleet file.
type FleetPlace struct {
	File   string `json:"file"`   // the name of the file
	Line   int    `json:"line"`   // the line, from 1
	Column int    `json:"column"` // the column, from 1
}

func (p FleetPlace) String() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column) }
