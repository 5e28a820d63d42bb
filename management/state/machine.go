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

	// Secrets has the passwords of its BMC, by SecretBMC and so on; nil: there is none. They are stored encrypted, and
	// the wire form lacks them.
	Secrets configuration.Vars `json:"secrets,omitempty"`

	// Given counts the logins of its BMC that an operator has given, and the BMC has taken. One more is another login
	// for all instances, also with the same password.
	Given int `json:"given,omitempty"`
}

// The names of the passwords of a BMC among the secrets of its machine.
const (
	SecretBMC       = "bmc_password"
	SecretBMCNext   = "bmc_password_next"   // is being set: the BMC has this one or the other
	SecretBMCFormer = "bmc_password_former" // the last one that the manager has not made
)

// HasBMC reports whether the machine is registered with a BMC that can switch it. m may be nil.
func (m *Machine) HasBMC() bool { return m != nil && m.BMC != nil && m.BMC.Driver != machine.Manual }

// Password returns the password of its BMC, "" if there is none, or why it cannot be read.
func (m *Machine) Password() (string, error) { return m.Secret(SecretBMC) }

// Replaced reports whether the manager has replaced the password by one of its own: a list that still has it is older.
func (m *Machine) Replaced(password string) bool {
	former, err := m.Secret(SecretBMCFormer)
	return err == nil && former != "" && former == password
}

// Listed returns the secret of the password that the newest list had, nil if there is none. The list may have it still,
// however often the password is replaced.
func (m *Machine) Listed() any {
	if listed := m.Secrets[SecretBMCFormer]; listed != nil {
		return listed
	}
	return m.Secrets[SecretBMC]
}

// Secret returns the secret of that name, "" if there is none, or why it cannot be read.
func (m *Machine) Secret(name string) (string, error) {
	value := m.Secrets[name]

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
