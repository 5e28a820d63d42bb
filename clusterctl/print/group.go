// SPDX-License-Identifier: Apache-2.0

package print

import (
	"maps"
	"slices"
	"strconv"
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
var GroupColumns = Columns[Group]{
	textColumn("name", func(g *Group) string { return g.Name }),
	numberColumn("nodes", func(g *Group) string { return strconv.Itoa(g.Nodes) }),
	numberColumn("healthy", func(g *Group) string { return strconv.Itoa(g.Healthy) }),
	textColumn("requires", func(g *Group) string { return inventory.Requirements(g.Requires).String() }),
	textColumn("budget", func(g *Group) string { return budgetOf(g.Budget) }),
	textColumn("on-return", func(g *Group) string { return orDefault(g.OnReturn, string(inventory.DefaultReaction)) }),
	textColumn("strategy", func(g *Group) string { return strategyOf(g.Strategy) }).wide(),
	textColumn("tags", func(g *Group) string { return tagsOf(api.GroupTags{Tags: g.Tags, SkipTags: g.SkipTags}) }),
}

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
