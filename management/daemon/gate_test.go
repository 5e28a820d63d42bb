// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/pki"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/server"
	"github.com/contiv/cluster/management/server/rest"
)

// credential is one way to prove an identity over HTTPS.
type credential struct {
	what  string
	token string          // sent as it is; empty: none
	cert  tls.Certificate // empty: none
	// allowed reports whether the credential opens a route; nil: none.
	allowed func(rest.Route) bool
	// refused is the status of a route that it does not open; 0: the handshake fails.
	refused int
}

// role returns the condition that a role opens a route.
func role(r access.Role) func(rest.Route) bool {
	return func(p rest.Route) bool { return slices.Contains(p.Allow.Roles, r) }
}

// within returns the condition that a role with a scope opens a route.
func within(r access.Role) func(rest.Route) bool {
	return func(p rest.Route) bool { return slices.Contains(p.Allow.Roles, r) && p.Allow.Within }
}

// tokenFor returns a new token.
func (s *site) tokenFor(r api.TokenRequest) string {
	s.t.Helper()
	made, err := s.CreateToken(s.ctx(), r)
	s.must(err)
	return made.Token
}

// expiredToken returns a token that expired a second ago.
func (s *site) expiredToken() string {
	s.t.Helper()

	const id = "0123456789abcdef"

	token := "clusterm-" + id + "-" + strings.Repeat("0", 64)
	sum := sha256.Sum256([]byte(token))

	_, err := record.Replace(s.ctx(), s.store, &access.TokenKind, id, 0, &access.Token{
		ID: id, Name: "expired", Role: access.RoleAdmin, Hash: hex.EncodeToString(sum[:]),
		Created: time.Now().Add(-time.Hour), Expires: time.Now().Add(-time.Second),
	})
	s.must(err)

	return token
}

// certificate returns a client certificate of the CA in the folder, under the name rack1.
func (s *site) certificate(dir, role string, life time.Duration) tls.Certificate {
	s.t.Helper()
	return s.certificateFor(dir, pki.Grant{Name: "rack1", Role: role}, life)
}

func (s *site) certificateFor(dir string, g pki.Grant, life time.Duration) tls.Certificate {
	s.t.Helper()

	text, err := pki.IssueClient(dir, g, life)
	s.must(err)
	pair, err := tls.X509KeyPair(text, text)
	s.must(err)

	return pair
}

// credentials returns good and bad proofs of every kind.
func (s *site) credentials(i issuer) []credential {
	s.t.Helper()

	revoked := s.tokenFor(api.TokenRequest{Role: "admin", Name: "revoked"})
	_, err := s.RevokeToken(s.ctx(), "revoked")
	s.must(err)

	foreign := filepath.Join(s.t.TempDir(), "pki")
	_, err = pki.Open(pki.Options{Dir: foreign, Names: func() []string { return []string{"localhost"} }})
	s.must(err)

	gone := s.certificateFor(s.pkiDir(), pki.Grant{Name: "gone", Role: "admin"}, time.Hour)
	_, err = s.RevokeCertificate(s.ctx(), "gone")
	s.must(err)

	expired := s.certificate(s.pkiDir(), "admin", time.Nanosecond)
	workers := []string{inventory.GroupWorker}
	scope := &api.Scope{Groups: workers}

	all := []credential{
		{what: "no credentials", refused: 401},
		{what: "a malformed token", token: "Bearer admin", refused: 401},
		{what: "no bearer token", token: "Basic YTpi", refused: 401},
		{what: "an expired token", token: "Bearer " + s.expiredToken(), refused: 401},
		{what: "a revoked token", token: "Bearer " + revoked, refused: 401},
		{what: "a malformed token of an issuer", token: "Bearer a.b.c", refused: 401},
		{what: "a token for others", token: "Bearer " + i.token(s.t, "other", "sre"), refused: 401},
		{what: "a token without a role", token: "Bearer " + i.token(s.t, "clusterm", "staff"), refused: 403},
		{what: "a certificate of another CA", cert: s.certificate(foreign, "admin", time.Hour)},
		{what: "an expired certificate", cert: expired},
		{what: "a revoked certificate", cert: gone, refused: 401},
		{
			what: "a certificate with a broken scope", refused: 403,
			cert: s.certificateFor(s.pkiDir(), pki.Grant{Name: "ann", Role: "viewer", Selector: "rack in"}, time.Hour),
		},
		{
			what: "a certificate of an admin with a scope", refused: 403,
			cert: s.certificateFor(s.pkiDir(), pki.Grant{Name: "ann", Role: "admin", Groups: workers}, time.Hour),
		},
		{what: "a certificate of no role", cert: s.certificate(s.pkiDir(), "king", time.Hour), refused: 403},
		{
			what: "a token of an issuer", token: "Bearer " + i.token(s.t, "clusterm", "sre"),
			allowed: role(access.RoleAdmin), refused: 403,
		},
		{
			what: "a token of an issuer with a scope", token: "Bearer " + i.token(s.t, "clusterm", "workers"),
			allowed: within(access.RoleOperator), refused: 403,
		},
	}

	for _, r := range access.Roles {
		var byCertificate func(rest.Route) bool
		if r != access.RoleInstance { // it would be for more than one use
			byCertificate = role(r)
		}

		all = append(all,
			credential{
				what: "a token of " + string(r), token: "Bearer " + s.tokenFor(api.TokenRequest{Role: string(r)}),
				allowed: role(r), refused: 403,
			},
			credential{
				what: "a certificate of " + string(r), cert: s.certificate(s.pkiDir(), string(r), time.Hour),
				allowed: byCertificate, refused: 403,
			})
	}

	for _, r := range []access.Role{access.RoleViewer, access.RoleOperator} {
		token := s.tokenFor(api.TokenRequest{Role: string(r), Scope: scope})
		all = append(all, credential{
			what: "a scoped token of " + string(r), token: "Bearer " + token, allowed: within(r), refused: 403,
		}, credential{
			what: "a scoped certificate of " + string(r), allowed: within(r), refused: 403,
			cert: s.certificateFor(s.pkiDir(), pki.Grant{Name: "ann", Role: string(r), Groups: workers}, time.Hour),
		})
	}

	return all
}

