// SPDX-License-Identifier: Apache-2.0

package state

import (
	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/record"
)

// Machine is a registered machine with its secrets.
type Machine struct {
	machine.Machine

	// Secrets are the passwords of its BMC, by SecretBMC; nil: there is none. They are stored encrypted, and the wire form
	// lacks them.
	Secrets configuration.Vars `json:"secrets,omitempty"`
}

// SecretBMC is the name of the password of a BMC among the secrets of its machine.
const SecretBMC = "bmc_password"

// Machines are the machines that were registered, by the names of their nodes. A node that appeared by its agent alone
// has none.
var Machines = record.Kind[Machine]{
	Name: "machines", ByNode: true,
	Key: func(m *Machine) string { return m.Node },
	Secret: func(m *Machine, convert record.Convert) (*Machine, error) {
		if len(m.Secrets) == 0 {
			return m, nil
		}

		converted, err := convert([]string{"machines", m.Node}, m.Secrets)
		out := *m
		out.Secrets = converted

		return &out, err
	},
}
