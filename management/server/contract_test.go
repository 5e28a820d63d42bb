// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"regexp"
	"slices"
	"testing"

	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/contracttest"
	"github.com/contiv/cluster/management/server/rest"
)

// TestContract expects the same methods, paths and parameters in the router and
// in the document: where a route does not describe itself, openapi.yaml does.
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

		if want := slices.Sorted(slices.Values(route.Query)); !slices.Equal(documented, want) {
			t.Errorf(
				"%s %s: the document has the query parameters %v, the route reads %v",
				o.Method,
				o.Path,
				documented,
				want,
			)
		}

		accepted := map[string]bool{"If-Match": route.Conditional, api.HeaderIdempotencyKey: route.Idempotent}
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
