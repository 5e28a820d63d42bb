// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"errors"
	"fmt"
)

// Kind classifies an error by the reaction it calls for. Kinds cross the API: the
// server maps a kind to an HTTP status, and the client maps it back.
type Kind string

// The kinds of error. Any other error is KindInternal.
const (
	KindInvalid         Kind = "invalid"         // the request is malformed; do not repeat it unchanged
	KindUnauthenticated Kind = "unauthenticated" // credentials are missing or wrong
	KindForbidden       Kind = "forbidden"       // the caller lacks the permission
	KindNotFound        Kind = "not-found"       // the request names a thing that does not exist
	KindRefused         Kind = "refused"         // a rule, a status or a state forbids the operation for now
	KindConflict        Kind = "conflict"        // a concurrent change came first; read again and repeat
	KindExpired         Kind = "expired"         // the revision or token is no longer kept; start over
	KindPrecondition    Kind = "precondition"    // a precondition of the request failed; read again and decide anew
	KindKeyReused       Kind = "key-reused"      // the Idempotency-Key was already used for a different request
	KindTooLarge        Kind = "too-large"       // a body or a value exceeds its limit
	KindBusy            Kind = "busy"            // the caller has too much open at once; wait for some of it to end
	KindUnavailable     Kind = "unavailable"     // the store or a peer does not respond; try again later
	KindUnsupported     Kind = "unsupported"     // the method or the media type is not supported here
	KindInternal        Kind = "internal"        // a fault of the manager; the daemon's log has the details
)

// Kinds lists every kind, in the order of the documentation.
var Kinds = []Kind{
	KindInvalid,
	KindUnauthenticated,
	KindForbidden,
	KindNotFound,
	KindRefused,
	KindConflict,
	KindExpired,
	KindPrecondition,
	KindKeyReused,
	KindTooLarge,
	KindBusy,
	KindUnavailable,
	KindUnsupported,
	KindInternal,
}

// Error is a failure that an operator can act on.
type Error struct {
	Kind    Kind
	Message string   // the operation that failed and the reason, in one or a few sentences
	Remedy  string   // the next step for the operator, in words; may be empty
	Actions []Action // that carry the remedy out; may be empty
	Nodes   []string // names of the nodes concerned; may be empty
	Err     error    // the cause, for the log only; clients never see it
	Request string   // the id of the failed request, on the side of the client; may be empty
	Shown   bool     // clients may see a KindInternal error too, because it contains no secrets
}

// Error returns the message, followed by the remedy if there is one.
func (e *Error) Error() string {
	if e.Remedy == "" {
		return e.Message
	}
	return e.Message + "; " + e.Remedy
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an error of the given kind. An argument for %w becomes its cause.
func Errorf(kind Kind, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Kind: kind, Message: err.Error(), Err: errors.Unwrap(err)}
}

// Do sets the remedy of e and returns e.
func (e *Error) Do(format string, args ...any) *Error {
	e.Remedy = fmt.Sprintf(format, args...)
	return e
}

// With adds actions that carry the remedy out, and returns e.
func (e *Error) With(actions ...Action) *Error {
	e.Actions = append(e.Actions, actions...)
	return e
}

// About sets the nodes that e concerns and returns e.
func (e *Error) About(nodes ...string) *Error {
	e.Nodes = nodes
	return e
}

// Under returns err with the key, or the part, that it is about before its message. Only an
// Error is changed.
func Under(key string, err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	out := *e
	out.Message = key + ": " + e.Message

	return &out
}

// KindOf returns the kind of err: "" for nil, and KindInternal if neither err nor
// an error that it wraps is an Error.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}

	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return KindInternal
}
