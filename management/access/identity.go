// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
)

// Identity is the authenticated origin of a request. The zero Identity has no
// permission.
type Identity struct {
	// Principal is the name in the audit record: an account, "http:ADDRESS", or the
	// name of a token or certificate.
	Principal string
	Role      Role
	// Scope limits the identity to some nodes, and Filter is that scope; nil: every node.
	Scope  Scope
	Filter *Filter
	// Credential identifies the proof: CredentialSocket, CredentialPlainHTTP, or
	// the id of a token or certificate with its kind, e.g. "token:ID".
	Credential string
	// Issuer is the authority that vouches for the credential; empty for the
	// manager's own.
	Issuer string
	// Expires is the end of the credential; zero: none, or that of the connection.
	Expires time.Time
}

// The credentials that belong to a listener.
const (
	CredentialSocket    = "socket"     // the kernel's peer credentials of the Unix socket
	CredentialPlainHTTP = "plain_http" // none: every program on the host has it
)

// Name returns the name of the token or of the certificate behind the identity;
// empty for an identity without either.
func (id Identity) Name() string {
	kind, _, ok := strings.Cut(id.Credential, ":")
	if !ok {
		return ""
	}
	name, ok := strings.CutPrefix(id.Principal, kind+":")
	if !ok {
		return ""
	}
	return name
}

// CheckObserver returns KindForbidden for a report under a name that the identity
// may not use. A monitor reports under the name of its token or certificate, so
// that no monitor replaces the view of another. Plain HTTP has no names, and the
// other roles may change nodes anyway.
func CheckObserver(id Identity, observer string) error {
	if id.Role != RoleMonitor || id.Credential == CredentialPlainHTTP {
		return nil
	}

	switch name := id.Name(); name {
	case observer:
		return nil
	case "":
		return inventory.Errorf(inventory.KindForbidden, "a credential of the role %q needs a name to report", id.Role).
			Do("use a token or a certificate with the name of the observer")
	default:
		return inventory.Errorf(inventory.KindForbidden, "%s of the role %q reports as %q only, and not as %q",
			id.Principal, id.Role, name, observer).
			Do("use POST /v1/observations with the observer %s; in monitor.yaml: observer: %s", name, name)
	}
}

// Caller returns the caller of a mutation, without precondition or key.
func (id Identity) Caller() Caller { return Caller{Principal: id.Principal, Scope: id.Filter} }

type identityKey struct{}

// WithIdentity returns a context that carries the identity behind a request.
func WithIdentity(ctx context.Context, id Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, id)
}

// IdentityOf returns the identity that ctx carries, or the zero Identity, which
// has no permission.
func IdentityOf(ctx context.Context) Identity {
	id, _ := ctx.Value(identityKey{}).(Identity)
	return id
}
