// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/server/rest"
)

// admit authenticates the caller of a request, and refuses a caller whose role
// may not use the route. The context that it returns carries the origin of the
// request, and the identity of the caller if it is known.
func (s *Server) admit(r *http.Request, rt rest.Route) (context.Context, string, error) {
	ctx := access.WithOrigin(r.Context(), &access.Origin{
		Request: rest.RequestID(r), From: remote(r), Via: peerOf(r).on.String(),
	})

	if err := refuseBrowsers(r); err != nil {
		return ctx, "", err
	}

	id, err := s.authenticate(r)
	if err != nil {
		return ctx, "", err
	}
	ctx = access.WithIdentity(ctx, id)

	// Every known caller may learn that a path is not served.
	if rt.Served() {
		if err := rt.Allow.Authorize(id, rt.String()); err != nil {
			return ctx, id.Principal, err
		}

		if id.Filter, err = s.filters.Of(id.Scope); err != nil {
			return ctx, id.Principal, err
		}

		ctx = access.WithIdentity(ctx, id)
	}

	if rt.NeedsRoom() && s.Room != nil {
		if err := s.Room(); err != nil {
			return ctx, id.Principal, err
		}
	}

	// A change is short, and its end would leave its result open.
	if !rt.Mutates() {
		ctx = s.Tokens.Follow(ctx, id)
	}

	return ctx, id.Principal, nil
}

// The audit records of refusals that no use case has recorded.
const (
	actionRefused = "requests.refuse"
	// anonymous is the principal of a caller that is not authenticated.
	anonymous = "anonymous"
)

// failed leaves the audit record of a request that was refused before a use case
// decided on it: one without permission, or a change with an invalid request.
func (s *Server) failed(r *http.Request, rt rest.Route, err *inventory.Error) {
	denied := err.Kind == inventory.KindUnauthenticated || err.Kind == inventory.KindForbidden

	ctx := r.Context()
	if s.Audit == nil || !denied && !rt.Mutates() || access.OriginOf(ctx).Recorded() {
		return
	}
	c := access.Caller{Principal: cmp.Or(access.IdentityOf(ctx).Principal, anonymous)}
	record := access.Record{Action: actionRefused, Targets: []string{r.Method + " " + r.URL.Path}}
	_ = access.Audited(ctx, s.Audit, c, record, func(_ context.Context, _ *access.Record) error { return err })
}

// authenticate returns the identity of the caller: that of its bearer token, or
// else that of its connection.
func (s *Server) authenticate(r *http.Request) (access.Identity, error) {
	p := peerOf(r)

	header := r.Header.Values("Authorization")
	if len(header) == 0 {
		return s.connected(r, p)
	}

	// The token crossed the host in the clear, so it must not become a habit.
	if p.on == onPlain {
		return access.Identity{}, inventory.Errorf(inventory.KindUnauthenticated,
			"plain HTTP takes no credentials: other programs on this host can read them").
			Do("send the token over HTTPS, or leave the header Authorization out")
	}

	scheme, token, _ := strings.Cut(header[0], " ")
	if len(header) > 1 || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return access.Identity{}, inventory.Errorf(inventory.KindUnauthenticated,
			"the header Authorization holds no bearer token").Do("send it once, as Authorization: Bearer TOKEN")
	}

	if p.on == onUnknown {
		return access.Identity{}, inventory.Errorf(inventory.KindUnauthenticated, "the bearer token is not valid").
			Do("ask an admin for a new token")
	}

	return s.Tokens.Authenticate(r.Context(), token)
}

// connected returns the identity of a caller without a bearer token: the account
// at the other end of the Unix socket, the configured role of plain HTTP, or that of a
// client certificate.
func (s *Server) connected(r *http.Request, p peer) (access.Identity, error) {
	switch {
	case p.on == onSocket && isOwner(p.uid):
		name, err := actor(r, p)
		return access.Identity{Principal: name, Role: access.RoleAdmin, Credential: access.CredentialSocket}, err
	case p.on == onSocket:
		return access.Identity{}, inventory.Errorf(inventory.KindUnauthenticated,
			"the account %s has no access: the socket is for root", p.name).
			Do("run the command as root (sudo), or with a token")
	case p.on == onPlain:
		return access.Identity{
			Principal: job.PlainHTTP + hostOf(p.name), Role: s.PlainHTTPRole, Credential: access.CredentialPlainHTTP,
		}, nil
	case p.on == onTLS && r.TLS != nil && len(r.TLS.PeerCertificates) > 0 && s.CertifiedCaller != nil:
		return s.CertifiedCaller(r.TLS.PeerCertificates[0])
	default:
		return access.Identity{}, inventory.Errorf(inventory.KindUnauthenticated, "the request has no credentials").
			Do("send a token, as Authorization: Bearer TOKEN")
	}
}

// hostOf returns an address without its port: that is another one for each connection, and
// no other caller.
func hostOf(addr string) string {
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return addr
}

// isOwner reports whether an account controls this process anyway: root, or its
// own account. The socket has mode 0600, but an operator can widen it.
func isOwner(uid uint32) bool { return uid == 0 || int64(uid) == int64(os.Geteuid()) }

// actor returns the account at the other end of the Unix socket, or the person
// that root names in X-Clusterm-Actor.
func actor(r *http.Request, p peer) (string, error) {
	claimed := r.Header.Get(api.HeaderActor)
	if claimed == "" || p.uid != 0 {
		return p.name, nil
	}
	printable := !strings.ContainsFunc(claimed, func(c rune) bool { return c <= ' ' || c > '~' })
	if len(claimed) > api.MaxActor || !printable {
		return "", inventory.Errorf(inventory.KindInvalid, "the header %s is not a valid name", api.HeaderActor).
			Do("write a name of at most %d printable characters", api.MaxActor)
	}

	return claimed, nil
}
