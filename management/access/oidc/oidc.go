// SPDX-License-Identifier: Apache-2.0

package oidc

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
)

// DefaultKeep is how long an answer of the issuer is kept, and so the longest delay
// until a new key of it is known.
const DefaultKeep = 10 * time.Second

// maxName bounds the name of a caller, in bytes.
const maxName = 128

// algorithms are the accepted signatures: those by a private key of the issuer. A
// symmetric one could be made by everybody who knows the public keys.
var algorithms = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512,
	oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA,
}

// Rule gives a role to the callers with a value of the claim.
type Rule struct {
	Value string
	Role  access.Role
	Scope access.Scope
}

// Options describe the issuer, and what its tokens are worth.
type Options struct {
	Issuer   string // URL, of https
	Audience string // that a token must be for
	// NameClaim holds the name of the caller, and Claim the values of the rules. A dot
	// separates the names of nested claims.
	NameClaim, Claim string
	// Rules are tried in order. A caller without a rule is denied.
	Rules []Rule
	// Roots are the trusted CAs of the issuer; nil: those of the host.
	Roots *x509.CertPool
	// Keep is how long an answer of the issuer is kept. 0: DefaultKeep.
	Keep time.Duration
}

// Verifier verifies the tokens of one issuer. Its methods may be called concurrently.
type Verifier struct {
	options Options
	client  *http.Client
	asking  chan struct{} // has one element: the right to ask for the configuration

	keys *keySet // nil until the issuer has answered; guarded by asking
}

// New returns a verifier. It does not ask the issuer yet.
func New(o Options) *Verifier {
	o.Keep = cmp.Or(o.Keep, DefaultKeep)

	v := &Verifier{options: o, client: newClient(o.Roots, o.Keep), asking: make(chan struct{}, 1)}
	v.asking <- struct{}{}
	return v
}

// Verify returns the identity behind a token. It is KindUnauthenticated for a token
// that is not valid, KindForbidden for one without a role, and KindUnavailable if the
// issuer does not answer within some seconds.
func (v *Verifier) Verify(ctx context.Context, token string) (access.Identity, error) {
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, v.client), fetchTime)
	defer cancel()

	keys, err := v.discover(ctx)
	if err != nil {
		return access.Identity{}, v.unavailable(err)
	}
	failure := &keyFailure{keySet: keys}
	config := &oidc.Config{ClientID: v.options.Audience, SupportedSigningAlgs: algorithms}

	verified, err := oidc.NewVerifier(v.options.Issuer, failure, config).Verify(ctx, token)

	if failure.err != nil {
		return access.Identity{}, v.unavailable(failure.err)
	}

	if expired, ok := errors.AsType[*oidc.TokenExpiredError](err); ok {
		return access.Identity{}, inventory.Errorf(inventory.KindUnauthenticated, "the token of %s expired at %s",
			v.options.Issuer, expired.Expiry.UTC().Format(time.RFC3339)).Do("get a new one from the issuer")
	}

	if err != nil {
		return access.Identity{}, inventory.Errorf(inventory.KindUnauthenticated, "the token of %s is not valid: %s",
			v.options.Issuer, inventory.Shorten(strings.TrimPrefix(err.Error(), "oidc: "), 256)).
			Do("get a token for %s from the issuer", v.options.Audience)
	}

	return v.identify(verified)
}

// discover returns the keys of the issuer. It reads the configuration of the issuer
// once, and again as long as that fails.
func (v *Verifier) discover(ctx context.Context) (*keySet, error) {
	select {
	case <-v.asking:
		defer func() { v.asking <- struct{}{} }()
	case <-ctx.Done():
		return nil, &fetchError{ctx.Err()}
	}

	if v.keys != nil {
		return v.keys, nil
	}

	provider, err := oidc.NewProvider(ctx, v.options.Issuer)
	if err != nil {
		return nil, err
	}

	var document struct {
		Keys string `json:"jwks_uri"`
	}
	if err := provider.Claims(&document); err != nil {
		return nil, err
	}

	if u, err := url.Parse(document.Keys); err != nil || u.Scheme != "https" {
		return nil, errors.New("its configuration names no URL of HTTPS for its keys (jwks_uri)")
	}

	v.keys = &keySet{oidc.NewRemoteKeySet(ctx, document.Keys)}

	return v.keys, nil
}

