// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/follow"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// waitTime is the default of nodes wait --timeout.
const waitTime = 10 * time.Minute

func eventsRows() rows {
	return rows{
		"nodes wait": {selects: true, names: true, formats: []string{}, run: waitNodes},
		"events": {
			formats: []string{print.FormatJSON},
			run: func(ctx context.Context, c *call) error {
				chosen, err := choices(c, "kind", "a kind of change", api.WatchKinds)
				if err != nil {
					return err
				}
				o := follow.EventOptions{Kinds: chosen, JSON: c.format == print.FormatJSON}

				if o.Since, err = c.since(); err != nil {
					return err
				}

				hasPast := len(chosen) == 0 ||
					slices.Contains(chosen, api.WatchNodes) || slices.Contains(chosen, api.WatchJobs)

				switch {
				case o.Since.IsZero():
				case o.JSON:
					return exit.Usagef("--since and -o json exclude each other").
						Try("the past of jobs in JSON: %s job list -o json", c.self())
				case !hasPast:
					return exit.Usagef("--since shows the past of nodes and jobs, and --kind leaves out both").
						Try("for that of the global variables: %s vars history --global", c.self())
				}

				return follow.Events(ctx, c.manager, o, c.output())
			},
		},
	}
}

// condition is one --for: the words of the operator, and its check.
type condition struct {
	text  string
	holds func(api.Node) bool
}

// conditions reads --for.
func conditions(words []string) ([]condition, error) {
	var all []condition
	for _, word := range words {
		field, value, _ := strings.Cut(word, "=")

		switch field {
		case "status":
			s, err := choice(value, aStatus, statuses())
			if err != nil {
				return nil, err
			}
			all = append(all, condition{"status=" + string(s), func(n api.Node) bool { return n.Status == s }})
		case "state":
			s, err := choice(value, aState, states())
			if err != nil {
				return nil, err
			}
			all = append(all, condition{"state=" + string(s), func(n api.Node) bool { return n.State == s }})
		default:
			return nil, exit.Usagef("%q is not a condition", word).
				Try("write status=STATUS or state=STATE, for example: --for status=Allocated")
		}
	}

	if len(all) == 0 {
		return nil, exit.Usagef("nodes wait needs a condition").Try("for example: --for status=Allocated")
	}

	return all, nil
}

func waitNodes(ctx context.Context, c *call) error {
	all, err := conditions(c.StringSlice("for"))
	if err != nil {
		return err
	}

	limit := waitTime
	if c.IsSet("timeout") {
		if limit, err = time.ParseDuration(c.String("timeout")); err != nil || limit <= 0 {
			return exit.Usagef("--timeout needs a duration such as 90s or 15m, not %q", c.String("timeout"))
		}
	}

	if err := c.selectNodes(ctx); err != nil {
		return err
	}

	var texts []string
	for _, one := range all {
		texts = append(texts, one.text)
	}

	holds := func(n api.Node) bool {
		return !slices.ContainsFunc(all, func(one condition) bool { return !one.holds(n) })
	}

	wanted := strings.Join(texts, " and ")
	// The API reports each node once.
	names := slices.Compact(slices.Sorted(slices.Values(c.args)))

	late := exit.Errorf(exit.Failed, "after %s, not every node has %s", inventory.ShortDuration(limit), wanted)

	bounded, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()

	nodes, err := follow.Await(bounded, c.manager, names, holds, c.output())
	if err == nil {
		c.say("%s: %s", inventory.Count(len(names), "node", "nodes")+" with "+wanted, strings.Join(names, ", "))
		return nil
	}

	// Another failure than the limit has its own words.
	if !errors.Is(context.Cause(bounded), late) {
		return err
	}

	var pending []string

	remedy := "to list the nodes: " + c.self() + " nodes get"

	for _, name := range names {
		n, exists := nodes[name]
		switch {
		case !exists:
			pending = append(pending, name+" does not exist")
		case !holds(n):
			pending = append(pending, fmt.Sprintf("%s is %s and %s", name, n.Status, n.State))
			remedy = "to see why: " + c.self() + " nodes explain " + name
		}
	}

	return late.Try("%s\n%s", strings.Join(pending, "\n"), remedy)
}
