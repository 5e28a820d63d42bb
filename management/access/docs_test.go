// SPDX-License-Identifier: Apache-2.0

package access

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory/doctest"
)

// TestPermissionsDocument compares the table of docs/access.md with the data.
func TestPermissionsDocument(t *testing.T) {
	t.Parallel()
	doctest.Check(t, "../../docs/access.md", map[string]string{"permissions": permissionTable()})
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
