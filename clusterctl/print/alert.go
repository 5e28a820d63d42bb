// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// AlertColumns are the columns of a table of alerts on nodes.
var AlertColumns = ColumnsOf(Cells[api.NodeAlert]{
	"effects": func(_ Paint, a *api.NodeAlert) string { return effects(a.Effects) },
}, "node", "id", "reason", "effects", "source", "until", "since,age", "since,wide", "by=actor,wide")

func effects(all []inventory.Effect) string {
	words := make([]string, len(all))
	for i, e := range all {
		words[i] = string(e)
	}

	return List(words)
}

// alertLines lists alerts, one per line.
func alertLines(all []inventory.Alert) string {
	lines := make([]string, len(all))
	for i, a := range all {
		lines[i] = fmt.Sprintf("%s (alert %s of %s, by %s since %s%s)%s", Line(a.Reason), Line(a.ID), Line(a.Source),
			Line(a.Actor), Time(a.Since), withPrefix(", until ", timeOf(a.Until)), withPrefix(": ", effects(a.Effects)))
	}

	return strings.Join(lines, "\n")
}

// alertWords lists the reasons of alerts.
func alertWords(all []inventory.Alert) string {
	words := make([]string, len(all))
	for i, a := range all {
		words[i] = a.Reason
	}

	return List(words)
}
