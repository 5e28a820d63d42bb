// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
	"strings"
	"time"

	"github.com/contiv/cluster/management/api"
)

// Windows prints the maintenance windows and the freeze.
func (p *Printer) Windows(s api.Windows) {
	p.Freeze(s.Freeze)

	if len(s.Windows) == 0 {
		return
	}

	p.gap()

	rows := make([][]string, len(s.Windows))
	for i, w := range s.Windows {
		state := "closed"
		if w.Open {
			state = "open until " + timeOf(w.Closes)
		}

		concerns := "groups " + strings.Join(w.Groups, ", ")
		if w.Selector != "" {
			concerns = "selector " + w.Selector
		}

		rows[i] = []string{
			Line(w.Name), p.goodIf(w.Open, state), timeOf(w.Opens), Line(w.Cron),
			Duration(time.Duration(w.Duration)), Line(w.TimeZone), fmt.Sprint(w.Nodes),
			Line(concerns),
		}
	}

	p.Rows([]string{"WINDOW", "STATE", "NEXT OPENING", "CRON", "DURATION", "TIME ZONE", "NODES", "FOR"}, rows)
}

// Freeze prints the freeze of all changes.
func (p *Printer) Freeze(f api.Freeze) {
	if !f.Active {
		p.Fields([]Field{{"Freeze", p.goodIf(true, "off")}})
		return
	}

	until := "it is lifted"
	if f.Until != nil {
		until = timeOf(f.Until)
	}

	p.Fields([]Field{
		{"Freeze", p.goodIf(false, "on")},
		{"Since", timeOf(f.Since)},
		{"Until", until},
		{"By", Line(f.Actor)},
		{"Reason", Line(f.Reason)},
	})
}
