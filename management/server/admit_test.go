// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/record/recordtest"
	"github.com/contiv/cluster/management/server"
	"github.com/contiv/cluster/management/server/rest"
)

// newTokens returns an empty store of tokens and revoked certificates.
func newTokens() *recordtest.Store {
	return recordtest.NewStore(&access.TokenKind, &access.TokenUseKind, &access.RevocationKind)
}

// changeToken changes the stored token of a name.
func changeToken(t *testing.T, store *recordtest.Store, name string, change func(*access.Token)) {
	t.Helper()

	_, _, err := record.Decide(t.Context(), store, func(tx *record.Tx) (struct{}, error) {
		for _, token := range record.All(tx, &access.TokenKind) {
			if token.Name == name {
				changed := *token
				change(&changed)
				record.Put(tx, &access.TokenKind, &changed)
			}
		}

		return struct{}{}, nil
	})
	errtest.None(t, err)
}

// noAudit drops audit records.
type noAudit struct{}

func (noAudit) Record(context.Context, access.Record) {}

// issued holds tokens of every kind.
type issued struct {
	valid            map[access.Role]string
	scoped           map[access.Role]string // of the nodes of service-worker
	expired, revoked string
}

// issue makes tokens of every kind, in the given use cases.
func issue(t *testing.T, tokens *access.Tokens, store *recordtest.Store) issued {
	t.Helper()

	admin := access.Identity{Role: access.RoleAdmin}
	create := func(name string, role access.Role, groups ...string) string {
		t.Helper()

		_, token, err := tokens.Create(t.Context(), access.Caller{}, admin, access.TokenRequest{
			Name: name, Role: role, Scope: access.Scope{Groups: groups},
		})
		errtest.None(t, err)
		return token
	}

	out := issued{
		valid:   map[access.Role]string{},
		scoped:  map[access.Role]string{},
		expired: create("expired", access.RoleAdmin), revoked: create("revoked", access.RoleAdmin),
	}
	for _, role := range access.Roles {
		out.valid[role] = create(string(role), role)
	}

	for _, role := range []access.Role{access.RoleViewer, access.RoleOperator} {
		out.scoped[role] = create("scoped-"+string(role), role, inventory.GroupWorker)
	}

	changeToken(t, store, "expired", func(token *access.Token) { token.Expires = time.Now() })

	if _, err := tokens.Revoke(t.Context(), access.Caller{}, "revoked"); err != nil {
		t.Fatal(err)
	}

	return out
}

var parameter = regexp.MustCompile(`\{[^}]*\}`)

// gate sends a request without a body to a route, and returns its answer. An
// unreadable body shows that the gate reads nothing else.
func gate(ctx context.Context, s *server.Server, rt rest.Route, authorization ...string) *httptest.ResponseRecorder {
	body := &unreadable{}
	r := httptest.NewRequestWithContext(ctx, rt.Method, parameter.ReplaceAllString(rt.Path, "x"), body)
	r.Host = "localhost"
	r.Header["Authorization"] = authorization

	// A stream ends at once.
	ctx, cancel := context.WithCancel(r.Context())
	cancel()

	w := httptest.NewRecorder()
	s.ServeHTTP(w, r.WithContext(ctx))

	if denied(w) && body.read {
		w.Body.WriteString("\nthe gate read the body")
	}

	return w
}

type unreadable struct{ read bool }

func (b *unreadable) Read([]byte) (int, error) {
	b.read = true
	return 0, http.ErrBodyReadAfterClose
}

func denied(w *httptest.ResponseRecorder) bool {
	return w.Code == http.StatusUnauthorized || w.Code == http.StatusForbidden
}

