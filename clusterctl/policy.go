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
		"policy enable":  policyAct[api.PolicyEnable](api.PathEnablePolicy, policyNames),
		"policy disable": policyAct[api.PolicyControl](api.PathDisablePolicy, policyNames),
		"policy pause":   policyAct[api.PolicyControl](api.PathPausePolicy, policyNamesAndAll),
		"policy resume":  policyAct[api.PolicyControl](api.PathResumePolicy, policyNamesAndAll),
		"policy release": policyAct[api.PolicyControl](api.PathReleaseBrake, nil),
	}
}

// policyAct is a command that changes a policy, or releases the brake, by a request of type B to the path. It prints
// the state of the policy in one line. A program gets the state of automation.
func policyAct[B any](path string, names positional) leaf {
	return leaf{formats: namelessFormats, complete: names, run: func(ctx context.Context, c *call) error {
		var body B
		if err := c.fill(&body); err != nil {
			return err
		}

		state, err := c.manager.ControlPolicy(ctx, path, body, c.args...)

		switch {
		case err != nil || !c.forPeople():
			err = view(c, (*print.Printer).Policies)(state, err)
		case len(c.args) == 0:
			c.say("the brake is released")
		default:
			c.say("%s", print.PolicyLine(state, c.args[0]))
		}

		if err == nil && path == api.PathPausePolicy {
			c.say("to go on: %s policy resume %s", c.self(), c.args[0])
		}

		return err
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
