// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"os/user"
	"strconv"
	"syscall"

	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/state"
)

// listener is the kind of listener that accepted a connection.
type listener int

// The zero listener is unknown, and admits no request.
const (
	onUnknown listener = iota
	onSocket           // the Unix socket
	onPlain            // plain HTTP on a loopback address
	onTLS              // HTTPS
)

// String returns the name of the listener in audit records.
func (l listener) String() string {
	switch l {
	case onSocket:
		return access.ViaSocket
	case onPlain:
		return access.ViaPlainHTTP
	case onTLS:
		return access.ViaHTTPS
	default:
		return ""
	}
}

// peer is the process at the other end of a connection.
type peer struct {
	on   listener
	uid  uint32 // on the Unix socket
	name string // the account of a Unix socket, or the TCP address
}

type peerKey struct{}

// withPeer stores the peer of a connection in the context of its requests.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, peerKey{}, peerOfConn(c))
}

func peerOf(r *http.Request) peer {
	if p, ok := r.Context().Value(peerKey{}).(peer); ok {
		return p
	}
	return peer{name: r.RemoteAddr} // a test calls ServeHTTP directly
}

// peerOfConn returns the peer of an accepted connection.
func peerOfConn(c net.Conn) peer {
	switch c := c.(type) {
	case *boundedConn:
		return peerOfConn(c.Conn)
	case *net.UnixConn:
		return peerOfSocket(c)
	case *tls.Conn:
		return peer{on: onTLS, name: c.RemoteAddr().String()}
	case *net.TCPConn:
		return peer{on: onPlain, name: c.RemoteAddr().String()}
	default:
		return peer{name: c.RemoteAddr().String()}
	}
}

// peerOfSocket reads the account of a Unix socket's peer from the kernel.
func peerOfSocket(u *net.UnixConn) peer {
	// Without credentials the peer must not be taken for root, which is uid 0.
	p := peer{on: onSocket, uid: ^uint32(0), name: "unknown"}

	raw, err := u.SyscallConn()
	if err != nil {
		return p
	}

	var cred *syscall.Ucred

	controlErr := raw.Control(func(fd uintptr) {
		cred, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if controlErr != nil || err != nil || cred == nil {
		return p
	}

	p.uid, p.name = cred.Uid, accountName(cred.Uid)

	return p
}

func accountName(uid uint32) string {
	if uid == 0 {
		return "root"
	}

	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return "uid " + id
}

// remote returns the other end of the connection for the access log.
func remote(r *http.Request) string {
	p := peerOf(r)
	if p.on == onSocket {
		return "uid " + strconv.FormatUint(uint64(p.uid), 10)
	}
	return p.name
}

// caller returns the caller of a request, without precondition or key.
func caller(r *http.Request) access.Caller { return access.IdentityOf(r.Context()).Caller() }

// keyed returns the caller of a request with its idempotency key, if it has one.
func keyed(r *http.Request, body any) (access.Caller, error) {
	c := caller(r)

	key, err := rest.IdempotencyKey(r, clientOf(r), body)
	if key != nil {
		c.Key = &access.Key{ID: key.ID, Request: key.Request}
	}
	return c, err
}

// clientOf identifies the sender of a request and of its retries.
func clientOf(r *http.Request) string {
	id := access.IdentityOf(r.Context())

	switch id.Credential {
	case access.CredentialSocket, access.CredentialPlainHTTP:
		return id.Principal
	default:
		return id.Credential
	}
}

// showReplayed marks the answer as the stored result of an earlier request.
func showReplayed(w http.ResponseWriter, r *http.Request, c access.Caller) {
	if c.Replayed() {
		w.Header().Set(api.HeaderReplayed, "true")
		rest.Note(r, "replayed", true)
	}
}

// guarded returns the caller of a change with its precondition; see precondition.
func guarded(
	r *http.Request, c access.Caller, name string, revision func(*state.View) (int64, error),
) (access.Caller, error) {
	var err error

	c.Precondition, err = precondition(r, name, revision)
	return c, err
}

// precondition returns the precondition in the headers of a change. revision
// reads the revision of the record in a view; name is used in the error.
func precondition(
	r *http.Request, name string, revision func(*state.View) (int64, error),
) (access.Precondition, error) {
	check, err := rest.PreconditionOf(r)
	if err != nil || check == nil {
		return nil, err
	}

	return func(v *state.View) error {
		current, err := revision(v)
		if err != nil {
			return err
		}
		return check(name, func(t rest.Tags) bool { return t.MatchRecord(current) })
	}, nil
}
