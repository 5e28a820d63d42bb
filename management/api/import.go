// SPDX-License-Identifier: Apache-2.0

package api

import (
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/facts"
)

// MaxImportBytes bounds a list of machines.
const MaxImportBytes = 8 << 20

// Import asks for the machines of a list to be registered.
type Import struct {
	// The list as text: TripleO's instackenv as JSON, YAML or CSV, Bifrost's map, an inventory of Ansible, or what
	// `GET /v1/machines/export` returns.
	File string `json:"file,omitempty"`
	// In place of a list, the nodes that `then` takes.
	Nodes []string `json:"nodes,omitempty"`

	Prune  bool `json:"prune,omitempty"`   // also forget imported machines that the list does not name
	DryRun bool `json:"dry_run,omitempty"` // change nothing, and return what would be done
	// The verbs that follow, in order, such as `manage`: a job each, on the nodes of the list that are Enrolled, also
	// those that it does not change, as far as the job before succeeded for them.
	Then []inventory.Verb `json:"then,omitempty"`
}

// Configure asks for a change of what is registered of nodes that are Manageable. What is absent stays as it is.
type Configure struct {
	Nodes    []string `json:"nodes"`                                // by name
	BootMode string   `json:"boot_mode,omitempty" enum:"bios,uefi"` // the capability boot_mode
	// The hints for the disk of the operating system, by their names in Ironic: a disk of the newest inspection must
	// fit.
	RootDevice map[string]any `json:"root_device,omitempty"`
	// Choose that disk from the newest inspection: `smallest`, of at least 4 GiB, or `largest`.
	RootDeviceStrategy facts.Strategy    `json:"root_device_strategy,omitempty" enum:"smallest,largest"`
	Image              string            `json:"image,omitempty"`       // the operating system to install
	KernelArgs         string            `json:"kernel_args,omitempty"` // the arguments of its kernel
	Labels             map[string]string `json:"labels,omitempty"`      // of the nodes; other labels stay
	Connection         *Connection       `json:"connection,omitempty"`  // for ssh; needs the role admin
	DryRun             bool              `json:"dry_run,omitempty"`     // change nothing, and return what would be done
}

// ImportAction is what an import does with a machine.
type ImportAction string

// The actions.
const (
	ImportCreated ImportAction = "created"
	ImportChanged ImportAction = "changed"
	ImportSame    ImportAction = "same"
	ImportSkipped ImportAction = "skipped" // its node is in service, or held by a job
	ImportRemoved ImportAction = "removed" // by prune
	ImportKept    ImportAction = "kept"    // missing from the list, and not for prune to remove
)

// Imported is the result of an import.
type Imported struct {
	// The machines in the order of the list; with `prune`, then those that are missing from it.
	Machines []ImportedMachine `json:"machines"`
	Warnings []string          `json:"warnings,omitempty"` // about fields of the list
	DryRun   bool              `json:"dry_run,omitempty"`  // nothing was changed
	// The number under which `GET /v1/imports/{id}` shows how far its nodes came; absent: nothing was to be done.
	ID string `json:"id,omitempty"`
	// The jobs that follow and are accepted already: the first of `then`. Absent: no node goes on.
	Jobs     []string `json:"jobs,omitempty"`
	Revision int64    `json:"revision"` // the revision of the store after the import
}

// ImportedMachine is what an import did, or would do, with a machine.
type ImportedMachine struct {
	Node    string         `json:"node"`              // the name of its node
	Action  ImportAction   `json:"action"`            // what was done
	Changes []ImportChange `json:"changes,omitempty"` // the fields that differ
	Reason  string         `json:"reason,omitempty"`  // why it was skipped or kept
	// How the credentials of an Enrolled node can be checked.
	Checks []string `json:"checks,omitempty" enum:"ssh,bmc"`
}

// ImportChange is a changed field of a machine. Secrets and variables have no values.
type ImportChange struct {
	Field  string `json:"field"`            // the name of the field
	Before any    `json:"before,omitempty"` // its value before the import
	After  any    `json:"after,omitempty"`  // its value after the import
}

// ImportRun is an import that was accepted, and how far it came.
type ImportRun struct {
	ID         string           `json:"id"`              // its number
	Actor      string           `json:"actor"`           // who asked for it
	Started    time.Time        `json:"started"`         // when it was accepted
	Registered bool             `json:"registered"`      // whether all machines are registered
	Verbs      []inventory.Verb `json:"verbs,omitempty"` // what follows, in order
	Jobs       []string         `json:"jobs,omitempty"`  // the jobs of these verbs that were accepted, in order
	// Why the next job is not accepted yet; it is asked for again.
	Waits  string         `json:"waits,omitempty"`
	Done   bool           `json:"done"`            // whether it has ended, with all that follows
	Total  int            `json:"total"`           // the nodes that it concerns
	Failed int            `json:"failed"`          // the nodes that stopped on the way
	Nodes  []ImportedNode `json:"nodes,omitempty"` // how far each came; absent in lists
}

// ImportedNode is how far a node of an import came.
type ImportedNode struct {
	Node   string           `json:"node"`             // its name
	Action ImportAction     `json:"action,omitempty"` // what the import did with it
	Status inventory.Status `json:"status,omitempty"` // its status of now; absent: it is no longer known
	// The verb that it waits for, that goes on, or that it stopped at; absent: nothing follows any more.
	Step  inventory.Verb `json:"step,omitempty"`
	Job   string         `json:"job,omitempty"`   // the job of that verb; absent: it has none
	Error string         `json:"error,omitempty"` // why it stopped there, or why it was skipped
}