// keySet holds the keys of the issuer.
type keySet struct{ *oidc.RemoteKeySet }

// keyFailure notes whether a signature could not be verified for want of the keys.
type keyFailure struct {
	*keySet

	err error
}

// VerifySignature implements oidc.KeySet.
func (k *keyFailure) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	payload, err := k.keySet.VerifySignature(ctx, token)

	_, unfetched := errors.AsType[*fetchError](err)
	if unfetched || ctx.Err() != nil {
		k.err = err
	}
	return payload, err
}

func (v *Verifier) unavailable(err error) error {
	// The chain of a request names the URL several times.
	if fetch, ok := errors.AsType[*fetchError](err); ok {
		err = fetch
	}

	return inventory.Errorf(inventory.KindUnavailable, "the issuer %s of the token cannot be asked for its keys: %s",
		v.options.Issuer, inventory.Shorten(err.Error(), 256)).
		Do("repeat the request later, or use a token of clusterm; check oidc in the configuration file")
}

// identify returns the identity in a verified token.
func (v *Verifier) identify(t *oidc.IDToken) (access.Identity, error) {
	var claims map[string]any
	if err := t.Claims(&claims); err != nil {
		return access.Identity{}, inventory.Errorf(inventory.KindUnauthenticated,
			"the claims of the token cannot be read: %w", err)
	}

	// An issuer may let people write any address, and some send the word as a text.
	verified := claims["email_verified"] == true || claims["email_verified"] == "true"
	if slices.Contains([]string{v.options.NameClaim, v.options.Claim}, "email") && !verified {
		return access.Identity{}, inventory.Errorf(inventory.KindUnauthenticated,
			"the issuer has not verified the email of the token: its claim email_verified is not true").
			Do("verify the address with the issuer and let it send email_verified, " +
				"or choose other claims in the oidc section")
	}

	names := valuesOf(claims, v.options.NameClaim)
	if len(names) != 1 || !isName(names[0]) {
		return access.Identity{}, inventory.Errorf(inventory.KindUnauthenticated,
			"the claim %s of the token holds no name of at most %d printable characters", v.options.NameClaim, maxName).
			Do("let the issuer add it, or choose another one with oidc.name_claim")
	}

	principal, values := "oidc:"+names[0], valuesOf(claims, v.options.Claim)

	i := slices.IndexFunc(v.options.Rules, func(r Rule) bool { return slices.Contains(values, r.Value) })
	if i < 0 {
		return access.Identity{}, inventory.Errorf(inventory.KindForbidden,
			"%s has no role: no value of the claim %s of the token is in oidc.rules", principal, v.options.Claim).
			Do("ask an admin to add one")
	}

	// The subject is unique for the issuer; a name is for people.
	subject := sha256.Sum256([]byte(t.Issuer + "\n" + t.Subject))

	return access.Identity{
		Principal: principal, Role: v.options.Rules[i].Role, Scope: v.options.Rules[i].Scope,
		Credential: "oidc:" + hex.EncodeToString(subject[:8]), Issuer: t.Issuer, Expires: t.Expiry,
	}, nil
}

// valuesOf returns the strings in a claim: one, or those of a list.
func valuesOf(claims map[string]any, name string) []string {
	// The name of a claim may be a URL, which has dots as well.
	value, ok := claims[name]
	if !ok {
		head, tail, nested := strings.Cut(name, ".")
		if inner, is := claims[head].(map[string]any); nested && is {
			return valuesOf(inner, tail)
		}
	}

	switch value := value.(type) {
	case string:
		return []string{value}
	case []any:
		var all []string
		for _, v := range value {
			if text, ok := v.(string); ok {
				all = append(all, text)
			}
		}

		return all
	default:
		return nil
	}
}

// isName reports whether a text can be the name of a caller in logs and answers.
func isName(s string) bool {
	printable := !strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c > '~' })
	return s != "" && len(s) <= maxName && printable
}