// TestGate tries every route with every kind of credentials.
func TestGate(t *testing.T) {
	t.Parallel()

	store := newTokens()
	tokens := access.NewTokens(store, noAudit{}, inventory.DefaultGroups)
	given := issue(t, tokens, store)
	admin := "Bearer " + given.valid[access.RoleAdmin]

	withRole := func(role access.Role) *server.Server {
		return serve(t, func(o *server.Options) { o.Tokens, o.PlainHTTPRole = tokens, role }).Server
	}
	s := withRole("")
	plain := map[access.Role]*server.Server{}

	for _, role := range access.Roles {
		plain[role] = withRole(role)
	}

	const nobody = 65534

	ctx := t.Context()
	own := uint32(os.Geteuid())
	socket, plainHTTP := server.OnSocket(ctx, 0, "root"), server.OnPlain(ctx)

	for _, rt := range s.Routes() {
		roles := rt.Allow.Roles

		want := func(what string, status int, w *httptest.ResponseRecorder) {
			t.Helper()

			if w.Code != status || strings.Contains(w.Body.String(), "the gate read") {
				t.Errorf("%s %s, %s: got %d %s, want %d", rt.Method, rt.Path, what, w.Code, w.Body, status)
			}

			if asks := w.Header().Get("WWW-Authenticate"); (status == http.StatusUnauthorized) != (asks == "Bearer") {
				t.Errorf("%s %s, %s: WWW-Authenticate is %q", rt.Method, rt.Path, what, asks)
			}

			kind := map[int]inventory.Kind{401: inventory.KindUnauthenticated, 403: inventory.KindForbidden}[status]
			if rt.Family == rest.Versioned && !strings.Contains(w.Body.String(), api.ProblemBase+string(kind)) {
				t.Errorf("%s %s, %s: got the problem %s", rt.Method, rt.Path, what, w.Body)
			}
		}
		wantPassed := func(what string, w *httptest.ResponseRecorder) {
			t.Helper()

			if denied(w) {
				t.Errorf("%s %s, %s: got %d %s", rt.Method, rt.Path, what, w.Code, w.Body)
			}
		}

		for what, token := range map[string]string{
			"malformed": "admin", "expired": given.expired, "revoked": given.revoked,
			"unknown":          "clusterm-0123456789abcdef-" + strings.Repeat("0", 64),
			"of another token": given.valid[access.RoleAdmin][:26] + given.valid[access.RoleViewer][26:],
			"too long":         given.valid[access.RoleAdmin] + "0",
		} {
			want("a token that is "+what, 401, gate(socket, s, rt, "Bearer "+token))
			want("over HTTPS, a token that is "+what, 401, gate(server.OnTLS(ctx), s, rt, "Bearer "+token))
		}

		for _, malformed := range []string{"", "Bearer", "Bearer ", "Basic YTpi", given.valid[access.RoleAdmin]} {
			want("the header "+malformed, 401, gate(socket, s, rt, malformed))
		}

		want("two tokens", 401, gate(socket, s, rt, admin, admin))
		want("no credentials over HTTPS", 401, gate(server.OnTLS(ctx), s, rt))
		want("an unknown listener", 401, gate(ctx, s, rt))
		want("a token on an unknown listener", 401, gate(ctx, s, rt, admin))
		want("another account on the socket", 401, gate(server.OnSocket(ctx, nobody, "nobody"), s, rt))
		want("no account on the socket", 401, gate(server.OnSocket(ctx, ^uint32(0), "unknown"), s, rt))
		want("a token over plain HTTP", 401, gate(plainHTTP, plain[access.RoleAdmin], rt, admin))
		want("plain HTTP without a role", 403, gate(plainHTTP, s, rt))

		// An instance joins by its invitation only.
		wantAdmin := wantPassed
		if rt.Path == api.PathJoin {
			wantAdmin = func(what string, w *httptest.ResponseRecorder) { want(what, 403, w) }
		}
		wantAdmin("root on the socket", gate(socket, s, rt))
		wantAdmin("the account of the daemon", gate(server.OnSocket(ctx, own, "own"), s, rt))

		for role, token := range given.scoped {
			w := gate(server.OnTLS(ctx), s, rt, "Bearer "+token)
			if slices.Contains(roles, role) && rt.Allow.Within {
				wantPassed("a scoped token of "+string(role), w)
			} else {
				want("a scoped token of "+string(role), 403, w)
			}
		}

		for _, role := range access.Roles {
			ways := map[string]*httptest.ResponseRecorder{
				"a token on the socket": gate(socket, s, rt, "Bearer "+given.valid[role]),
				"a token over HTTPS":    gate(server.OnTLS(ctx), s, rt, "bearer "+given.valid[role]),
				"plain HTTP":            gate(plainHTTP, plain[role], rt),
			}
			for way, w := range ways {
				if slices.Contains(roles, role) {
					wantPassed(string(role)+" by "+way, w)
				} else {
					want(string(role)+" by "+way, 403, w)
				}
			}
		}
	}
}

