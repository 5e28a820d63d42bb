// SPDX-License-Identifier: Apache-2.0

package oidc

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/access"
)

// patience limits every wait of a test.
const patience = time.Minute

// signer is a key of an issuer.
type signer struct {
	id  string
	key *ecdsa.PrivateKey
}

func newSigner(t *testing.T, id string) signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	errtest.None(t, err)
	return signer{id, key}
}

// jwk returns the public key as a JSON web key.
func (s signer) jwk() map[string]any {
	x, y := make([]byte, 32), make([]byte, 32)
	s.key.X.FillBytes(x)
	s.key.Y.FillBytes(y)

	return map[string]any{
		"kty": "EC",
		"crv": "P-256",
		"kid": s.id,
		"use": "sig",
		"alg": "ES256",
		"x":   b64(x),
		"y":   b64(y),
	}
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b64(b)
}

// sign returns a token with the claims.
func (s signer) sign(t *testing.T, claims map[string]any) string {
	t.Helper()

	text := encode(map[string]any{"alg": "ES256", "kid": s.id}) + "." + encode(claims)
	digest := sha256.Sum256([]byte(text))

	r, v, err := ecdsa.Sign(rand.Reader, s.key, digest[:])
	errtest.None(t, err)
	return text + "." + b64(signature(r, v))
}

func signature(r, s *big.Int) []byte {
	out := make([]byte, 64)
	r.FillBytes(out[:32])
	s.FillBytes(out[32:])
	return out
}

// issuer is an OpenID Connect issuer with a discovery document and keys.
type issuer struct {
	*httptest.Server

	discoveries, fetches atomic.Int64

	mu       sync.Mutex
	keys     []signer
	document func(map[string]any)                     // changes the discovery document
	handle   func(http.ResponseWriter, *http.Request) // replaces every answer
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()

	i := &issuer{keys: []signer{newSigner(t, "one")}}
	i.Server = httptest.NewTLSServer(http.HandlerFunc(i.serve))
	i.Config.ErrorLog = nil
	t.Cleanup(i.Close)

	return i
}

func (i *issuer) serve(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	keys, change, handle := i.keys, i.document, i.handle
	i.mu.Unlock()

	if handle != nil {
		handle(w, r)
		return
	}

	w.Header().Set("Content-Type", "application/json")

	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		i.discoveries.Add(1)

		document := map[string]any{
			"issuer":                                i.URL,
			"jwks_uri":                              i.URL + "/keys",
			"authorization_endpoint":                i.URL + "/auth",
			"token_endpoint":                        i.URL + "/token",
			"id_token_signing_alg_values_supported": []string{"ES256", "HS256", "none"},
		}
		if change != nil {
			change(document)
		}
		_ = json.NewEncoder(w).Encode(document)
	case "/keys":
		i.fetches.Add(1)

		var all []any
		for _, key := range keys {
			all = append(all, key.jwk())
		}

		_ = json.NewEncoder(w).Encode(map[string]any{"keys": all})
	default:
		http.NotFound(w, r)
	}
}

func (i *issuer) set(change func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change()
}

// claims returns the claims of a valid token, with changes; nil removes one.
func (i *issuer) claims(changes map[string]any) map[string]any {
	now := time.Now()
	out := map[string]any{
		"iss": i.URL, "aud": []string{"other", "clusterm"}, "sub": "1234", "email": "ann@example.com",
		"email_verified": true, "groups": []string{"staff", "sre"}, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	}

	for name, value := range changes {
		if out[name] = value; value == nil {
			delete(out, name)
		}
	}

	return out
}

// verifier returns a verifier that asks the issuer each time.
func (i *issuer) verifier(adjust ...func(*Options)) *Verifier {
	roots := x509.NewCertPool()
	roots.AddCert(i.Certificate())

	o := Options{
		Issuer: i.URL, Audience: "clusterm", NameClaim: "email", Claim: "groups", Roots: roots, Keep: time.Nanosecond,
		Rules: []Rule{
			{Value: "workers", Role: access.RoleOperator, Scope: access.Scope{Groups: []string{"service-worker"}}},
			{Value: "sre", Role: access.RoleAdmin},
			{Value: "staff", Role: access.RoleViewer},
		},
	}
	for _, f := range adjust {
		f(&o)
	}

	return New(o)
}

