// SPDX-License-Identifier: Apache-2.0

package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"regexp"
	"time"

	"github.com/contiv/cluster/inventory"
)

// Token is the record of a bearer token, without its secret.
type Token struct {
	ID        string // public, part of the token
	Name      string // unique; the principal is "token:NAME"
	Role      Role
	Scope     Scope
	Hash      string // SHA-256 of the whole token, in hex
	Created   time.Time
	CreatedBy string
	Expires   time.Time
	// Used is the time of the last use, to the minute; zero: never. It is stored
	// apart from the token.
	Used time.Time
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
func verify(tokens map[string]Token, token string, now time.Time) (Identity, error) {
	var known Token
	if m := tokenForm.FindStringSubmatch(token); m != nil {
		known = tokens[m[1]]
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
