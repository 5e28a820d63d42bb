// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

func policyRows() rows {
	return rows{
		"policy list": {formats: namelessFormats, run: one((*client.Client).Policies, (*print.Printer).Policies)},
		"policy show": {
			formats:  namelessFormats,
			complete: policyNames,
			run:      named((*client.Client).Policy, (*print.Printer).Policy),
		},
		"policy test": {
			formats:  namelessFormats,
			complete: policyNames,
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
		},
		"policy enable":  policyAct(policyNames, filled((*client.Client).EnablePolicy)),
		"policy disable": policyAct(policyNames, plain((*client.Client).DisablePolicy)),
		"policy pause":   policyAct(policyNamesAndAll, plain((*client.Client).PausePolicy)),
		"policy resume":  policyAct(policyNamesAndAll, plain((*client.Client).ResumePolicy)),
		"policy release": {
			formats: namelessFormats,
			run: func(ctx context.Context, c *call) error {
				state, err := c.manager.ReleaseBrake(ctx, c.String("reason"))
				if err != nil || !c.forPeople() {
					return view(c, (*print.Printer).Policies)(state, err)
				}

				c.say("the brake is released")

				return nil
			},
		},
	}
}

// policyAct is a command that changes a policy, and prints its state in one line. A program gets the state of
// automation.
func policyAct(
	names positional, act func(ctx context.Context, c *call, name, reason string) (api.Policies, error),
) leaf {
	return leaf{formats: namelessFormats, complete: names, run: func(ctx context.Context, c *call) error {
		name := c.args[0]

		state, err := act(ctx, c, name, c.String("reason"))
		if err != nil {
			return err
		}

		if c.forPeople() {
			c.say("%s", print.PolicyLine(state, name))
		} else if err := view(c, (*print.Printer).Policies)(state, nil); err != nil {
			return err
		}

		if c.Name == "pause" {
			c.say("to go on: %s policy resume %s", c.self(), name)
		}

		return nil
	}}
}

// policyNames completes the names of policies.
var policyNames = offer(func(ctx context.Context, m *client.Client) ([]api.Policy, error) {
	state, err := m.Policies(ctx)
	return state.Policies, err
}, func(p api.Policy) candidate { return candidate{p.Name, p.About} })

// policyNamesAndAll completes the names of policies, or all of them.
func policyNamesAndAll(ctx context.Context, c *completer, current string) []candidate {
	return append(policyNames(ctx, c, current), candidate{api.AllPolicies, "every policy"})
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
