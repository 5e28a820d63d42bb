// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"path/filepath"
	"slices"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/rollout"
)

// maxGateCommands bounds the number of commands of gates.
const maxGateCommands = 50

func (c *Config) checkGateCommands() error {
	if n := len(c.GateCommands); n > maxGateCommands {
		return invalid("gate_commands", "there are %d commands; %d fit", n, maxGateCommands)
	}

	for _, name := range sortedKeys(c.GateCommands) {
		if err := rollout.CheckCommandName(name); err != nil {
			return invalid("gate_commands", "%w", err)
		}

		command := c.GateCommands[name]

		switch {
		case len(command) == 0:
			return invalid("gate_commands."+name, "it is empty; write a program with its arguments")
		case !filepath.IsAbs(command[0]):
			return invalid("gate_commands."+name, "%q is not an absolute path", command[0])
		}
	}

	return nil
}

// checkGatePrograms refuses new commands with a program that is missing, or that others than root
// may change.
func (c *Config) checkGatePrograms(old Config, adapters Adapters) error {
	for _, name := range sortedKeys(c.GateCommands) {
		command := c.GateCommands[name]
		if slices.Equal(command, old.GateCommands[name]) {
			continue
		}
		if err := adapters.CheckOwned(command[0]); err != nil {
			return invalid("gate_commands."+name, "%w", err)
		}
	}

	return nil
}

// hideGateArguments returns the commands without their arguments, which may be secret.
func (c *Config) hideGateArguments() map[string][]string {
	out := make(map[string][]string, len(c.GateCommands))

	for name, command := range c.GateCommands {
		if len(command) > 1 {
			command = []string{command[0], configuration.Hidden}
		}

		out[name] = command
	}

	return out
}

// GateCommand returns the program of a command of a gate with its arguments.
func (s *Settings) GateCommand(name string) ([]string, error) {
	command := s.Current().GateCommands[name]
	if len(command) == 0 {
		return nil, inventory.Errorf(inventory.KindRefused, "the command %s is no longer configured", name).
			Do("add it to gate_commands in the configuration file")
	}

	return command, nil
}
