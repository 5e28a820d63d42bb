// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/contiv/cluster/inventory"
)

// KindRow is one row of the table between the kinds of error and HTTP.
type KindRow struct {
	Kind   inventory.Kind
	Status int    // of an answer under /v1
	Title  string // of the problem, the kind in words
	Remedy string // what to do, where the error itself does not say
}

// KindTable is the one table that maps kinds to HTTP. The server reads it from
// left to right. A client restores the kind from the problem's type, which is
// exact, and only where an answer carries none (something in between answered)
// from the status: refused and conflict share 409.
var KindTable = []KindRow{
	{inventory.KindInvalid, http.StatusBadRequest, "the request is wrong", "correct the request, and repeat it"},
	{
		inventory.KindUnauthenticated,
		http.StatusUnauthorized,
		"credentials are missing or wrong",
		"repeat the request with valid credentials",
	},
	{
		inventory.KindForbidden,
		http.StatusForbidden,
		"not permitted for this caller",
		"repeat the request as a caller with the permission",
	},
	{
		inventory.KindNotFound,
		http.StatusNotFound,
		"there is no such thing",
		"look at what there is: GET the list that it would be in",
	},
	{
		inventory.KindRefused,
		http.StatusConflict,
		"refused by a rule or by what is the case now",
		"change what is in the way, then repeat",
	},
	{inventory.KindConflict, http.StatusConflict, "somebody else changed it first", "read it again, and repeat"},
	{inventory.KindExpired, http.StatusGone, "no longer kept", "begin anew"},
	{
		inventory.KindPrecondition,
		http.StatusPreconditionFailed,
		"it is not what the request depends on",
		"read it again, decide anew, and repeat with the ETag of that answer",
	},
	{
		inventory.KindKeyReused,
		http.StatusUnprocessableEntity,
		"the key was used for another request",
		"make a new key for every request",
	},
	{inventory.KindTooLarge, http.StatusRequestEntityTooLarge, "too large", "send less at a time"},
	{inventory.KindUnavailable, http.StatusServiceUnavailable, "not available now", "repeat later"},
	{
		inventory.KindUnsupported,
		http.StatusUnsupportedMediaType,
		"not served here",
		"see the API's documentation: GET /v1/docs",
	},
	{inventory.KindInternal, http.StatusInternalServerError, "a fault of the manager", "see the daemon's log"},
}

// StatusOf is the HTTP status of errors of the kind; 500 for a kind that is
// not in the table.
func StatusOf(kind inventory.Kind) int {
	for _, row := range KindTable {
		if row.Kind == kind {
			return row.Status
		}
	}

	return http.StatusInternalServerError
}

// KindOfStatus is the kind that a status stands for where nothing says it
// better.
func KindOfStatus(status int) inventory.Kind {
	switch status {
	case http.StatusBadRequest:
		return inventory.KindInvalid
	case http.StatusUnprocessableEntity:
		return inventory.KindKeyReused
	case http.StatusUnauthorized:
		return inventory.KindUnauthenticated
	case http.StatusForbidden:
		return inventory.KindForbidden
	case http.StatusNotFound:
		return inventory.KindNotFound
	case http.StatusGone:
		return inventory.KindExpired
	case http.StatusConflict:
		return inventory.KindRefused
	case http.StatusPreconditionFailed:
		return inventory.KindPrecondition
	case http.StatusRequestEntityTooLarge:
		return inventory.KindTooLarge
	case http.StatusMethodNotAllowed,
		http.StatusNotAcceptable,
		http.StatusUnsupportedMediaType,
		http.StatusNotImplemented:
		return inventory.KindUnsupported
	case http.StatusRequestTimeout,
		http.StatusTooManyRequests,
		http.StatusBadGateway,
		http.StatusServiceUnavailable,
		http.StatusGatewayTimeout:
		return inventory.KindUnavailable
	}

	return inventory.KindInternal
}

// Problem is the body of every failure under /v1, application/problem+json
// (RFC 9457).
type Problem struct {
	Type   string   `json:"type"`  // stable: ProblemBase followed by the kind
	Title  string   `json:"title"` // the kind in words
	Status int      `json:"status"`
	Detail string   `json:"detail"`           // what and why
	Remedy string   `json:"remedy,omitempty"` // what to do
	Nodes  []string `json:"nodes,omitempty"`  // the nodes it is about
}

// ProblemBase is the start of every Problem.Type.
const ProblemBase = "urn:clusterm:problem:"

// ProblemOf is the error on the wire.
func ProblemOf(e *inventory.Error) Problem {
	p := Problem{
		Type: ProblemBase + string(e.Kind), Status: StatusOf(e.Kind),
		Detail: e.Message, Remedy: e.Remedy, Nodes: e.Nodes,
	}
	for _, row := range KindTable {
		if row.Kind == e.Kind {
			p.Title = row.Title
			p.Remedy = cmp.Or(p.Remedy, row.Remedy)
		}
	}

	return p
}

// Restore is the error that the problem was made of, without its cause. A type
// that this version does not know is judged by the status.
func (p Problem) Restore() *inventory.Error {
	e := &inventory.Error{Kind: KindOfStatus(p.Status), Message: p.Detail, Remedy: p.Remedy, Nodes: p.Nodes}
	if kind, ok := strings.CutPrefix(p.Type, ProblemBase); ok {
		for _, row := range KindTable {
			if string(row.Kind) == kind {
				e.Kind = row.Kind
			}
		}
	}

	return e
}
