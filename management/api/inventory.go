// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"encoding/json"
)

// InventoryHost is a node as a host of an Ansible inventory.
//
// It contains no secrets.
type InventoryHost struct {
	Name  string `json:"name"`            // the name of the node
	Group string `json:"group,omitempty"` // the group of the node

	// Variables that are data: the merged ones, `node_name` and its like, `clusterm_status`, `clusterm_state`,
	// and `ansible_host` and its like. Mark all text in them as unsafe, so that Ansible never takes it for a
	// template.
	Vars Vars `json:"vars"`
	// Variables of the configuration file, which may be templates.
	Templates Vars     `json:"templates,omitempty"`
	Omitted   []string `json:"omitted,omitempty"` // the paths of the secrets that the variables lack
	// The ssh host keys, in the format of known_hosts without the name. ssh looks them up under the name of the
	// node.
	HostKeys []string `json:"host_keys,omitempty"`
}

// UnmarshalJSON keeps the literals of numbers, as json.Number.
func (h *InventoryHost) UnmarshalJSON(data []byte) error {
	type plain InventoryHost

	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d.Decode((*plain)(h))
}
