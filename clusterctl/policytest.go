// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
)

func (a *app) policyTest() leaf {
	return leaf{
		name: "test", args: "NAME", formats: namelessFormats, usage: "show what a policy would do, and change nothing",
		complete: policyNames,
		about: "It shows what the policy would do if it were on and nothing held it: with the inventory of today, or " +
			"with that of a file, which `clusterctl nodes get -o json` writes.",
		flags: []cli.Flag{
			valueFlag("file", "test with the inventory in `FILE`, which clusterctl nodes get -o json wrote; - is "+
				"stdin", "f"),
		},
		examples: []string{"clusterctl policy test workers", "clusterctl policy test workers -f nodes.json"},
		run: func(ctx context.Context, c *call) error {
			in := api.PolicyTest{}

			if c.IsSet("file") {
				nodes, err := c.inventoryFile(ctx, c.String("file"))
				if err != nil {
					return err
				}

				in.Nodes = &nodes
			}

			return view(c, (*print.Printer).PolicyTested)(c.manager.TestPolicy(ctx, c.args[0], in))
		},
	}
}

// inventoryFile reads a list of nodes, or one node, as nodes get prints them.
func (c *call) inventoryFile(ctx context.Context, name string) ([]api.PolicyTestNode, error) {
	content, source, err := c.readInput(ctx, name, "the inventory", "give -f FILE, or -f - for stdin")
	if err != nil {
		return nil, err
	}

	remedy := "write one with: " + c.self() + " nodes get -o json"

	var list struct {
		Items *[]api.PolicyTestNode `json:"items"`
	}

	content = bytes.TrimSpace(content)
	if bytes.HasPrefix(content, []byte("[")) {
		err = json.Unmarshal(content, &list.Items)
	} else {
		err = json.Unmarshal(content, &list)
	}

	switch {
	case err != nil:
		return nil, exit.Usagef("%s is not an inventory: %v", source, err).Try("%s", remedy)
	case list.Items == nil:
		return nil, exit.Usagef("%s is not an inventory: it has no items", source).Try("%s", remedy)
	}

	return *list.Items, nil
}
