// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/record/recordtest"
)

// memory keeps tokens in memory.
type memory struct {
	*recordtest.Store

	records []Record
}

func newMemory() *memory {
	return &memory{Store: recordtest.NewStore(&TokenKind, &TokenUseKind)}
}

// tokens returns the stored tokens.
func (m *memory) tokens() []*Token {
	latest, _ := m.Latest()
	return record.List(latest, &TokenKind)
}

func (m *memory) Record(_ context.Context, r Record) { m.records = append(m.records, r) }

var (
	admin = Identity{Principal: "root", Role: RoleAdmin, Credential: CredentialSocket}
	root  = Caller{Principal: "root"}
)

// TestTokenLife creates, uses and revokes a token, in fake time.
func TestTokenLife(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		tokens := NewTokens(m, m, inventory.DefaultGroups)

		for _, l := range tokens.Loops() {
			l.Start(t.Context())
			defer l.Stop()
		}

		made, token, err := tokens.Create(t.Context(), root, admin, TokenRequest{Name: "ci", Role: RoleOperator})
		errtest.None(t, err)
		age := made.Expires.Sub(made.Created)
		if !tokenForm.MatchString(token) || made.CreatedBy != "root" || age != DefaultTokenAge {
			t.Errorf("made %+v, %d bytes", made, len(token))
		}

		for _, kept := range m.tokens() {
			if strings.Contains(token, kept.Hash) || kept.Hash != hashOf(token) {
				t.Error("the stored token is no hash")
			}
		}

		id, err := tokens.Authenticate(t.Context(), token)
		if err != nil || id.Principal != "token:ci" || id.Role != RoleOperator || id.Credential != "token:"+made.ID {
			t.Fatalf("%+v, %v", id, err)
		}

		// Many uses within a minute are one note.
		for range 100 {
			_, _ = tokens.Authenticate(t.Context(), token)
		}

		synctest.Wait()

		// The first commit made the token.
		latest, _ := m.Latest()
		if notes := m.Commits() - 1; notes != 1 || made.WithUse(latest).Used.IsZero() {
			t.Errorf("%d notes of the use: %+v", notes, made.WithUse(latest))
		}

		time.Sleep(noteEvery)

		_, _ = tokens.Authenticate(t.Context(), token)

		synctest.Wait()

		if notes := m.Commits() - 1; notes != 2 {
			t.Errorf("%d notes after a minute", notes)
		}

		open := tokens.Follow(t.Context(), id)
		if tokens.Follow(t.Context(), admin) != t.Context() {
			t.Error("a caller without a token is followed")
		}

		if _, err := tokens.Revoke(t.Context(), root, "ci"); err != nil {
			t.Fatal(err)
		}

		synctest.Wait()

		if inventory.KindOf(context.Cause(open)) != inventory.KindUnauthenticated || len(tokens.served) != 0 {
			t.Errorf("an open request: %v, %d followed", context.Cause(open), len(tokens.served))
		}

		if late := tokens.Follow(t.Context(), id); late.Err() == nil {
			t.Error("a request that arrived before the revocation goes on")
		}

		if _, err := tokens.Authenticate(t.Context(), token); inventory.KindOf(err) != inventory.KindUnauthenticated {
			t.Errorf("a revoked token: %v", err)
		}

		if _, err := tokens.Revoke(t.Context(), root, "ci"); inventory.KindOf(err) != inventory.KindNotFound {
			t.Errorf("a token that is revoked already: %v", err)
		}

		for _, r := range m.records {
			if strings.Contains(strings.Join(r.Targets, " "), token) {
				t.Errorf("the audit record has the token: %+v", r)
			}
		}

		if len(m.records) != 3 || m.records[0].Action != "tokens.create" || m.records[2].Err == nil {
			t.Errorf("audit records: %+v", m.records)
		}
	})
}

// TestTokenExpires expects a token and its open requests to end in time.
func TestTokenExpires(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		tokens := NewTokens(m, m, inventory.DefaultGroups)

		_, token, err := tokens.Create(t.Context(), root, admin, TokenRequest{Role: RoleViewer, Expires: time.Hour})
		errtest.None(t, err)
		id, err := tokens.Authenticate(t.Context(), token)
		errtest.None(t, err)
		open := tokens.Follow(t.Context(), id)

		time.Sleep(time.Hour + time.Second)
		synctest.Wait()

		if inventory.KindOf(context.Cause(open)) != inventory.KindUnauthenticated {
			t.Errorf("an open request: %v", context.Cause(open))
		}

		_, err = tokens.Authenticate(t.Context(), token)
		if err == nil || !strings.Contains(err.Error(), "expired at") {
			t.Errorf("an expired token: %v", err)
		}
	})
}

// otherIssuer verifies tokens of an issuer outside of the manager.
type otherIssuer struct{ id Identity }

func (o otherIssuer) Verify(_ context.Context, token string) (Identity, error) {
	if token != "a.b.c" {
		return Identity{}, errInvalidToken
	}
	return o.id, nil
}

