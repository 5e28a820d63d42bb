// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// Difference prints what the last verification of a node found.
func (p *Printer) Difference(d api.Difference) {
	p.Fields([]Field{
		{"Node", Line(d.Node)},
		{"Verified", p.Paint.verdict(&d.Verification)},
		{"By job", Line(d.Verification.Job)},
	})

	for _, f := range d.Tasks {
		p.finding(f)
	}

	if d.Truncated {
		p.gap()
		p.Printf("Findings are missing: the events of the job reached their limit.\n")
	}
}

// meanings describes the kinds of finding.
var meanings = map[string]string{
	api.FindingDiffers:  "would change",
	api.FindingFailed:   "failed",
	api.FindingUnjudged: "not judged by check mode",
	api.FindingExecuted: "executed all the same",
}

func (p *Printer) finding(f api.TaskFinding) {
	meaning, known := meanings[f.Kind]
	if !known {
		meaning = Line(f.Kind)
	}

	switch f.Kind {
	case api.FindingDiffers, api.FindingExecuted:
		meaning = p.Paint.Changed(meaning)
	case api.FindingFailed:
		meaning = p.Paint.Bad(meaning)
	}

	where := f.Path
	if where == "" {
		where = f.Playbook + withPrefix(", role ", f.Role)
	}

	p.gap()
	p.Printf("%s: %s (%s)\n", meaning, Line(f.Task), Line(where))

	for _, text := range []string{f.Message, f.Diff} {
		if text == "" {
			continue
		}

		for line := range strings.SplitSeq(Text(text), "\n") {
			p.Printf("  %s\n", line)
		}
	}
}

// verdict describes a verdict with its age.
func (p Paint) verdict(v *inventory.Verdict) string {
	if v == nil {
		return ""
	}

	text := Line(v.Describe())

	switch v.Result {
	case inventory.Clean:
		text = p.Good(text)
	case inventory.Drifted:
		text = p.Bad(text)
	default:
		text = p.Changed(text)
	}

	return fmt.Sprintf("%s, %s ago", text, Age(v.Time))
}

// nodeVerdict is the verdict in a table of nodes.
func nodeVerdict(p Paint, n *api.Node) string {
	v := n.Verification
	if v == nil {
		return ""
	}
	text := fmt.Sprintf("%s (%s)", Line(string(v.Result)), Age(v.Time))

	switch v.Result {
	case inventory.Clean:
		return p.Good(text)
	case inventory.Drifted:
		return p.Bad(text)
	}

	return p.Changed(text)
}
