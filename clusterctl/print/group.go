// SPDX-License-Identifier: Apache-2.0

package print

import (
	"maps"
	"slices"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// GroupColumns are the columns of a table of groups.
var GroupColumns = ColumnsOf(Cells[api.Group]{
	"requires": func(_ Paint, g *api.Group) string { return Line(g.Requires.String()) },
	"budget":   func(_ Paint, g *api.Group) string { return Line(g.Budget.String()) },
	"strategy": func(_ Paint, g *api.Group) string { return Line(g.Strategy.String()) },
	"tags": func(_ Paint, g *api.Group) string {
		return Line(inventory.Selection{Tags: g.Tags, SkipTags: g.SkipTags}.String())
	},
}, "name", "nodes", "healthy", "requires", "budget", "on_return,else "+string(inventory.DefaultReaction),
	"strategy,wide", "tags")

// groupTags returns the tags of groups, with a line for each group.
func groupTags(tags map[string]inventory.Selection) string {
	var lines []string
	for _, group := range slices.Sorted(maps.Keys(tags)) {
		lines = append(lines, Line(group)+": "+Line(tags[group].String()))
	}

	return strings.Join(lines, "\n")
}
