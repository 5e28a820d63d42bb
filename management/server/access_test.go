// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory/doctest"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/server"
)

// TestPermissions expects known roles in their order, an admin who may use every route but that of an invitation, and a
// viewer who changes nothing.
func TestPermissions(t *testing.T) {
	t.Parallel()

	for _, rt := range server.Routes() {
		roles := rt.Allow.Roles

		known := slices.DeleteFunc(slices.Clone(access.Roles), func(r access.Role) bool {
			return !slices.Contains(roles, r)
		})
		if !slices.Equal(roles, known) || slices.Contains(roles, access.RoleAdmin) == (rt.Path == api.PathJoin) {
			t.Errorf("%s: the roles are %v", rt, roles)
		}

		changes := rt.Method != http.MethodGet && rt.Path != "/info/nodes" && rt.Path != "/v1/fleet/diff"
		if changes && slices.Contains(roles, access.RoleViewer) {
			t.Errorf("%s: a viewer may change something", rt)
		}
	}
}

// TestPermissionsDocument compares the table of docs/access.md with the routes.
func TestPermissionsDocument(t *testing.T) {
	t.Parallel()
	doctest.Check(t, "../../docs/access.md", map[string]string{"permissions": permissionTable()})
}

func permissionTable() string {
	var b strings.Builder

	b.WriteString("| route |")

	for _, role := range access.Roles {
		b.WriteString(" " + string(role) + " |")
	}

	b.WriteString(" within a scope |\n|---|" + strings.Repeat("---|", len(access.Roles)+1) + "\n")

	mark := func(yes bool) {
		text := ""
		if yes {
			text = "yes"
		}
		b.WriteString(" " + text + " |")
	}

	for _, rt := range server.Routes() {
		fmt.Fprintf(&b, "| `%s` |", rt)

		for _, role := range access.Roles {
			mark(slices.Contains(rt.Allow.Roles, role))
		}

		mark(rt.Allow.Within)
		b.WriteString("\n")
	}

	return b.String()
}
