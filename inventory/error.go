// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"errors"
	"fmt"
)

// Kind is what a caller can act on in an error. It travels: the server maps it
// to an HTTP status and the client maps it back.
type Kind string

// The kinds of error. What is none of these is KindInternal.
const (
	KindInvalid      Kind = "invalid"      // the request itself is wrong; repeating it changes nothing
	KindNotFound     Kind = "not-found"    // something it names does not exist
	KindRefused      Kind = "refused"      // a rule, a status or a state forbids it now
	KindConflict     Kind = "conflict"     // somebody else changed the same thing first; read again, repeat
	KindExpired      Kind = "expired"      // what it builds on is no longer kept; begin anew
	KindPrecondition Kind = "precondition" // it said itself what it depends on, and that is not so; read again, decide anew
	KindKeyReused    Kind = "key-reused"   // its key, which is to keep it from being done twice, has served for another one
	KindTooLarge     Kind = "too-large"    // a body or a value is over its limit
	KindUnavailable  Kind = "unavailable"  // the store or a peer does not answer; try again later
	KindUnsupported  Kind = "unsupported"  // the method or the media type is not served here
	KindInternal     Kind = "internal"     // a fault of ours; details are in the daemon's log
)

// Kinds lists every kind, in the order of the documentation.
var Kinds = []Kind{
	KindInvalid,
	KindNotFound,
	KindRefused,
	KindConflict,
	KindExpired,
	KindPrecondition,
	KindKeyReused,
	KindTooLarge,
	KindUnavailable,
	KindUnsupported,
	KindInternal,
}

// Error is a refusal or a failure that says what, why and what to do.
type Error struct {
	Kind    Kind
	Message string   // what was refused and why, one sentence or a few
	Remedy  string   // what the operator can do about it; may be empty
	Nodes   []string // the nodes it is about; may be empty
	Err     error    // the cause, for the log; never shown to a client
}

// Error returns the message, followed by the remedy where there is one.
func (e *Error) Error() string {
	if e.Remedy == "" {
		return e.Message
	}

	return e.Message + "; " + e.Remedy
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an error of the kind. A %w in the format becomes its cause.
func Errorf(kind Kind, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Kind: kind, Message: err.Error(), Err: errors.Unwrap(err)}
}

// Do adds the remedy and returns the same error.
func (e *Error) Do(format string, args ...any) *Error {
	e.Remedy = fmt.Sprintf(format, args...)
	return e
}

// About adds the nodes and returns the same error.
func (e *Error) About(nodes ...string) *Error {
	e.Nodes = nodes
	return e
}

// KindOf returns the kind of err, KindInternal when it carries none, "" for nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}

	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}

	return KindInternal
}
