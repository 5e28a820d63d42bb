// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"context"
	"testing"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/variable"
)

// The variable "pin" in the clear and as a secret.
var (
	plainPin  = configuration.Vars{"pin": canary}
	markedPin = configuration.Vars{"pin": configuration.NewSecret(canary)}
)

// putVarsAt is PutVars as of a revision; 0: of the newest.
func putVarsAt(t *testing.T, s *Store, revision int64, scope state.Scope, vars configuration.Vars) error {
	t.Helper()

	change := variable.Change{Action: variable.ActionSet, Before: s.View().Vars(scope), After: vars}
	_, err := s.PutVars(within(t, patience), revision, scope, vars, change)

	return err
}

// checkEncrypted returns the result of EncryptOnce. Nothing may be in the clear after it.
func checkEncrypted(t *testing.T, s *Store) (written int) {
	t.Helper()

	written, err := s.EncryptOnce(within(t, patience))
	must(t, err)

	if stored := values(t, s); bytes.Contains(stored, []byte(canary)) {
		t.Errorf("in the clear: %s", stored)
	}

	return written
}

// TestMarkAgain marks a variable, unsets it, sets it in the clear and marks it again: both
// times, the value stored in the clear is encrypted.
func TestMarkAgain(t *testing.T) {
	t.Parallel()

	s := store(t)
	must(t, s.NoteSecretsKey(within(t, patience), "", testKey.ID(), false))

	for range 2 {
		must(t, putVarsAt(t, s, 0, state.ScopeGlobal, plainPin))
		must(t, putVarsAt(t, s, 0, state.ScopeNode("a-1"), plainPin))
		must(t, putVarsAt(t, s, 0, state.ScopeGlobal, markedPin))

		if checkEncrypted(t, s) == 0 {
			t.Error("a mark has encrypted nothing")
		}

		if written := checkEncrypted(t, s); written != 0 {
			t.Errorf("without another mark: %d records", written)
		}

		must(t, putVarsAt(t, s, 0, state.ScopeGlobal, nil))
		must(t, putVarsAt(t, s, 0, state.ScopeNode("a-1"), nil))
	}
}

// TestMarkAfterForget marks a variable that lost its only mark with its node.
func TestMarkAfterForget(t *testing.T) {
	t.Parallel()

	s := store(t)
	ctx := within(t, patience)
	must(t, s.NoteSecretsKey(ctx, "", testKey.ID(), false))

	nodes := seen(t, s, 1)
	must(t, putVarsAt(t, s, 0, state.ScopeNode(nodes[0]), markedPin))
	checkEncrypted(t, s)

	before := s.View().Revision

	n, err := s.View().Node(nodes[0])
	must(t, err)

	stone := inventory.Tombstone{Name: n.Name, Label: n.Label, Serial: n.Serial}
	_, err = s.Forget(ctx, s.View().Revision, nil, []state.NodeWrite{{Node: n, Tombstone: &stone}}, nil)
	must(t, err)
	must(t, putVarsAt(t, s, 0, state.ScopeGlobal, plainPin))

	err = putVarsAt(t, s, before, state.ScopeGroup("g"), markedPin)
	if inventory.KindOf(err) != inventory.KindConflict {
		t.Errorf("a mark decided on the view before: %v", err)
	}

	must(t, putVarsAt(t, s, 0, state.ScopeGroup("g"), markedPin))
	checkEncrypted(t, s)
}

// TestMarkMeanwhile writes a value in the clear that was decided on before another
// instance marked its name: the write is a conflict, or it encrypts the value.
func TestMarkMeanwhile(t *testing.T) {
	t.Parallel()

	s := store(t)
	ctx := within(t, patience)
	must(t, s.NoteSecretsKey(ctx, "", testKey.ID(), false))

	before := s.View().Revision
	other := openWith(t, s, s.secrets)
	must(t, putVarsAt(t, other, 0, state.ScopeGlobal, markedPin))
	must(t, s.Sync(ctx))

	overlay := map[string]any{"vars": map[string]any(plainPin)}

	for what, write := range map[string]func(context.Context) error{
		"variables": func(context.Context) error { return putVarsAt(t, s, before, state.ScopeNode("a-1"), plainPin) },
		"settings":  func(ctx context.Context) error { return errorOf(s.PutOverlay(ctx, before, overlay)) },
	} {
		if err := write(ctx); inventory.KindOf(err) != inventory.KindConflict {
			t.Errorf("%s: %v", what, err)
		}
	}

	_, err := s.PutOverlay(ctx, s.View().Revision, overlay)
	must(t, err)

	in := job.Inputs{
		Vars: map[string]map[string]configuration.Var{
			"a-1": {"pin": {Value: canary, Origin: configuration.OriginConfig}},
		},
		Extra: plainPin,
	}
	_, err = s.Accept(ctx, 0, job.Job{Verb: inventory.VerbCommission, Status: job.Queued}, in, nil)
	must(t, err)

	if written := checkEncrypted(t, s); written != 0 {
		t.Errorf("%d records were in the clear", written)
	}
}
