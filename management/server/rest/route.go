// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"net/http"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/openapi"
)

// Handler answers a request, or returns the error to answer with.
type Handler func(w http.ResponseWriter, r *http.Request) error

// Route is one method of one path.
type Route struct {
	Method string
	Path   string // a gorilla/mux template, e.g. "/v1/nodes/{name}"
	Serve  Handler
	Family *Family
	// Allow says who may use the route. The server does not start with a route that nobody may use.
	Allow access.Permission
	// Verb is the name of the route where a caller asks for its permissions; empty: it has none.
	Verb string
	// Query lists the accepted query parameters. A strict family refuses others.
	Query []openapi.Param
	// ReadOnly marks a POST that changes nothing.
	ReadOnly bool
	// Ends marks a POST that only ends something. As a DELETE, it is served without room for more data.
	Ends bool
	// Idempotent routes store their own result under an Idempotency-Key, and return it. The others that accept one
	// answer a retry with the revision of the change, or as the GET of Shows does.
	Idempotent bool
	Shows      string
	// Conditional routes accept If-Match and If-None-Match on a change.
	Conditional bool
	// BodyLimit is the size in bytes of the largest body, if the router has a smaller limit.
	BodyLimit int64
	// Uploads routes read their body as it comes: it may last as long as each piece of it arrives in time.
	Uploads bool
	// Streams excludes the route from the histogram of durations: it lasts as
	// long as its client wants.
	Streams bool

	// Doc describes the route in the document of the API.
	Doc *openapi.Doc

	unserved bool // the route of an answer 404 or 405
}

// Served reports whether the path has the method. Every caller may learn that a
// route is not served, and nothing else about it.
func (rt Route) Served() bool { return !rt.unserved }

// String returns the route as "GET /v1/nodes/{name}".
func (rt Route) String() string { return rt.Method + " " + rt.Path }

// NeedsRoom reports whether the route changes state, and does not only end or remove something.
func (rt Route) NeedsRoom() bool { return rt.Mutates() && !rt.Ends && rt.Method != http.MethodDelete }

// Mutates reports whether the route changes state.
func (rt Route) Mutates() bool {
	return !rt.ReadOnly && !rt.unserved && rt.Method != http.MethodGet && rt.Method != http.MethodHead
}

// Keyed reports whether the route accepts an Idempotency-Key.
func (rt Route) Keyed() bool {
	_, keyless := api.Keyless[rt.Path]
	return rt.Mutates() && rt.Family.Strict && !keyless
}

// Family is an API family: routes with the same strictness and form of errors.
type Family struct {
	// Strict families refuse preconditions, idempotency keys and query parameters
	// on routes that would ignore them.
	Strict bool
	// WriteError answers with a failure.
	WriteError func(w http.ResponseWriter, f Failure)
	// Failures are the answers of WriteError in the document, by status.
	Failures map[string]string
}

// Failure is an error that is ready to be shown to a client.
type Failure struct {
	Err     *inventory.Error
	Problem api.Problem // Err on the wire, with its status
	// FixedStatus is set if the status belongs to HTTP itself, such as 405, and
	// not to the kind of the error.
	FixedStatus bool
}

// Versioned is the family of /v1: RFC 9457 problems with the status of their kind.
var Versioned = &Family{
	Strict: true, WriteError: writeProblem, Failures: map[string]string{"default": "Problem"},
}

// Plain is the family of paths outside any contract: errors are text with the
// status of their kind.
var Plain = &Family{WriteError: WriteTextError, Failures: map[string]string{"default": "TextProblem"}}

// nearest returns the served path with the smallest edit distance to path, or
// "" if no path is close.
func nearest(routes []Route, path string) string {
	asked := strings.Split(strings.TrimSuffix(path, "/"), "/")

	best, cost := "", 4
	for _, rt := range routes {
		served := strings.Split(rt.Path, "/")
		if len(served) != len(asked) {
			continue
		}

		sum := 0
		for i, part := range served {
			// Any text but the empty one fits a parameter.
			if !strings.HasPrefix(part, "{") || asked[i] == "" {
				sum += inventory.Distance(part, asked[i])
			}
		}

		if sum < cost {
			best, cost = rt.Path, sum
		}
	}

	return best
}