// TestOtherIssuer expects the tokens of an issuer to be verified by it, the manager's
// own by the manager, and open requests to end with either.
func TestOtherIssuer(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		tokens := NewTokens(m, m, inventory.DefaultGroups)

		_, own, err := tokens.Create(t.Context(), root, admin, TokenRequest{Role: RoleViewer})
		errtest.None(t, err)

		if _, err := tokens.Authenticate(t.Context(), "a.b.c"); inventory.KindOf(err) != inventory.KindUnauthenticated {
			t.Errorf("without an issuer: %v", err)
		}

		tokens.Trust(otherIssuer{Identity{
			Principal: "oidc:ann", Role: RoleOperator, Credential: "oidc:1", Expires: time.Now().Add(time.Minute),
		}})

		for token, want := range map[string]Role{own: RoleViewer, "a.b.c": RoleOperator, "a.b.d": "", "a.b": ""} {
			id, err := tokens.Authenticate(t.Context(), token)
			if id.Role != want || (want == "") != (inventory.KindOf(err) == inventory.KindUnauthenticated) {
				t.Errorf("%s: %+v, %v", token, id, err)
			}
		}

		id, err := tokens.Authenticate(t.Context(), "a.b.c")
		errtest.None(t, err)
		open := tokens.Follow(t.Context(), id)

		time.Sleep(time.Minute + time.Second)
		synctest.Wait()

		if inventory.KindOf(context.Cause(open)) != inventory.KindUnauthenticated {
			t.Errorf("an open request: %v", context.Cause(open))
		}
	})
}

// TestTokenRefused expects bad requests, and roles beyond the caller's, to be refused.
func TestTokenRefused(t *testing.T) {
	t.Parallel()

	m := newMemory()
	tokens := NewTokens(m, m, inventory.DefaultGroups)

	if _, _, err := tokens.Create(t.Context(), root, admin, TokenRequest{Name: "ci", Role: RoleViewer}); err != nil {
		t.Fatal(err)
	}

	scoped, long := Identity{Role: RoleAdmin, Scope: Scope{Groups: []string{"a"}}}, strings.Repeat("a", 64)

	for name, tt := range map[string]struct {
		by   Identity
		r    TokenRequest
		want inventory.Kind
	}{
		"no role":           {admin, TokenRequest{}, inventory.KindInvalid},
		"an unknown role":   {admin, TokenRequest{Role: "root"}, inventory.KindInvalid},
		"a bad name":        {admin, TokenRequest{Role: RoleViewer, Name: "a\nb"}, inventory.KindInvalid},
		"a long name":       {admin, TokenRequest{Role: RoleViewer, Name: long}, inventory.KindInvalid},
		"a used name":       {admin, TokenRequest{Role: RoleViewer, Name: "ci"}, inventory.KindRefused},
		"too short":         {admin, TokenRequest{Role: RoleViewer, Expires: time.Second}, inventory.KindInvalid},
		"in the past":       {admin, TokenRequest{Role: RoleViewer, Expires: -time.Hour}, inventory.KindInvalid},
		"too long":          {admin, TokenRequest{Role: RoleViewer, Expires: 2 * MaxTokenAge}, inventory.KindInvalid},
		"a higher role":     {Identity{Role: RoleOperator}, TokenRequest{Role: RoleAdmin}, inventory.KindForbidden},
		"another role":      {Identity{Role: RoleViewer}, TokenRequest{Role: RoleMonitor}, inventory.KindForbidden},
		"no identity":       {Identity{}, TokenRequest{Role: RoleViewer}, inventory.KindForbidden},
		"beyond the scope":  {scoped, TokenRequest{Role: RoleViewer}, inventory.KindForbidden},
		"a role of no name": {admin, TokenRequest{Role: "viewer "}, inventory.KindInvalid},
	} {
		_, token, err := tokens.Create(t.Context(), root, tt.by, tt.r)
		if inventory.KindOf(err) != tt.want || token != "" {
			t.Errorf("%s: %v", name, err)
		}
	}

	if len(m.tokens()) != 1 {
		t.Errorf("%d tokens exist", len(m.tokens()))
	}
}

// TestTokenNamesMeet makes two tokens of one name at once: one of them is refused.
func TestTokenNamesMeet(t *testing.T) {
	t.Parallel()

	m := newMemory()
	tokens := NewTokens(m, m, inventory.DefaultGroups)

	// Another token of the name appears between the check and the write.
	other := sync.OnceFunc(func() {
		if err := m.Write(
			TokenKind.Path("0123456789abcdef"),
			[]byte(`{"id":"0123456789abcdef","name":"ci"}`),
		); err != nil {
			t.Error(err)
		}
	})
	m.Before = func(*record.Tx) error { other(); return nil }

	_, _, err := tokens.Create(t.Context(), root, admin, TokenRequest{Name: "ci", Role: RoleViewer})
	if inventory.KindOf(err) != inventory.KindRefused || len(m.tokens()) != 1 {
		t.Errorf("%d tokens, %v", len(m.tokens()), err)
	}
}

// TestStoredToken expects a token to be stored whole, in the form of former versions.
func TestStoredToken(t *testing.T) {
	t.Parallel()

	const stored = `{"id":"1","name":"ci","role":"viewer","hash":"abc","created":"2026-01-02T03:04:05Z",` +
		`"created_by":"root","expires":"2026-02-02T03:04:05Z","scope_groups":["a"],"scope_selector":"rack=r1"}`

	token, err := TokenKind.Decode("1", []byte(stored), 7)
	errtest.None(t, err)

	if token.Scope.Selector != "rack=r1" || !slices.Equal(token.Scope.Groups, []string{"a"}) ||
		token.Role != RoleViewer {
		t.Errorf("%+v", token)
	}

	if again, err := TokenKind.Encode(token); err != nil || string(again) != stored {
		t.Errorf("%s, %v", again, err)
	}
}
