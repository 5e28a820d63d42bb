// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/hosts"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

func (a *app) inventory() leaf {
	return leaf{
		name: "inventory", selects: true, formats: []string{print.FormatJSON},
		usage: "print the nodes as an inventory for your own Ansible",
		about: "The hosts have the groups, the connection and the variables that a run of the manager gives them, " +
			"without secrets. A node without a group is in the group ungrouped. Text from the API is never a " +
			"template. Make a script once, and use it with any program of Ansible: chmod +x nodes.sh, then ansible " +
			"-i ./nodes.sh all -m ping.\n" +
			"The manager knows nothing of such runs: they hold no node and leave no history.",
		flags: []cli.Flag{
			switchFlag("list", "print groups and hosts, as Ansible asks an inventory script"),
			valueFlag("host", "print the variables of the node `NAME`, as Ansible asks"),
			switchFlag("script", "print an inventory script with the other options in it"),
			valueFlag("known-hosts", "write the recorded ssh host keys to this `FILE`, and have ssh check them "+
				"there; other lines stay (--script: beside the script by default)"),
			selectorFlag(),
			groupFilterFlag(),
		},
		examples: []string{
			"clusterctl inventory --script > nodes.sh",
			"clusterctl inventory --script -l status=Allocated,rack=r1 > rack1.sh",
			"clusterctl inventory --list --known-hosts /srv/play/known_hosts",
			"clusterctl inventory --host web-1-AB12",
		},
		run: writeInventory,
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
