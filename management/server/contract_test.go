// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/contracttest"
	"github.com/contiv/cluster/management/server/rest"
)

// TestContract expects the same methods, paths and parameters in the router and
// in the document.
func TestContract(t *testing.T) {
	c := must[*contracttest.Contract](t)(contracttest.Load())
	served := serve(t).Routes()
	type row struct{ method, path string }

	routes := map[row]rest.Route{}
	for _, rt := range served {
		routes[row{rt.Method, rt.Path}] = rt
	}

	for _, o := range c.Operations {
		at := row{o.Method, o.Path}

		route, ok := routes[at]
		if !ok {
			t.Errorf("%s %s is documented, but not served", o.Method, o.Path)
			continue
		}

		delete(routes, at)

		var documented, params, headers []string
		for _, p := range o.Parameters {
			switch p.Value.In {
			case "query":
				documented = append(documented, p.Value.Name)
			case "path":
				params = append(params, p.Value.Name)
			case "header":
				headers = append(headers, p.Value.Name)
			}
		}

		slices.Sort(documented)

		var want []string
		for _, p := range route.Query {
			want = append(want, p.Name)
		}

		slices.Sort(want)

		if !slices.Equal(documented, want) {
			t.Errorf("%s %s: the document has the query parameters %v, the route reads %v", o.Method, o.Path,
				documented, want)
		}

		accepted := map[string]bool{"If-Match": route.Conditional, api.HeaderIdempotencyKey: route.Keyed()}
		for header, taken := range accepted {
			if documented := slices.Contains(headers, header); documented != taken {
				t.Errorf(
					"%s %s takes the header %s: %t; in the document: %t",
					o.Method,
					o.Path,
					header,
					taken,
					documented,
				)
			}
		}

		if want := parameters(o.Path); !slices.Equal(params, want) {
			t.Errorf(
				"%s %s: the document has the parameters %v of the path, the path has %v",
				o.Method,
				o.Path,
				params,
				want,
			)
		}
	}

	for at := range routes {
		t.Errorf("%s %s is served, but not documented", at.method, at.path)
	}
}

var braces = regexp.MustCompile(`\{([^}]*)\}`)

// parameters returns the names of the parameters of a path.
func parameters(path string) []string {
	var out []string
	for _, m := range braces.FindAllStringSubmatch(path, -1) {
		out = append(out, m[1])
	}

	return out
}

// TestVerbsInTheDocument compares the verbs of the document with the lifecycle table.
func TestVerbsInTheDocument(t *testing.T) {
	t.Parallel()

	c := must[*contracttest.Contract](t)(contracttest.Load())
	table := c.Operation("POST", api.PathJobs).Description

	want := []any{
		string(inventory.VerbDiscovered), string(inventory.VerbDisappeared), string(inventory.VerbRegister),
		string(inventory.VerbConflict), string(inventory.VerbTrust), string(inventory.VerbAlert),
	}

	for _, row := range inventory.Lifecycle {
		want = append(want, string(row.Verb))

		takes := "nodes"
		if row.TakesAddrs {
			takes = "addrs"
		}
		if line := fmt.Sprintf("| `%s` | `%s` |", row.Verb, takes); !strings.Contains(table, line) {
			t.Errorf("the table of verbs has no row %q", line)
		}
	}

	if documented := c.Components.Schemas["Verb"].Value.Enum; !slices.Equal(documented, want) {
		t.Errorf("the enum of verbs is %v, want %v", documented, want)
	}
}