// TestUnservedRoutes expects that only known callers learn which paths exist.
func TestUnservedRoutes(t *testing.T) {
	t.Parallel()

	store := newTokens()
	tokens := access.NewTokens(store, noAudit{}, inventory.DefaultGroups)
	monitor := "Bearer " + issue(t, tokens, store).valid[access.RoleMonitor]
	s := serve(t, func(o *server.Options) { o.Tokens = tokens }).Server

	for _, tt := range []struct {
		rt   rest.Route
		want int
	}{
		{rest.Route{Method: http.MethodGet, Path: "/v1/spare"}, http.StatusNotFound},
		{rest.Route{Method: http.MethodGet, Path: "/spare"}, http.StatusNotFound},
		{rest.Route{Method: http.MethodDelete, Path: "/v1/jobs"}, http.StatusMethodNotAllowed},
		{rest.Route{Method: http.MethodOptions, Path: "/v1/jobs"}, http.StatusNoContent},
	} {
		if w := gate(server.OnTLS(t.Context()), s, tt.rt); w.Code != http.StatusUnauthorized {
			t.Errorf("%s %s without credentials: %d", tt.rt.Method, tt.rt.Path, w.Code)
		}

		if w := gate(server.OnTLS(t.Context()), s, tt.rt, monitor); w.Code != tt.want {
			t.Errorf("%s %s: %d, want %d", tt.rt.Method, tt.rt.Path, w.Code, tt.want)
		}
	}
}

// TestRevokedStream expects the open streams of a token to end when it is revoked,
// and the next request to be refused.
func TestRevokedStream(t *testing.T) {
	t.Parallel()

	store := newTokens()
	tokens := access.NewTokens(store, noAudit{}, inventory.DefaultGroups)

	for _, l := range tokens.Loops() {
		l.Start(t.Context())
		t.Cleanup(l.Stop)
	}

	s := serve(t, func(o *server.Options) { o.Tokens = tokens })
	viewer := issue(t, tokens, store).valid[access.RoleViewer]

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	c := &http.Client{Transport: dialing(s.socket)}
	get := func(path string) (*http.Response, error) {
		r := must[*http.Request](t)(http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil))
		r.Header.Set("Authorization", "Bearer "+viewer)
		return c.Do(r)
	}

	res := must[*http.Response](t)(get(api.PathWatch))
	defer res.Body.Close()

	if res.StatusCode != http.StatusOK {
		t.Fatalf("the watch: %s", res.Status)
	}

	if _, err := tokens.Revoke(ctx, access.Caller{}, "viewer"); err != nil {
		t.Fatal(err)
	}

	if _, err := io.Copy(io.Discard, res.Body); ctx.Err() != nil {
		t.Errorf("the watch of a revoked token goes on: %v", err)
	}

	again := must[*http.Response](t)(get(api.PathNodes))
	defer again.Body.Close()

	if again.StatusCode != http.StatusUnauthorized {
		t.Errorf("a revoked token on an open connection: %s", again.Status)
	}
}
