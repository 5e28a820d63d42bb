// SPDX-License-Identifier: Apache-2.0

package print

import (
	"strings"

	"github.com/contiv/cluster/management/api"
)

var windowColumns = ColumnsOf(Cells[api.Window]{
	"state": func(p Paint, w *api.Window) string {
		if w.Open {
			return p.goodIf(true, "open until "+timeOf(w.Closes))
		}
		return p.goodIf(false, "closed")
	},
	"for": func(_ Paint, w *api.Window) string {
		if w.Selector != "" {
			return Line("selector " + w.Selector)
		}
		return Line("groups " + strings.Join(w.Groups, ", "))
	},
}, "Window=name", "state", "Next opening=opens", "cron", "duration", "time_zone", "nodes", "for")

// Windows prints the maintenance windows and the freeze.
func (p *Printer) Windows(s api.Windows) {
	p.Freeze(s.Freeze)
	windowColumns.Table(p, s.Windows)
}

var freezeDetails = ColumnsOf(Cells[api.Freeze]{
	"freeze": func(p Paint, _ *api.Freeze) string { return p.goodIf(false, "on") },
	"until": func(_ Paint, f *api.Freeze) string {
		if f.Until == nil {
			return "it is lifted"
		}
		return timeOf(f.Until)
	},
}, "freeze", "since", "until", "By=actor", "reason")

// Freeze prints the freeze of all changes.
func (p *Printer) Freeze(f api.Freeze) {
	if f.Active {
		freezeDetails.Details(p, f)
	} else {
		p.Fields([]Field{{"Freeze", p.Paint.goodIf(true, "off")}})
	}
}
