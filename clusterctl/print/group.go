// SPDX-License-Identifier: Apache-2.0

package print

import (
	"maps"
	"slices"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// Group is a host group with the numbers of its nodes.
type Group struct {
	api.Group

	Nodes   int `json:"nodes"`   // of the group, in whatever status
	Healthy int `json:"healthy"` // in service and Discovered
}

// GroupColumns are the columns of a table of groups.
var GroupColumns = ColumnsOf(Cells[Group]{
	"requires": func(_ Paint, g *Group) string { return Line(inventory.Requirements(g.Requires).String()) },
	"budget":   func(_ Paint, g *Group) string { return Line(budgetOf(g.Budget)) },
	"strategy": func(_ Paint, g *Group) string { return Line(strategyOf(g.Strategy)) },
	"tags": func(_ Paint, g *Group) string {
		return tagsOf(api.GroupTags{Tags: g.Tags, SkipTags: g.SkipTags})
	},
}, "name", "nodes", "healthy", "requires", "budget", "on_return,else "+string(inventory.DefaultReaction),
	"strategy,wide", "tags")

func budgetOf(b *api.Budget) string {
	if b == nil {
		return ""
	}

	return inventory.Budget{
		MinAvailable: b.MinAvailable, MaxUnavailable: inventory.Amount(b.MaxUnavailable), Per: b.Per,
	}.String()
}

func tagsOf(t api.GroupTags) string { return Line(inventory.Selection(t).String()) }

// groupTags returns the tags of groups, with a line for each group.
func groupTags(tags map[string]api.GroupTags) string {
	var lines []string
	for _, group := range slices.Sorted(maps.Keys(tags)) {
		lines = append(lines, Line(group)+": "+tagsOf(tags[group]))
	}

	return strings.Join(lines, "\n")
}

func strategyOf(s *api.GroupStrategy) string {
	if s == nil {
		return ""
	}

	return inventory.Strategy{
		MaxUnavailable: inventory.Amount(s.MaxUnavailable), MaxFailures: s.MaxFailures, Soak: s.Soak,
	}.String()
}
