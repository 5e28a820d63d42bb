// SPDX-License-Identifier: Apache-2.0

package print

import (
	"maps"
	"slices"
	"strings"

	"github.com/contiv/cluster/management/api"
)

var (
	// VarsChangeColumns are the columns of a table of changes of variables.
	VarsChangeColumns = ColumnsOf(Cells[api.VarsChange]{
		"change": func(_ Paint, c *api.VarsChange) string { return strings.Join(differences(c), "; ") },
	}, "revision", "time", "actor", "action", "change")
	// VarsChangeDetails are a change of variables in whole.
	VarsChangeDetails = ColumnsOf(Cells[api.VarsChange]{
		"change": func(_ Paint, c *api.VarsChange) string { return strings.Join(differences(c), "\n") },
	}, "revision", "time", "actor", "action", "change")
)

// differences describes each changed variable, in the order of their names.
func differences(c *api.VarsChange) []string {
	names := slices.Concat(slices.Collect(maps.Keys(c.Before)), slices.Collect(maps.Keys(c.After)))
	slices.Sort(names)

	var out []string
	for _, name := range slices.Compact(names) {
		before, was := c.Before[name]
		after, is := c.After[name]

		switch text := Line(name); {
		case !was:
			out = append(out, "+"+text+"="+Scalar(after))
		case !is:
			out = append(out, "-"+text+"="+Scalar(before))
		default:
			out = append(out, text+"="+Scalar(before)+" → "+Scalar(after))
		}
	}

	return out
}