func testCtx(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// TestIdentity expects the first rule with a value of the claim to decide.
func TestIdentity(t *testing.T) {
	t.Parallel()

	i := newIssuer(t)
	v := i.verifier()

	for _, tt := range []struct {
		groups any
		want   access.Role
		scope  string
	}{
		{[]string{"staff", "sre"}, access.RoleAdmin, ""},
		{[]string{"staff"}, access.RoleViewer, ""},
		{"staff", access.RoleViewer, ""},
		{[]string{"sre", "workers"}, access.RoleOperator, "group service-worker"},
	} {
		id, err := v.Verify(testCtx(t), i.keys[0].sign(t, i.claims(map[string]any{"groups": tt.groups})))
		if err != nil {
			t.Errorf("%v: %v", tt.groups, err)
			continue
		}

		if id.Role != tt.want || id.Scope.String() != tt.scope || id.Principal != "oidc:ann@example.com" {
			t.Errorf("%v: %+v", tt.groups, id)
		}

		if id.Issuer != i.URL || !strings.HasPrefix(id.Credential, "oidc:") || time.Until(id.Expires) < time.Minute {
			t.Errorf("%v: %+v", tt.groups, id)
		}

		if id.Name() != "ann@example.com" {
			t.Errorf("the name is %q", id.Name())
		}
	}

	if n := i.discoveries.Load(); n != 1 {
		t.Errorf("%d requests for the configuration of the issuer", n)
	}
}

// TestNestedClaim expects a dot to lead into a claim, unless the name has one.
func TestNestedClaim(t *testing.T) {
	t.Parallel()

	i := newIssuer(t)
	v := i.verifier(func(o *Options) { o.Claim, o.NameClaim = "realm_access.roles", "https://example.com/name" })

	token := i.keys[0].sign(t, i.claims(map[string]any{
		"realm_access": map[string]any{"roles": []string{"sre"}}, "https://example.com/name": "ann",
	}))
	if id, err := v.Verify(testCtx(t), token); err != nil || id.Role != access.RoleAdmin || id.Principal != "oidc:ann" {
		t.Errorf("%+v, %v", id, err)
	}
}

// TestRefusedTokens expects each token to be refused with its reason.
func TestRefusedTokens(t *testing.T) {
	t.Parallel()

	i := newIssuer(t)
	v := i.verifier()
	key, stranger := i.keys[0], newSigner(t, "one")

	with := func(changes map[string]any) string { return key.sign(t, i.claims(changes)) }
	head := func(header map[string]any) string { return encode(header) + "." + encode(i.claims(nil)) }

	mac := hmac.New(sha256.New, []byte(encode(key.jwk())))
	symmetric := head(map[string]any{"alg": "HS256", "kid": "one"})
	mac.Write([]byte(symmetric))

	const invalid = inventory.KindUnauthenticated

	past := map[string]any{"exp": time.Now().Add(-time.Second).Unix()}
	unsigned := head(map[string]any{"alg": "None", "kid": "one"})
	valid := with(nil)
	parts := strings.Split(valid, ".")

	for what, tt := range map[string]struct {
		token string
		want  inventory.Kind
		words string
	}{
		"expired":            {with(past), invalid, "expired at"},
		"without an end":     {with(map[string]any{"exp": nil}), invalid, "expired at"},
		"not valid yet":      {with(map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}), invalid, "nbf"},
		"wrong audience":     {with(map[string]any{"aud": "other"}), invalid, "audience"},
		"no audience":        {with(map[string]any{"aud": nil}), invalid, "audience"},
		"prefix of audience": {with(map[string]any{"aud": "clusterm2"}), invalid, "audience"},
		"wrong issuer":       {with(map[string]any{"iss": i.URL + "/other"}), invalid, "different provider"},
		"no issuer":          {with(map[string]any{"iss": nil}), invalid, "different provider"},
		"wrong signature":    {stranger.sign(t, i.claims(nil)), invalid, "signature"},
		"unknown key":        {newSigner(t, "two").sign(t, i.claims(nil)), invalid, "signature"},
		"other claims": {
			parts[0] + "." + encode(i.claims(map[string]any{"groups": "sre"})) + "." + parts[2],
			invalid, "signature",
		},
		"no signature": {parts[0] + "." + parts[1] + ".", invalid, "not valid"},
		"alg none":     {head(map[string]any{"alg": "none"}) + ".", invalid, "not valid"},
		"alg None":     {unsigned + "." + parts[2], invalid, "not valid"},
		"symmetric":    {symmetric + "." + b64(mac.Sum(nil)), invalid, "not valid"},
		"a key of its own": {
			encode(map[string]any{"alg": "ES256", "jwk": stranger.jwk()}) + "." + parts[1] + "." + parts[2],
			invalid, "signature",
		},
		"malformed":     {"a.b.c", invalid, "not valid"},
		"empty":         {"", invalid, "not valid"},
		"unverified":    {with(map[string]any{"email_verified": false}), invalid, "has not verified the email"},
		"unstated":      {with(map[string]any{"email_verified": nil}), invalid, "has not verified the email"},
		"no name":       {with(map[string]any{"email": nil}), invalid, "email"},
		"two names":     {with(map[string]any{"email": []string{"a", "b"}}), invalid, "email"},
		"escapes":       {with(map[string]any{"email": "a\x1b[31m"}), invalid, "email"},
		"a long name":   {with(map[string]any{"email": strings.Repeat("a", maxName+1)}), invalid, "email"},
		"unknown claim": {with(map[string]any{"groups": []string{"sr", "sre2", "SRE"}}), "forbidden", "has no role"},
		"no claim":      {with(map[string]any{"groups": nil}), "forbidden", "has no role"},
		"a number":      {with(map[string]any{"groups": 7}), "forbidden", "has no role"},
		"an object":     {with(map[string]any{"groups": map[string]any{"sre": true}}), "forbidden", "has no role"},
	} {
		id, err := v.Verify(testCtx(t), tt.token)
		if inventory.KindOf(err) != tt.want || !strings.Contains(err.Error(), tt.words) || id.Role != "" {
			t.Errorf("%s: %+v, %v, want %s: %s", what, id, err, tt.want, tt.words)
		}
	}

	if _, err := v.Verify(testCtx(t), valid); err != nil {
		t.Errorf("the valid token after all: %v", err)
	}
}

