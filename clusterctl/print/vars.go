// SPDX-License-Identifier: Apache-2.0

package print

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv/cluster/management/api"
)

// VarsHistory prints changes of variables as a table.
func (p *Printer) VarsHistory(changes []api.VarsChange) {
	rows := make([][]string, len(changes))
	for i, c := range changes {
		rows[i] = []string{
			strconv.FormatInt(c.Revision, 10),
			Time(c.Time),
			Line(c.Actor),
			Line(c.Action),
			strings.Join(differences(c), "; "),
		}
	}

	p.Rows([]string{"REVISION", "TIME", "ACTOR", "ACTION", "CHANGE"}, rows)
}

// VarsHistoryLong prints changes of variables as one block each.
func (p *Printer) VarsHistoryLong(changes []api.VarsChange) {
	for _, c := range changes {
		p.Fields([]Field{
			{"Revision", strconv.FormatInt(c.Revision, 10)},
			{"Time", Time(c.Time)},
			{"Actor", Line(c.Actor)},
			{"Action", Line(c.Action)},
			{"Change", strings.Join(differences(c), "\n")},
		})
	}
}

// differences describes each changed variable, in the order of their names.
func differences(c api.VarsChange) []string {
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
