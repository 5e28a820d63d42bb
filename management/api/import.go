// SPDX-License-Identifier: Apache-2.0

package api

import "github.com/contiv/cluster/inventory"

// MaxImportBytes bounds a list of machines.
const MaxImportBytes = 8 << 20

// Import asks for the machines of a list to be registered.
type Import struct {
	// The list as text: TripleO's instackenv as JSON, YAML or CSV, Bifrost's map, an inventory of Ansible, or what
	// `GET /v1/machines/export` returns.
	File   string `json:"file"`
	Prune  bool   `json:"prune,omitempty"`   // also forget imported machines that the list does not name
	DryRun bool   `json:"dry_run,omitempty"` // change nothing, and return what would be done
	// The verbs that follow, in order, such as `manage`: a job each, on the created nodes and the changed ones that
	// are Enrolled, as far as the job before succeeded for them.
	Then []inventory.Verb `json:"then,omitempty"`
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
