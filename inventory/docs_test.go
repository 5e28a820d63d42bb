// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory/doctest"
)

// TestLifecycleDocument compares the tables of docs/lifecycle.md with the data.
func TestLifecycleDocument(t *testing.T) {
	t.Parallel()

	doctest.Check(t, "../docs/lifecycle.md", map[string]string{
		"statuses": statusTable(), "states": stateTable(), "table": verbTable(), "requests": requestTable(),
	})
}

// TestAlertDocument compares the table of docs/operating/alerts.md with the data.
func TestAlertDocument(t *testing.T) {
	t.Parallel()

	doctest.Check(t, "../docs/operating/alerts.md", map[string]string{"effects": effectTable()})
}

func effectTable() string {
	var b strings.Builder
	b.WriteString("| effect | meaning | refused verbs |\n|---|---|---|\n")

	for _, e := range Effects {
		var verbs []string
		for _, row := range Lifecycle {
			if row.RefusedBy == e.Effect {
				verbs = append(verbs, "`"+string(row.Verb)+"`")
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", e.Effect, e.Meaning, strings.Join(verbs, ", "))
	}

	return b.String()
}

func statusTable() string {
	var b strings.Builder
	b.WriteString("| status | meaning | a job holds it |\n|---|---|---|\n")

	for _, r := range Statuses {
		held := ""
		if r.InProgress {
			held = "yes"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", r.Status, r.Meaning, held)
	}

	return b.String()
}

func stateTable() string {
	var b strings.Builder
	b.WriteString("| state | meaning |\n|---|---|\n")

	for _, r := range States {
		fmt.Fprintf(&b, "| `%s` | %s |\n", r.State, r.Meaning)
	}

	return b.String()
}

func verbTable() string {
	var b strings.Builder
	b.WriteString("| verb | effect | from | needs `Discovered` | through | serves meanwhile | success ")
	b.WriteString("| failure or cancel |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|\n")

	for _, r := range Lifecycle {
		if !r.ChangesStatus() {
			continue
		}

		needs, serves, success := "", "", "`"+string(r.Success)+"`"
		if r.NeedsDiscover {
			needs = "yes"
		}
		if r.KeepsService {
			serves = "yes"
		}

		if r.Success == "" {
			success = "removed"
		}

		from := "`" + joinWords(r.From, "`, `") + "`"
		if len(r.FromResidue) > 0 {
			from += "; with residue: `" + joinWords(r.FromResidue, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | `%s` | %s | %s | %s |\n",
			r.Verb, r.Meaning, from, needs, r.Through, serves, success, r.Failure)
	}

	return b.String()
}

func requestTable() string {
	var b strings.Builder
	b.WriteString("| verb | takes | option | meaning |\n|---|---|---|---|\n")

	for _, r := range Lifecycle {
		takes := "nodes"
		if r.TakesAddrs {
			takes = "addresses"
		}
		for _, o := range r.Options {
			fmt.Fprintf(&b, "| `%s` | %s | `%s` | %s |\n", r.Verb, takes, o.Field, o.Meaning)
		}
	}

	return b.String()
}