var parameter = regexp.MustCompile(`\{[^}]*\}`)

// knock sends a request of a route without a body, and returns the status; 0: there was
// no answer.
func (s *site) knock(c credential, h *http.Client, p rest.Route) int {
	s.t.Helper()

	ctx, cancel := context.WithCancel(s.ctx())
	defer cancel() // a watch goes on

	url := s.secureURL() + parameter.ReplaceAllString(p.Path, "x-1")

	r, err := http.NewRequestWithContext(ctx, p.Method, url, http.NoBody)
	s.must(err)

	if c.token != "" {
		r.Header.Set("Authorization", c.token)
	}

	res, err := h.Do(r)
	if err != nil {
		return 0
	}
	defer res.Body.Close()

	return res.StatusCode
}

// TestGateOverHTTPS tries routes with every kind of credentials, on a real listener.
func TestGateOverHTTPS(t *testing.T) {
	t.Parallel()

	i := startIssuer(t)
	s := secureSite(t, fmt.Sprintf("oidc: {issuer: %q, audience: clusterm, ca_file: %q, rules: ["+
		"{value: sre, role: admin}, {value: workers, role: operator, groups: [service-worker]}]}", i.URL, i.caFile(t)))

	// One route of each kind: a test of the server tries all of them.
	tried := map[string]rest.Route{}
	for _, p := range server.Routes() {
		tried[fmt.Sprint(p.Allow)] = p
	}

	opened := 0

	for _, c := range s.credentials(i) {
		config := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the test is about the client
		if c.cert.Certificate != nil {
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return &c.cert, nil
			}
		}

		transport := &http.Transport{TLSClientConfig: config}
		h := &http.Client{Transport: transport}

		for _, p := range tried {
			status := s.knock(c, h, p)
			denied := status == http.StatusUnauthorized || status == http.StatusForbidden || status == 0

			if c.allowed != nil && c.allowed(p) {
				opened++

				if denied {
					t.Errorf("%s, %s: %d, and it is allowed", p, c.what, status)
				}
			} else if status != c.refused {
				t.Errorf("%s, %s: %d, want %d", p, c.what, status, c.refused)
			}
		}

		transport.CloseIdleConnections()
	}

	// Streams end with the certificate.
	id, err := s.remote("viewer").WhoAmI(s.ctx())
	s.must(err)

	if id.Principal != "certificate:rack1" || id.Credential != "certificate" || id.Expires == nil ||
		time.Until(*id.Expires) > time.Hour {
		t.Errorf("the identity of a certificate: %+v", id)
	}

	if opened < len(tried) {
		t.Errorf("only %d allowed pairs were tried", opened)
	}
}
