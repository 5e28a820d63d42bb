// SPDX-License-Identifier: Apache-2.0

package state

import (
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/record"
)

// Agent is what the agent of a host that no registration named said of its machine when the node appeared. A list that
// comes later finds the node by it.
type Agent struct {
	Node string   `json:"node"`
	UUID string   `json:"uuid,omitempty"` // of the system, lower case
	MACs []string `json:"macs,omitempty"` // of network ports, lower case
}

// Agents are those of the nodes that appeared by their agents. A transaction that registers machines is guarded by all
// of them, and one that makes such a node by all Machines: decided at once, they would make two nodes of one machine.
var Agents = record.Kind[Agent]{
	Name: "agents", ByNode: true,
	Key: func(a *Agent) string { return a.Node },
}

// Machine returns the machine, as a list would have it.
func (a *Agent) Machine() *machine.Machine {
	m := &machine.Machine{Node: a.Node, UUID: a.UUID}
	for _, mac := range a.MACs {
		m.Ports = append(m.Ports, machine.Port{MAC: mac})
	}

	return m
}
