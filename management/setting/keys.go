// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"reflect"
	"slices"
	"strings"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/yamlfile"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/monitor"
)

// The origins of a value, the weakest first. A found value was detected on the
// host, because neither file nor overlay sets it.
const (
	OriginDefault = "default"
	OriginFound   = "found"
	OriginFile    = "file"
	OriginOverlay = "overlay"
)

// startKeys are the keys that are read once, at the start. Only the file sets them.
var startKeys = []string{
	"data_dir",
	"socket",
	"listen",
	"tls",
	"metrics_listen",
	"plain_http",
	"plain_http_role",
	"oidc",
	"node",
	"gossip",
	"etcd",
	"instances",
	"audit",
	"scan",
	"images",
	"secrets.key_file",
}

// programKeys are the keys that may name a program to execute as root, or decide about one. Only the file
// sets them, so that a right to change settings is no right to run programs.
var programKeys = []string{
	"ansible_playbook",
	"accept_vulnerable_ansible",
	"vault_ids",
	"secrets.sources",
	"gate_commands",
	"notifications",
}

// fileSections are sections that only the file sets. What comes from a repository runs as root, and the network
// interfaces are those of one host.
var fileSections = []string{"repository", "boot"}

// isFileKey reports whether only the file sets the key.
func isFileKey(key string) bool {
	top, _, _ := strings.Cut(key, ".")
	return isStartKey(key) || slices.Contains(programKeys, key) || slices.Contains(fileSections, top)
}

// isStartKey reports whether only a restart changes the key.
func isStartKey(key string) bool {
	top, _, _ := strings.Cut(key, ".")
	return slices.Contains(startKeys, top) || slices.Contains(startKeys, key)
}

// entry is one key of a configuration.
type entry struct {
	key   string
	value any
}

// entries lists every key with its value, in the order of the example. A struct
// has an entry per field; a map or a list is one value.
func entries(c Config) []entry {
	var out []entry

	var visit func(prefix string, v reflect.Value)
	visit = func(prefix string, v reflect.Value) {
		for _, f := range yamlfile.Fields(v.Type()) {
			key, value := prefix+yamlfile.Key(f), v.FieldByIndex(f.Index)

			// Without gossip, its keys have no meaning.
			if gossip, ok := value.Interface().(Gossip); ok && gossip.Off {
				out = append(out, entry{key, "off"})
				continue
			}

			if f.Type.Kind() == reflect.Struct {
				visit(key+".", value)
				continue
			}

			out = append(out, entry{key, value.Interface()})
		}
	}
	visit("", reflect.ValueOf(c))

	return out
}

// exists reports whether the configuration has the key.
func exists(c Config, key string) bool {
	return slices.ContainsFunc(entries(c), func(e entry) bool { return e.key == key })
}

// errUnknown refuses a key that does not exist.
func errUnknown(key string) error {
	return inventory.Errorf(inventory.KindInvalid, "there is no key %q in the configuration", key).
		Do("list the settings").With(inventory.ShowSettings(""))
}

// errFileKey refuses a change of a key that only the file sets.
func errFileKey(key string) error {
	refused := inventory.Errorf(inventory.KindRefused, "%s belongs to the configuration file", key)
	if isStartKey(key) {
		return refused.Do("change it there and restart clusterm")
	}
	return refused.Do("change it there and reload clusterm: systemctl reload clusterm")
}

// values returns the configuration with the origin of each key. named are the
// keys of the file; overlay holds those that are set at run time.
func values(c Config, named map[string]bool, overlay map[string]any, own monitor.Identity) api.Config {
	found := map[string]string{"node.label": own.Label, "node.serial": own.Serial, "node.addr": own.Addr}
	out := api.Config{}

	for _, e := range entries(c) {
		v := api.Setting{Value: e.value, Origin: OriginDefault, Settable: !isFileKey(e.key)}
		if named[e.key] {
			v.Origin = OriginFile
		}
		if _, ok := overlay[e.key]; ok && v.Settable {
			v.Origin = OriginOverlay
		}

		if detected, ok := found[e.key]; ok && e.value == "" {
			v.Value, v.Origin = detected, OriginFound
		}

		// Secrets stay out of the API and of the digest.
		switch e.key {
		case "vars":
			v.Value = c.SecretVars.HideVars(c.Vars)
		case "secrets.sources":
			v.Value = c.Secrets.hideArguments()
		case "gate_commands":
			v.Value = c.hideGateArguments()
		case "notifications":
			v.Value = hideURLs(c.Notifications)
		}

		out[e.key] = v
	}

	return out
}

// hideArguments returns the sources without the arguments of their commands, which may
// be secret.
func (s Secrets) hideArguments() map[string]configuration.SecretSource {
	out := make(map[string]configuration.SecretSource, len(s.Sources))
	for name, source := range s.Sources {
		if len(source.Command) > 1 {
			source.Command = []string{source.Command[0], configuration.Hidden}
		}

		out[name] = source
	}

	return out
}
