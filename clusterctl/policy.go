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
	"github.com/contiv/cluster/management/client"
)

func (a *app) policy() leaf {
	return leaf{
		name: "policy", usage: "show what the manager decides by itself, and stop it",
		commands: []leaf{
			{
				name: "list", formats: namelessFormats, usage: "list the policies, the brake and the newest decisions",
				about: "The brake stops all policies while many nodes have vanished at once, which is a fault of the " +
					"network. People can always act.",
				examples: []string{"clusterctl policy list", "clusterctl policy list -o json"},
				run:      one((*client.Client).Policies, (*print.Printer).Policies),
			},
			{
				name: "show", args: "NAME", formats: namelessFormats,
				usage: "show a policy, and its decisions with their evidence", complete: policyNames,
				about: "Each decision has what happened, the observations on which it was decided, its job, and what " +
					"would have prevented it.",
				examples: []string{"clusterctl policy show returns", "clusterctl policy show returns -o json"},
				run:      named((*client.Client).Policy, (*print.Printer).Policy),
			},
			a.itemSet(policyNoun), a.itemDelete(policyNoun), a.policyTest(),
			a.policyAct(leaf{
				name: "enable", args: "NAME", usage: "turn a policy on", complete: policyNames,
				about: "A policy that commissions new nodes, follows the repository or verifies on a schedule is off " +
					"until it is turned on. One that commissions turns itself off when too many commissions fail in " +
					"a row. One that is on stays as it is: to have a commit tried again whose rollout stopped, retry " +
					"the rollout, or disable and enable the policy. `clusterctl policy test` shows what a policy " +
					"would do.",
				flags: []cli.Flag{switchFlag("all", "the policy is for every node, and that is meant")},
				examples: []string{
					"clusterctl policy enable workers --reason 'the racks are wired'",
					"clusterctl policy enable every --all",
				},
			}, func(ctx context.Context, c *call, name, reason string) (api.Policies, error) {
				return c.manager.EnablePolicy(ctx, name, api.PolicyEnable{All: c.Bool("all"), Reason: reason})
			}),
			a.policyAct(leaf{
				name: "disable", args: "NAME", usage: "turn a policy off", complete: policyNames,
				about: "The policy decides nothing until it is turned on, and its rollouts begin no node. Jobs that " +
					"run go on.",
				examples: []string{"clusterctl policy disable workers --reason 'the racks are full'"},
			}, plain((*client.Client).DisablePolicy)),
			a.policyAct(leaf{
				name: "pause", args: "NAME", usage: "let a policy do nothing, or all of them",
				complete: policyNamesAndAll,
				about:    "The name all pauses every policy. Jobs that run go on; what is decided and not begun waits.",
				examples: []string{
					"clusterctl policy pause returns --reason 'the rack moves'",
					"clusterctl policy pause all --reason 'an audit'",
				},
			}, plain((*client.Client).PausePolicy)),
			a.policyAct(leaf{
				name: "resume", args: "NAME", usage: "end the pause of a policy, or that of all",
				complete: policyNamesAndAll,
				about:    "A policy goes on only when neither itself nor all of them are paused.",
				examples: []string{"clusterctl policy resume returns", "clusterctl policy resume all"},
			}, plain((*client.Client).ResumePolicy)),
			{
				name: "release", formats: namelessFormats,
				usage: "release the brake, after many nodes vanished at once",
				about: "The policies go on with the nodes that have returned, within their limits. Nodes that " +
					"vanished before the release do not set the brake off again.",
				flags:    []cli.Flag{policyReason()},
				examples: []string{"clusterctl policy release --reason 'the switch is replaced'"},
				run: func(ctx context.Context, c *call) error {
					state, err := c.manager.ReleaseBrake(ctx, c.String("reason"))
					if err != nil || !c.forPeople() {
						return view(c, (*print.Printer).Policies)(state, err)
					}

					c.say("the brake is released")

					return nil
				},
			},
		},
	}
}

func policyReason() cli.Flag { return valueFlag("reason", "the `REASON` for the audit trail") }

// policyAct returns the command that changes a policy, and prints its state in one line. A program gets the state of
// automation.
func (a *app) policyAct(
	l leaf, act func(ctx context.Context, c *call, name, reason string) (api.Policies, error),
) leaf {
	l.formats, l.flags = namelessFormats, append([]cli.Flag{policyReason()}, l.flags...)
	l.run = func(ctx context.Context, c *call) error {
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

		if l.name == "pause" {
			c.say("to go on: %s policy resume %s", c.self(), name)
		}

		return nil
	}

	return l
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
