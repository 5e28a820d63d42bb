// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
	"strings"

	"github.com/contiv/cluster/management/api"
)

// FormatLines is the value of --output for one JSON object per line.
const FormatLines = "jsonl"

// AuditEntry prints one line about an entry of the audit trail.
func (p *Printer) AuditEntry(e api.AuditEntry) {
	changes := []string{e.Verb}
	if len(e.Targets) > 0 {
		changes[0] += " " + List(e.Targets)
	}
	add := func(format string, values ...any) { changes = append(changes, fmt.Sprintf(format, values...)) }

	if e.Job != "" {
		add("job %s", e.Job)
	}

	if e.Replayed {
		add("replayed")
	}

	if e.Reason != "" {
		add("reason: %s", e.Reason)
	}

	for i := range changes {
		changes[i] = Line(changes[i])
	}

	result := p.Paint.Good(e.Result)
	if e.Result != api.AuditDone {
		result = p.Paint.Bad(Line(strings.TrimSuffix(e.Result+": "+e.Error, ": ")))
	}
	changes = append(changes, result)

	// Between neighbours the same few origins repeat.
	origin := strings.TrimSpace(e.Via + " " + e.From)
	if e.Request != "" {
		origin += ", request " + e.Request
	}
	if origin != "" {
		changes = append(changes, Line("by "+origin))
	}

	p.Change(e.Time, e.Who, changes...)
}

// AuditReport prints the result of a check of the audit trail.
func (p *Printer) AuditReport(r api.AuditReport) {
	p.Printf("entries  %d, from %d to %d\n", r.Entries, r.First, r.Last)
	p.Printf("hash     %s\n", Line(r.LastHash))

	if r.Lost > 0 {
		p.Printf("gaps     %d, each with the number of its entries: clusterctl audit --verb audit.lost\n", r.Lost)
	}

	for _, dropped := range r.Dropped {
		p.Printf("dropped  %s\n", Line(dropped))
	}

	for _, problem := range r.Problems {
		p.Printf("problem  %s\n", p.Paint.Bad(Line(problem)))
	}
}
