// SPDX-License-Identifier: Apache-2.0

package access

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the table of docs/access.md")

const document = "../../docs/access.md"

// TestPermissionsDocument compares the table of docs/access.md with the data.
// "go test ./management/access -run Document -update" rewrites it.
func TestPermissionsDocument(t *testing.T) {
	t.Parallel()

	data, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}

	begin, end := "<!-- permissions:begin -->\n", "<!-- permissions:end -->"
	head, rest, hasBegin := strings.Cut(string(data), begin)

	old, tail, hasEnd := strings.Cut(rest, end)
	if !hasBegin || !hasEnd {
		t.Fatalf("%s lacks the marker %s or %s", document, strings.TrimSpace(begin), end)
	}

	table := permissionTable()
	if old == table {
		return
	}

	if !*update {
		t.Fatalf("the table in %s is out of date; rewrite it: make docs", document)
	}

	if err := os.WriteFile(document, []byte(head+begin+table+end+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}

func permissionTable() string {
	var b strings.Builder

	b.WriteString("| route |")

	for _, role := range Roles {
		b.WriteString(" " + string(role) + " |")
	}

	b.WriteString(" within a scope |\n|---|" + strings.Repeat("---|", len(Roles)+1) + "\n")

	for _, p := range Permissions {
		fmt.Fprintf(&b, "| `%s` |", p.Route)

		for _, role := range Roles {
			mark := ""
			if slices.Contains(p.Roles, role) {
				mark = "yes"
			}

			b.WriteString(" " + mark + " |")
		}

		mark := ""
		if p.Reach == Within {
			mark = "yes"
		}

		b.WriteString(" " + mark + " |\n")
	}

	return b.String()
}