// TestKeyRotation expects a new key to be found, and a removed one to be given up.
func TestKeyRotation(t *testing.T) {
	t.Parallel()

	i := newIssuer(t)
	v := i.verifier()
	old, fresh := i.keys[0], newSigner(t, "two")

	if _, err := v.Verify(testCtx(t), old.sign(t, i.claims(nil))); err != nil {
		t.Fatal(err)
	}

	i.set(func() { i.keys = []signer{fresh} })

	if _, err := v.Verify(testCtx(t), fresh.sign(t, i.claims(nil))); err != nil {
		t.Errorf("the new key: %v", err)
	}

	if _, err := v.Verify(testCtx(t), old.sign(t, i.claims(nil))); inventory.KindOf(
		err,
	) != inventory.KindUnauthenticated {
		t.Errorf("the removed key: %v", err)
	}
}

// TestUnavailableIssuer expects a clear failure, and a recovery.
func TestUnavailableIssuer(t *testing.T) {
	t.Parallel()

	for what, tt := range map[string]struct {
		spoil func(*issuer)
		words string
	}{
		"an error": {func(i *issuer) {
			i.handle = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }
		}, "answered 502"},
		"no JSON": {func(i *issuer) {
			i.handle = func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }
		}, "is not JSON"},
		"a large answer": {func(i *issuer) {
			i.handle = func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat(" ", maxAnswer+1)) }
		}, "more than"},
		"a redirect": {func(i *issuer) {
			i.handle = func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "https://192.0.2.1/", http.StatusFound)
			}
		}, "answered 302"},
		"another issuer": {func(i *issuer) {
			i.document = func(d map[string]any) { d["issuer"] = "https://example.com" }
		}, "did not match"},
		"keys without TLS": {func(i *issuer) {
			i.document = func(d map[string]any) { d["jwks_uri"] = "http://127.0.0.1:1/keys" }
		}, "no URL of HTTPS"},
		"no keys": {func(i *issuer) {
			i.document = func(d map[string]any) { delete(d, "jwks_uri") }
		}, "no URL of HTTPS"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()

			i := newIssuer(t)
			i.set(func() { tt.spoil(i) })
			v := i.verifier()
			token := i.keys[0].sign(t, i.claims(nil))

			_, err := v.Verify(testCtx(t), token)
			if inventory.KindOf(err) != inventory.KindUnavailable || !strings.Contains(err.Error(), tt.words) {
				t.Errorf("got %v, want %s", err, tt.words)
			}

			i.set(func() { i.handle, i.document = nil, nil })

			if _, err := v.Verify(testCtx(t), token); err != nil {
				t.Errorf("after its recovery: %v", err)
			}
		})
	}
}

