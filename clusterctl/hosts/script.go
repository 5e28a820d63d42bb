// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// The names that Ansible gives to the group of all hosts, and to the group of the
// hosts that are in no other group.
const (
	groupAll       = "all"
	groupUngrouped = "ungrouped"
)

// The JSON of an inventory script gives keys with this prefix a meaning. Objects of
// the one key unsafeKey are text that is never a template.
const (
	reservedPrefix = "__ansible_"
	unsafeKey      = "__ansible_unsafe"
)

type group struct {
	Hosts    []string `json:"hosts,omitempty"`
	Children []string `json:"children,omitempty"`
}

// List returns the answer of an inventory script to --list: the groups of the hosts,
// and the variables of all. File is that of KnownHosts, or empty. Text from the API is
// marked as unsafe. A variable of a host that the format cannot express is left out, and
// an error of kind invalid in omitted.
func List(all []api.InventoryHost, file string) (answer []byte, omitted []error, err error) {
	vars := make(map[string]map[string]any, len(all))
	members := map[string][]string{}

	for _, h := range all {
		v, without := hostVars(h, file)
		vars[h.Name], omitted = v, append(omitted, without...)

		name := h.Group
		if name == "" {
			name = groupUngrouped
		}
		members[name] = append(members[name], h.Name)
	}

	groups := map[string]any{
		"_meta":  map[string]any{"hostvars": vars},
		groupAll: group{Children: slices.Sorted(maps.Keys(members))},
	}
	for name, hosts := range members {
		groups[name] = group{Hosts: hosts}
	}

	answer, err = lines(groups)

	return answer, omitted, err
}

// Host returns the answer of an inventory script to --host, in the manner of List.
func Host(h api.InventoryHost, file string) (answer []byte, omitted []error, err error) {
	vars, omitted := hostVars(h, file)
	answer, err = lines(vars)
	return answer, omitted, err
}

func lines(answer any) ([]byte, error) {
	b, err := json.Marshal(answer)
	return append(b, '\n'), err
}

// hostVars returns the variables of a host, with unsafe text marked, and an error for each
// that it has left out.
func hostVars(h api.InventoryHost, file string) (vars map[string]any, omitted []error) {
	vars = make(map[string]any, len(h.Vars)+len(h.Templates)+1)

	for _, part := range []struct {
		vars api.Vars
		text func(string) any
	}{
		{h.Vars, func(s string) any { return map[string]string{unsafeKey: s} }},
		{h.Templates, func(s string) any { return s }},
	} {
		for _, name := range slices.Sorted(maps.Keys(part.vars)) {
			value := part.vars[name]
			if name == sshArgs && file != "" {
				value = fmt.Sprint(value, " ", strings.Join(knownHostsArgs(file), " "))
			}
			marked, err := mark(value, part.text)
			if err != nil {
				omitted = append(omitted, inventory.Errorf(inventory.KindInvalid,
					"the variable %s of %s is left out: it %w", name, h.Name, err).
					Do("rename the key; to see who sets it: clusterctl vars get --node %s --merged",
						api.ShellQuote(h.Name)))

				continue
			}

			vars[name] = marked
		}
	}

	if file != "" {
		vars["ansible_host_key_checking"] = true
	}

	return vars, omitted
}

// mark returns a value with all text in it, except keys, replaced by that of text.
// Ansible evaluates no keys.
func mark(value any, text func(string) any) (any, error) {
	var err error

	switch value := value.(type) {
	case string:
		return text(value), nil
	case []any:
		out := make([]any, len(value))
		for i, e := range value {
			if out[i], err = mark(e, text); err != nil {
				return nil, err
			}
		}

		return out, nil
	case map[string]any:
		out := make(map[string]any, len(value))
		for k, e := range value {
			if strings.HasPrefix(k, reservedPrefix) {
				return nil, fmt.Errorf("has the key %q, which has a meaning of its own in an Ansible inventory", k)
			}

			if out[k], err = mark(e, text); err != nil {
				return nil, err
			}
		}

		return out, nil
	}

	return value, nil
}
