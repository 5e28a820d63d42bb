// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

func moveRows() rows {
	return rows{
		"nodes move": {selects: true, names: true, needs: "to", complete: anyNodes, run: moveNodes},
	}
}

// leg is a job of a move: a verb on the nodes for which it is the next one.
type leg struct {
	verb  inventory.Verb
	nodes []string
}

// moveNodes takes nodes to a status, verb by verb.
func moveNodes(ctx context.Context, c *call) error {
	to, err := inventory.ParseStatus(c.String("to"))
	if err != nil {
		return err
	}

	options, err := c.jobOptions()
	if err != nil {
		return err
	}

	if err := c.selectNodes(ctx); err != nil {
		return err
	}

	nodes, err := c.manager.Nodes(ctx, client.NodeFilter{Names: c.args})
	if err != nil {
		return err
	}

	legs, err := c.legs(nodes.Items, to)
	if err != nil {
		return err
	}

	if len(legs) > 0 {
		if err := c.confirmNodes(ctx, "move to "+string(to), true, nil); err != nil {
			return err
		}
	}

	// What the nodes are by then is the one answer.
	c.answered = true

	for i, l := range legs {
		c.say("%d of %d: %s %s", i+1, len(legs), l.verb, strings.Join(l.nodes, ", "))

		j, refused := c.manager.Submit(ctx, api.JobRequest{Verb: l.verb, Nodes: l.nodes, JobOptions: options})

		if err = c.accepted(ctx, j, refused); err == nil {
			continue
		}

		if exit.Code(err) == exit.Interrupted {
			c.say(
				"the move to %s ends here; to go on: %s nodes move %s --to %s",
				to,
				c.self(),
				strings.Join(c.args, " "),
				to,
			)
			return err
		}

		c.say("the move to %s stopped at step %d of %d", to, i+1, len(legs))

		// Some of the way is gone already, so it is no refusal of all.
		if refused != nil && i > 0 {
			message, remedy := exit.Explain(c.self(), refused)
			err = exit.Errorf(exit.JobFailed, "%s: %s", l.verb, message).Try("%s", remedy)
		}

		break
	}

	shown, failed := c.manager.Nodes(context.WithoutCancel(ctx), client.NodeFilter{Names: c.args})
	if failed != nil {
		return cmp.Or(err, failed)
	}

	all, _ := listingOf(shown, nil)

	layout, failed := layoutOf(c, print.NodeColumns)
	if failed == nil {
		failed = nodeNoun.show(c, layout, all)
	}

	return cmp.Or(err, failed)
}

// legs returns the jobs that bring nodes to a status, and says them.
func (c *call) legs(nodes []api.Node, to inventory.Status) ([]leg, error) {
	ways := make([][]inventory.Verb, len(nodes))

	for i, n := range nodes {
		verbs, err := inventory.Path(n.Status, to)
		if e, refused := errors.AsType[*inventory.Error](err); refused {
			return nil, exit.Errorf(exit.Refused, "%s: %s", n.Name, e.Message).
				Try("%s, or leave the node out", e.Remedy)
		}

		texts := make([]string, len(verbs))
		for at, v := range verbs {
			texts[at] = string(v)
		}

		if ways[i] = verbs; len(verbs) == 0 {
			c.say("%s is %s already", n.Name, to)
		} else {
			c.say("%s: %s to %s by %s", n.Name, n.Status, to, strings.Join(texts, ", "))
		}
	}

	return join(nodes, ways), nil
}

// join returns the jobs of the ways of nodes. Ways of several lengths meet: the last verbs of all are common jobs.
func join(nodes []api.Node, ways [][]inventory.Verb) []leg {
	longest := 0
	for _, verbs := range ways {
		longest = max(longest, len(verbs))
	}

	var legs []leg

	for left := longest; left > 0; left-- {
		first := len(legs)

		for i, verbs := range ways {
			if len(verbs) < left {
				continue
			}

			verb := verbs[len(verbs)-left]

			at := slices.IndexFunc(legs[first:], func(l leg) bool { return l.verb == verb })
			if at < 0 {
				legs = append(legs, leg{verb: verb})
				at = len(legs) - 1 - first
			}

			legs[first+at].nodes = append(legs[first+at].nodes, nodes[i].Name)
		}
	}

	return legs
}
