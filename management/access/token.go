// SPDX-License-Identifier: Apache-2.0

package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/record"
)

// Token is the record of a bearer token, without its secret.
type Token struct {
	ID        string    `json:"id"`   // public, part of the token
	Name      string    `json:"name"` // unique; the principal is "token:NAME"
	Role      Role      `json:"role"`
	Scope     Scope     `json:"-"`    // see tokenCodec
	Hash      string    `json:"hash"` // SHA-256 of the whole token, in hex
	Created   time.Time `json:"created"`
	CreatedBy string    `json:"created_by,omitempty"`
	Expires   time.Time `json:"expires"`
	// Used is the time of the last use, to the minute; zero: never. It is stored apart, as a
	// TokenUse, so that a use does not write the token.
	Used time.Time `json:"-"`
}

// TokenUse is the last use of a token.
type TokenUse struct {
	Time time.Time `json:"time"` // to the minute
}

// WithUse returns the token with the time of its last use.
func (t Token) WithUse(r record.Reader) Token {
	if use := record.Get(r, &TokenUseKind, t.ID); use != nil {
		t.Used = use.Time
	}
	return t
}

// TokenKind are the tokens by id, TokenUseKind their uses.
var (
	TokenKind = record.Kind[Token]{
		Name: "tokens", Key: func(t *Token) string { return t.ID }, Codec: tokenCodec{},
	}
	TokenUseKind = record.Kind[TokenUse]{Name: "token-uses"}
)

// tokenCodec stores the scope in two fields of the token.
type tokenCodec struct{}

type storedToken struct {
	Token

	Groups   []string `json:"scope_groups,omitempty"`
	Selector string   `json:"scope_selector,omitempty"`
}

func (tokenCodec) Encode(t *Token) ([]byte, error) {
	return json.Marshal(storedToken{*t, t.Scope.Groups, t.Scope.Selector})
}

func (tokenCodec) Decode(_ string, value []byte) (*Token, error) {
	var stored storedToken

	err := json.Unmarshal(value, &stored)
	stored.Scope = Scope{Groups: stored.Groups, Selector: stored.Selector}
	return &stored.Token, err
}

// The sizes of the random parts of a token, in bytes. A secret of this size needs
// no slow hash.
const (
	tokenID     = 8
	tokenSecret = 32
)

// tokenForm is the form of every token. The prefix lets scanners find leaked ones.
var tokenForm = regexp.MustCompile(`^clusterm-([0-9a-f]{16})-[0-9a-f]{64}$`)

// newToken returns a new id, and the token with it: "clusterm-ID-SECRET".
func newToken() (id, token string) {
	var random [tokenID + tokenSecret]byte

	_, _ = rand.Read(random[:]) // it never fails
	id = hex.EncodeToString(random[:tokenID])
	return id, "clusterm-" + id + "-" + hex.EncodeToString(random[tokenID:])
}

func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// verify returns the identity behind a token, or KindUnauthenticated. An unknown
// token takes as long as a wrong one.
func verify(tokens record.Reader, token string, now time.Time) (Identity, error) {
	var known Token

	if m := tokenForm.FindStringSubmatch(token); m != nil {
		if found := record.Get(tokens, &TokenKind, m[1]); found != nil {
			known = *found
		}
	}

	// Without a record the hash is empty, which equals no hash.
	if subtle.ConstantTimeCompare([]byte(known.Hash), []byte(hashOf(token))) != 1 {
		return Identity{}, errInvalidToken
	}

	if !now.Before(known.Expires) {
		return Identity{}, inventory.Errorf(inventory.KindUnauthenticated, "the token %s expired at %s",
			known.Name, known.Expires.UTC().Format(time.RFC3339)).Do("ask an admin for a new token")
	}

	return Identity{
		Principal: "token:" + known.Name, Role: known.Role, Scope: known.Scope,
		Credential: credentialOf(known.ID), Expires: known.Expires,
	}, nil
}

var errInvalidToken = inventory.Errorf(inventory.KindUnauthenticated, "the bearer token is unknown or revoked").
	Do("ask an admin for a new token")

var errExpired = inventory.Errorf(inventory.KindUnauthenticated, "the credential has expired").
	Do("ask an admin for a new one")

// credentialOf returns the credential of the token with the id.
func credentialOf(id string) string { return "token:" + id }
