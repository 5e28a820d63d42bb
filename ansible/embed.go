// SPDX-License-Identifier: Apache-2.0

// Package ansible holds the configuration repository that comes with the
// manager: playbooks, the roles they use, and the callback plugin that turns a
// run of ansible-playbook into events. The files are part of the program, so
// that it needs nothing else installed; they work from a checkout as well.
//
// docs/playbooks.md says what the manager passes to a playbook and expects of
// it.
package ansible

import (
	"embed"
	"io/fs"
)

// Paths of what is in FS.
const (
	// CallbackDir is the folder of the callback plugin clusterm_events.
	CallbackDir = "plugins/callback"
	// RolesDir is the folder of the roles.
	RolesDir = "roles"
)

// Python's own leavings beside the plugins are not matched by the patterns.
//
//go:embed *.yml plugins/callback/*.py
//go:embed roles/*/defaults roles/*/files roles/*/meta roles/*/tasks roles/*/templates roles/*/vars
//go:embed roles/*/filter_plugins/*.py
var files embed.FS

// FS returns the repository: site.yml, cleanup.yml, verify.yml and
// rolling-upgrade.yml at its top, roles and plugins in folders beside them. It
// is read-only and safe for concurrent use.
func FS() fs.FS { return files }
