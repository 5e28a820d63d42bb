// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"encoding/json"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// Host returns a node as a host of an inventory on which no play acts, with its
// merged variables and its connection.
func (s Settings) Host(v *state.View, n *inventory.Node) configuration.Host {
	return configuration.Host{
		Name: n.Name, Addr: n.Addr, Label: n.Label, Serial: n.Serial, Group: n.Group,
		Role: configuration.RolePeer, Commissioned: n.Commissioned(), Vars: s.Merge(v, n.Group, n.Name),
		Connection: s.Connect(v, n.Group, n.Name), HostKeys: n.HostKeys, Labels: n.Labels,
		Hardware: n.Hardware,
	}
}

// Master is a node in service of a group that others require: every inventory has it, so that
// templates can refer to it.
type Master struct{ Name, Addr, Group string }

// MastersSum returns the checksum of the masters as inventories have them, or "" without a key. See MasterVarsSum.
func MastersSum(key configuration.ChecksumKey, masters []Master) string {
	sums := make(map[string]configuration.Var, len(masters))
	for _, m := range masters {
		sums[m.Name] = configuration.Var{Value: m.Addr + " " + m.Group}
	}

	sum, _ := key.Checksum(sums, nil)

	return sum
}

// MasterVarsSum returns the checksum of the variables that the masters have as a group or a node, which playbooks reach
// by hostvars; or "" without a key, or if a secret cannot be read. merged returns the variables of a master; nil: those
// of now.
func (s Settings) MasterVarsSum(
	r record.Reader, key configuration.ChecksumKey, masters []Master, merged func(Master) map[string]configuration.Var,
) string {
	shared, sums := s.Merge(r, "", ""), map[string]configuration.Var{}

	// Masters without variables of their own have those of their group.
	groups := map[string]string{}

	for _, m := range masters {
		ofGroup := merged == nil && len(state.VarsOf(r, state.ScopeNode(m.Name))) == 0
		if sum, ok := groups[m.Group]; ok && ofGroup {
			sums[m.Name] = configuration.Var{Value: sum}
			continue
		}

		var vars map[string]configuration.Var
		if merged == nil {
			vars = s.Merge(r, m.Group, m.Name)
		} else {
			vars = merged(m)
		}

		sum, err := key.Checksum(beyond(key, vars, shared), nil)
		if err != nil {
			return ""
		}
		sums[m.Name] = configuration.Var{Value: sum}

		if ofGroup {
			groups[m.Group] = sum
		}
	}

	sum, _ := key.Checksum(sums, nil)

	return sum
}

// beyond returns the variables of a group or a node that change what all nodes share. The shared ones count for
// each node by themselves.
func beyond(key configuration.ChecksumKey, merged, shared map[string]configuration.Var) map[string]configuration.Var {
	own := map[string]configuration.Var{}

	for name, v := range merged {
		ofScope := v.Origin == configuration.OriginGroup || v.Origin == configuration.OriginNode
		sum := key.ChecksumOf(name, shared)

		if ofScope && (sum == "" || sum != key.ChecksumOf(name, merged)) {
			own[name] = v
		}
	}

	return own
}

// InventoryHost is a node in an inventory for another Ansible than the manager's.
type InventoryHost struct {
	configuration.HostVars

	// Omitted are the paths of the secrets that HostVars lack, sorted.
	Omitted []string
}

// Inventory returns the node with the variables of a job, and clusterm_status and
// clusterm_state. Secrets are left out: a placeholder could become a password. Errors
// are those of configuration.CheckHosts.
func (m Merger) Inventory(n *inventory.Node) (InventoryHost, error) {
	h := m.settings.Host(m.view, n)
	h.Extra = map[string]any{"clusterm_status": string(n.Status), "clusterm_state": string(n.State)}

	var (
		out InventoryHost
		err error
	)

	h.Vars, out.Omitted = m.settings.Secrets.OmitMerged(h.Vars)
	out.HostVars, err = h.InventoryVars()

	return out, err
}

// Settings returns everything in the settings that variables and connections depend
// on, as JSON, to detect a change. It contains secrets. The view has its revision for
// the rest.
func (m Merger) Settings() ([]byte, error) {
	s := m.settings
	return json.Marshal([]any{s.Vars, s.Secrets, s.Connection, s.Connections, s.Rotation})
}
