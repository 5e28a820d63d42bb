// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"reflect"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
)

// TestTokens expects the view to show tokens as soon as a change returns.
func TestTokens(t *testing.T) {
	t.Parallel()
	s := store(t)
	ctx := t.Context()
	now := time.Now().UTC().Truncate(time.Second)

	want := access.Token{
		ID: "0123456789abcdef", Name: "ci", Role: access.RoleViewer, Hash: "abc", Created: now, CreatedBy: "root",
		Expires: now.Add(time.Hour), Scope: access.Scope{Groups: []string{"service-worker"}, Selector: "rack=r1"},
	}
	if _, err := s.AddToken(ctx, want); err != nil {
		t.Fatal(err)
	}

	if got := s.Tokens()[want.ID]; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}

	if _, err := s.AddToken(ctx, want); inventory.KindOf(err) != inventory.KindConflict {
		t.Errorf("the same token again: %v", err)
	}

	if err := s.NoteTokenUse(ctx, want.ID, now); err != nil || !s.TokenUses()[want.ID].Equal(now) {
		t.Errorf("the use: %v, %v", s.TokenUses(), err)
	}

	if revision, err := s.RemoveToken(ctx, want.ID); err != nil || revision == 0 {
		t.Errorf("revoke: %d, %v", revision, err)
	}

	if len(s.Tokens()) != 0 || len(s.TokenUses()) != 0 {
		t.Errorf("a revoked token is left: %v, %v", s.Tokens(), s.TokenUses())
	}

	// A late note must not outlive the token.
	if err := s.NoteTokenUse(ctx, want.ID, now); inventory.KindOf(err) != inventory.KindConflict {
		t.Errorf("the use of a revoked token: %v", err)
	}
}
