// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"fmt"
	"strings"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/hosts"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

func inventoryRows() rows {
	return rows{
		"inventory": {selects: true, formats: []string{print.FormatJSON}, run: writeInventory},
	}
}

func writeInventory(ctx context.Context, c *call) error {
	modes := 0
	for _, flag := range []string{"list", "host", "script"} {
		if c.IsSet(flag) {
			modes++
		}
	}

	name := c.String("host")
	if modes != 1 || c.IsSet("host") && name == "" {
		return exit.Usagef("inventory needs one of --list, --host NAME and --script").
			Try("see: clusterctl inventory --help")
	}

	file := c.String("known-hosts")
	if file != "" {
		var err error
		if file, err = hosts.CheckFile(file); err != nil {
			return err
		}
	}

	if c.Bool("script") {
		return c.write([]byte(inventoryScript(c, file)))
	}

	filter := client.NodeFilter{Group: values(c, "group"), Selector: c.String("selector")}
	if name != "" {
		filter.Names = []string{name}
	}
	list, err := c.manager.Inventory(ctx, filter)
	if err != nil {
		return err
	}

	if name != "" && len(list.Items) == 0 {
		return exit.Errorf(exit.NotFound, "the node %s does not match the filters", name).
			Try("to see its fields and labels: %s nodes get %s -o long", c.self(), api.ShellQuote(name))
	}

	if list.Stale {
		c.say("warning: the manager has lost contact with its store; this inventory may be outdated")
	}

	return c.printInventory(ctx, list.Items, name, file)
}

// printInventory prints the hosts, or the one with the name.
func (c *call) printInventory(ctx context.Context, all []api.InventoryHost, name, file string) error {
	var (
		answer  []byte
		omitted []error
		err     error
	)

	if name != "" {
		answer, omitted, err = hosts.Host(all[0], file)
	} else {
		answer, omitted, err = hosts.List(all, file)
	}

	if err != nil {
		return err
	}

	for _, without := range omitted {
		c.say("warning: %v", without)
	}

	if file != "" {
		if err := hosts.KnownHosts(ctx, file, all); err != nil {
			return err
		}
	}

	return c.write(answer)
}

// inventoryScript returns a script that Ansible runs with --list or --host. An empty
// file stands for one beside the script.
func inventoryScript(c *call, file string) string {
	if file == "" {
		// Ansible ignores files with a dot in a folder of inventories.
		file = `"$(dirname -- "$0")/.clusterm_known_hosts"`
	}

	command := []string{"exec", c.self(), "inventory", "--known-hosts", file}
	if c.hasSelector() {
		command = append(command, "-l", api.ShellQuote(c.String("selector")))
	}
	for _, g := range values(c, "group") {
		command = append(command, "-g", api.ShellQuote(g))
	}

	return fmt.Sprintf("#!/bin/sh\n# The nodes of clusterm as an inventory of Ansible.\n%s \"$@\"\n",
		strings.Join(command, " "))
}
