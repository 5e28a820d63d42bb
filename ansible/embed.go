// SPDX-License-Identifier: Apache-2.0

// Package ansible embeds the bundled playbooks: playbooks, roles, and the plugins
// that report a run of ansible-playbook as events, keep its facts and fence its hosts. The files
// are part of the program, so that it needs no others installed. They also
// work from a checkout.
//
// docs/playbooks.md describes the interface between manager and playbooks.
package ansible

import (
	"embed"
	"io/fs"
)

// Paths in FS.
const (
	// CallbackDir is the folder of the callback plugin clusterm_events.
	CallbackDir = "plugins/callback"
	// CacheDir is the folder of the cache plugin clusterm_facts.
	CacheDir = "plugins/cache"
	// ConnectionDir is the folder of the connection plugin ssh, which puts a fence on the hosts.
	ConnectionDir = "plugins/connection"
	// RolesDir is the folder of the roles.
	RolesDir = "roles"
)

// The patterns do not match __pycache__.
//
//go:embed *.yml plugins/callback/*.py plugins/cache/*.py plugins/connection/*.py plugins/connection/*.sh
//go:embed roles/*/defaults roles/*/files roles/*/meta roles/*/tasks roles/*/templates roles/*/vars
//go:embed roles/*/filter_plugins/*.py
var files embed.FS

// FS returns the bundled playbooks: site.yml, cleanup.yml, clean.yml, erase.yml,
// verify.yml, rolling-upgrade.yml and discover-undo.yml, and the folders roles and plugins. It is read-only and
// safe for concurrent use.
func FS() fs.FS { return files }