// TestIssuerDown expects known keys to last while the issuer is down, and a token with
// another key to be no fault of the caller.
func TestIssuerDown(t *testing.T) {
	t.Parallel()

	i := newIssuer(t)
	v := i.verifier()
	known, other := i.keys[0].sign(t, i.claims(nil)), newSigner(t, "two").sign(t, i.claims(nil))

	if _, err := v.Verify(testCtx(t), known); err != nil {
		t.Fatal(err)
	}

	i.Close()

	if _, err := v.Verify(testCtx(t), known); err != nil {
		t.Errorf("a known key: %v", err)
	}

	if _, err := v.Verify(testCtx(t), other); inventory.KindOf(err) != inventory.KindUnavailable {
		t.Errorf("an unknown key: %v", err)
	}

	if _, err := i.verifier().Verify(testCtx(t), known); inventory.KindOf(err) != inventory.KindUnavailable {
		t.Errorf("a new start: %v", err)
	}
}

// TestSlowIssuer expects the caller's context to bound the wait for an issuer that
// accepts requests and does not answer, and others not to wait behind it.
func TestSlowIssuer(t *testing.T) {
	t.Parallel()

	i := newIssuer(t)
	asked, end := make(chan struct{}, 8), make(chan struct{})
	i.set(func() {
		i.handle = func(_ http.ResponseWriter, r *http.Request) {
			asked <- struct{}{}

			select {
			case <-end:
			case <-r.Context().Done():
			}
		}
	})

	defer close(end)

	v := i.verifier()
	token := i.keys[0].sign(t, i.claims(nil))

	first, cancelFirst := context.WithCancel(testCtx(t))
	ended := make(chan error, 1)

	go func() {
		_, err := v.Verify(first, token)
		ended <- err
	}()

	<-asked

	// The second caller waits for the first one's answer, as long as it wants.
	second, cancelSecond := context.WithCancel(testCtx(t))
	cancelSecond()

	if _, err := v.Verify(second, token); inventory.KindOf(err) != inventory.KindUnavailable {
		t.Errorf("a caller who has gone: %v", err)
	}

	cancelFirst()

	if err := <-ended; inventory.KindOf(err) != inventory.KindUnavailable {
		t.Errorf("a slow issuer: %v", err)
	}

	if v.client.Timeout != fetchTime {
		t.Errorf("a request to the issuer may take %s", v.client.Timeout)
	}
}

// TestFloodOfUnknownKeys expects tokens with unknown keys to cause no request each.
func TestFloodOfUnknownKeys(t *testing.T) {
	t.Parallel()

	i := newIssuer(t)
	v := i.verifier(func(o *Options) { o.Keep = time.Hour })
	stranger := newSigner(t, "two").sign(t, i.claims(nil))

	for range 50 {
		if _, err := v.Verify(testCtx(t), stranger); inventory.KindOf(err) != inventory.KindUnauthenticated {
			t.Fatal(err)
		}
	}

	if n := i.fetches.Load(); n != 1 {
		t.Errorf("%d requests for keys", n)
	}
}

// TestUntrustedIssuer expects an issuer with a certificate of another CA to be no issuer.
func TestUntrustedIssuer(t *testing.T) {
	t.Parallel()

	i := newIssuer(t)
	v := i.verifier(func(o *Options) { o.Roots = x509.NewCertPool() })

	_, err := v.Verify(testCtx(t), i.keys[0].sign(t, i.claims(nil)))
	if inventory.KindOf(err) != inventory.KindUnavailable || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("got %v", err)
	}
}
