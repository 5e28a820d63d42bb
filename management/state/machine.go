// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/record"
)

// Machine is a registered machine with its secrets.
type Machine struct {
	machine.Machine

	// Secrets has the password of its BMC, by SecretBMC; nil: there is none. It is stored encrypted, and the wire
	// form lacks it.
	Secrets configuration.Vars `json:"secrets,omitempty"`
}

// SecretBMC is the name of the password of a BMC among the secrets of its machine.
const SecretBMC = "bmc_password"

// Password returns the password of its BMC, "" if there is none, or why it cannot be read.
func (m *Machine) Password() (string, error) {
	value := m.Secrets[SecretBMC]

	if hidden, ok := value.(configuration.Secret); ok {
		var err error
		if value, err = hidden.Reveal(); err != nil {
			return "", fmt.Errorf("the password of its BMC cannot be read: %w", err)
		}
	}

	text, _ := value.(string)

	return text, nil
}

// Machines are the machines that were registered, by the names of their nodes. A node that appeared by its agent
// alone has none.
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
