// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/lifecycle.md anew")

const document = "../docs/lifecycle.md"

// TestLifecycleDocument holds the tables of docs/lifecycle.md against the data.
// go test ./inventory -run Document -update writes them.
func TestLifecycleDocument(t *testing.T) {
	t.Parallel()

	data, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}

	text := string(data)
	for name, render := range map[string]func() string{"statuses": statusTable, "states": stateTable, "table": verbTable} {
		begin, end := "<!-- "+name+":begin -->\n", "<!-- "+name+":end -->"
		head, rest, ok := strings.Cut(text, begin)

		old, tail, ok2 := strings.Cut(rest, end)
		if !ok || !ok2 {
			t.Fatalf("%s has no %s…%s", document, strings.TrimSpace(begin), end)
		}

		if want := render(); old != want && !*update {
			t.Errorf(
				"the %s in %s are not those of the data; write them anew:\n\tgo test ./inventory -run Document -update",
				name,
				document,
			)
		}

		text = head + begin + render() + end + tail
	}

	if *update && text != string(data) {
		if err := os.WriteFile(document, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
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
	b.WriteString(
		"| verb | what it does | from | needs `Discovered` | through | success | failure or cancel |\n|---|---|---|---|---|---|---|\n",
	)

	for _, r := range Lifecycle {
		from := make([]string, len(r.From))
		for i, s := range r.From {
			from[i] = "`" + string(s) + "`"
		}

		needs, success := "", "`"+string(r.Success)+"`"
		if r.NeedsDiscover {
			needs = "yes"
		}

		if r.Success == "" {
			success = "removed"
		}

		fmt.Fprintf(
			&b,
			"| `%s` | %s | %s | %s | `%s` | %s | %s |\n",
			r.Verb,
			r.Meaning,
			strings.Join(from, ", "),
			needs,
			r.Through,
			success,
			r.Failure,
		)
	}

	return b.String()
}
