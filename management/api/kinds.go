// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/contiv/cluster/inventory"
)

// KindRow maps a kind of error to HTTP.
type KindRow struct {
	Kind   inventory.Kind
	Status int    // of an answer under /v1
	Title  string // the kind in words
	Remedy string // the recommended action for an error without one of its own
}

// KindTable maps the kinds of errors to HTTP. A client restores the kind from
// the problem's type. It falls back to the status only for an answer without a
// type, e.g. from a proxy, because refused and conflict share 409.
var KindTable = []KindRow{
	{inventory.KindInvalid, http.StatusBadRequest, "invalid request", "correct the request, then repeat it"},
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
		"not found",
		"check the name: a GET of the list shows all names",
	},
	{
		inventory.KindRefused,
		http.StatusConflict,
		"refused by a rule, a status or a state",
		"remove the cause, then repeat the request",
	},
	{inventory.KindConflict, http.StatusConflict, "a concurrent change came first", "read again, then retry"},
	{inventory.KindExpired, http.StatusGone, "no longer kept", "start over without the revision or token"},
	{
		inventory.KindPrecondition,
		http.StatusPreconditionFailed,
		"the precondition failed",
		"read again, decide again, and repeat the request with the new ETag",
	},
	{
		inventory.KindKeyReused,
		http.StatusUnprocessableEntity,
		"the Idempotency-Key was already used for a different request",
		"use a new key for every request",
	},
	{inventory.KindTooLarge, http.StatusRequestEntityTooLarge, "request too large", "split the request"},
	{inventory.KindBusy, http.StatusTooManyRequests, "too much open at once", "wait until a request has ended"},
	{inventory.KindUnavailable, http.StatusServiceUnavailable, "temporarily unavailable", "repeat the request later"},
	{
		inventory.KindUnsupported,
		http.StatusUnsupportedMediaType,
		"not supported",
		"see the API's documentation: GET /v1/docs",
	},
	{inventory.KindInternal, http.StatusInternalServerError, "internal error", "see the daemon's log"},
}

// StatusOf returns the HTTP status for a kind of error; 500 for an unknown kind.
func StatusOf(kind inventory.Kind) int {
	for _, row := range KindTable {
		if row.Kind == kind {
			return row.Status
		}
	}

	return http.StatusInternalServerError
}

// KindOfStatus returns the kind of an error with nothing but a status.
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
	case http.StatusTooManyRequests:
		return inventory.KindBusy
	case http.StatusRequestTimeout,
		http.StatusBadGateway,
		http.StatusServiceUnavailable,
		http.StatusGatewayTimeout:
		return inventory.KindUnavailable
	}

	return inventory.KindInternal
}

// Problem is a failure (RFC 9457).
type Problem struct {
	Type      string   `json:"type"`                 // the kind of failure; stable
	Title     string   `json:"title"`                // the kind in words
	Status    int      `json:"status"`               // the HTTP status
	Detail    string   `json:"detail"`               // the failure and its reason
	Remedy    string   `json:"remedy,omitempty"`     // the recommended action, in words
	Nodes     []string `json:"nodes,omitempty"`      // the nodes with the problem
	Actions   []Action `json:"actions,omitempty"`    // the actions that carry the remedy out
	RequestID string   `json:"request_id,omitempty"` // the id of the request, as in the header `X-Request-Id`
}

// ProblemBase is the prefix of every Problem.Type.
const ProblemBase = "urn:clusterm:problem:"

// ProblemOf returns the wire form of an error.
func ProblemOf(e *inventory.Error) Problem {
	p := Problem{
		Type: ProblemBase + string(e.Kind), Status: StatusOf(e.Kind),
		Detail: e.Message, Remedy: e.Remedy, Nodes: e.Nodes, Actions: ActionsOf(e.Actions),
	}

	for _, row := range KindTable {
		if row.Kind == e.Kind {
			p.Title = row.Title
			// The error's own remedy is more specific.
			p.Remedy = cmp.Or(p.Remedy, row.Remedy)
		}
	}

	return p
}

// Restore returns the error behind the problem, without its wrapped cause. The
// status decides on the kind of a problem with an unknown type.
func (p Problem) Restore() *inventory.Error {
	e := &inventory.Error{
		Kind:    KindOfStatus(p.Status),
		Message: p.Detail,
		Remedy:  p.Remedy,
		Actions: RestoreActions(p.Actions),
		Nodes:   p.Nodes,
	}
	// It reaches a terminal, and the other end may be any program.
	if IsRequestID(p.RequestID) {
		e.Request = p.RequestID
	}

	if kind, ok := strings.CutPrefix(p.Type, ProblemBase); ok {
		for _, row := range KindTable {
			if string(row.Kind) == kind {
				e.Kind = row.Kind
			}
		}
	}

	return e
}
