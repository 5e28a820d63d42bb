// SPDX-License-Identifier: Apache-2.0

package api

import "strings"

// FormerKey is a key in the configuration of the first generation. It has one of Now,
// Fixed and Instead.
type FormerKey struct {
	Section, Name string
	Now           string // the key of today
	Fixed         string // the only value, of a key without one of today
	Instead       string // the way of today, of a key without an equivalent
	Encoded       bool   // the value of Now is an object, which was text
}

// FormerKeys are the keys of the first generation's configuration.
var FormerKeys = []FormerKey{
	{Section: "ansible", Name: "configure_playbook", Fixed: "site.yml"},
	{Section: "ansible", Name: "cleanup_playbook", Fixed: "cleanup.yml"},
	{Section: "ansible", Name: "upgrade_playbook", Fixed: "rolling-upgrade.yml"},
	{Section: "ansible", Name: "playbook_location", Now: "playbooks"},
	{Section: "ansible", Name: "user", Now: "ssh.user"},
	{Section: "ansible", Name: "priv_key_file", Now: "ssh.key_file"},
	{Section: "ansible", Name: "extra_variables", Now: "vars", Encoded: true},
	{Section: "manager", Name: "addr", Now: "plain_http"},
	{Section: "serf", Name: "addr", Instead: "set gossip.rpc in the configuration file to use an existing serf agent"},
	{Section: "serf", Name: "auth", Instead: "set gossip.rpc_auth_file in the configuration file"},
	{Section: "inventory", Name: "boltdb", Instead: "leave it out: the manager brings its own store"},
	{Section: "inventory", Name: "collins", Instead: "leave it out: the manager brings its own store"},
}

// FindFormerKey returns the former key with the name, such as ansible.user. The
// spelling of the names changed within the first generation: case and - or _ make no
// difference. A key below one of the list, such as inventory.boltdb.dbfile, is found as
// that one.
func FindFormerKey(name string) (FormerKey, bool) {
	name = strings.ReplaceAll(strings.ToLower(name), "-", "_")

	for _, k := range FormerKeys {
		full := k.Section + "." + k.Name
		if name == full || strings.HasPrefix(name, full+".") {
			return k, true
		}
	}

	return FormerKey{}, false
}
