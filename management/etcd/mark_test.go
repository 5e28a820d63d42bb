// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"cmp"
	"context"
	"testing"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/variable"
)

// The variable "pin" in the clear and as a secret.
var (
	plainPin  = configuration.Vars{"pin": canary}
	markedPin = configuration.Vars{"pin": configuration.NewSecret(canary)}
)

func varsKey(s *Store, scope state.Scope) string {
	return s.key("/v/%s", state.Variables.Path(string(scope)))
}

// onView is a store whose newest view is an older one.
type onView struct {
	*Store

	view *state.View
}

func (o onView) Latest() (record.Reader, int64) { return o.view, o.view.Revision }

// putVars replaces the variables of a scope, as decided on a view.
func putVars(
	ctx context.Context, s *Store, v *state.View, scope state.Scope, vars configuration.Vars, c variable.Change,
) (int64, error) {
	tx := record.NewTx(onView{s, v})

	if len(vars) == 0 {
		record.Remove(tx, &state.Variables, string(scope))
	} else {
		record.Put(tx, &state.Variables, &state.ScopeVars{Scope: scope, Vars: vars})
	}

	if !c.Empty() {
		tx.Attach(variable.Recorded{Scope: scope, Change: c})
	}

	return s.Commit(ctx, tx)
}

// setVars replaces and records the variables of a scope, as decided on a view; nil: on the newest.
func setVars(t *testing.T, s *Store, v *state.View, scope state.Scope, vars configuration.Vars) error {
	t.Helper()

	v = cmp.Or(v, s.View())
	change := variable.Change{Action: variable.ActionSet, Before: state.VarsOf(v, scope), After: vars}
	return errorOf(putVars(within(t, patience), s, v, scope, vars, change))
}

// putOverlay replaces the configuration keys set at run time, as decided on a view.
func putOverlay(ctx context.Context, s *Store, v *state.View, keys configuration.Vars) error {
	tx := record.NewTx(onView{s, v})
	record.Put(tx, &state.Overlays, &state.Overlay{Keys: keys})
	return errorOf(s.Commit(ctx, tx))
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
		must(t, setVars(t, s, nil, state.ScopeGlobal, plainPin))
		must(t, setVars(t, s, nil, state.ScopeNode("a-1"), plainPin))
		must(t, setVars(t, s, nil, state.ScopeGlobal, markedPin))

		if checkEncrypted(t, s) == 0 {
			t.Error("a mark has encrypted nothing")
		}

		if written := checkEncrypted(t, s); written != 0 {
			t.Errorf("without another mark: %d records", written)
		}

		must(t, setVars(t, s, nil, state.ScopeGlobal, nil))
		must(t, setVars(t, s, nil, state.ScopeNode("a-1"), nil))
	}
}

// TestMarkAfterForget marks a variable that lost its only mark with its node.
func TestMarkAfterForget(t *testing.T) {
	t.Parallel()

	s := store(t)
	ctx := within(t, patience)
	must(t, s.NoteSecretsKey(ctx, "", testKey.ID(), false))

	nodes := seen(t, s, 1)
	must(t, setVars(t, s, nil, state.ScopeNode(nodes[0]), markedPin))
	checkEncrypted(t, s)

	before := s.View()

	n, err := s.View().Node(nodes[0])
	must(t, err)

	stone := inventory.Tombstone{Name: n.Name, Label: n.Label, Serial: n.Serial}
	_, err = s.Forget(ctx, s.View().Revision, nil, []state.NodeWrite{{Node: n, Tombstone: &stone}}, nil)
	must(t, err)
	must(t, setVars(t, s, nil, state.ScopeGlobal, plainPin))

	err = setVars(t, s, before, state.ScopeGroup("g"), markedPin)
	if inventory.KindOf(err) != inventory.KindConflict {
		t.Errorf("a mark decided on the view before: %v", err)
	}

	must(t, setVars(t, s, nil, state.ScopeGroup("g"), markedPin))
	checkEncrypted(t, s)
}

// TestMarkMeanwhile writes a value in the clear that was decided on before another
// instance marked its name: the write is a conflict, or it encrypts the value.
func TestMarkMeanwhile(t *testing.T) {
	t.Parallel()

	s := store(t)
	ctx := within(t, patience)
	must(t, s.NoteSecretsKey(ctx, "", testKey.ID(), false))

	before := s.View()
	other := openWith(t, s, s.secrets)
	must(t, setVars(t, other, nil, state.ScopeGlobal, markedPin))
	must(t, s.Sync(ctx))

	overlay := map[string]any{"vars": map[string]any(plainPin)}

	for what, write := range map[string]func(context.Context) error{
		"variables": func(context.Context) error { return setVars(t, s, before, state.ScopeNode("a-1"), plainPin) },
		"settings":  func(ctx context.Context) error { return putOverlay(ctx, s, before, overlay) },
	} {
		if err := write(ctx); inventory.KindOf(err) != inventory.KindConflict {
			t.Errorf("%s: %v", what, err)
		}
	}

	must(t, putOverlay(ctx, s, s.View(), overlay))

	in := job.Inputs{
		Vars: map[string]map[string]configuration.Var{
			"a-1": {"pin": {Value: canary, Origin: configuration.OriginConfig}},
		},
		Extra: plainPin,
	}
	_, err := accept(ctx, s, job.Job{Verb: inventory.VerbCommission, Status: job.Queued}, in)
	must(t, err)

	if written := checkEncrypted(t, s); written != 0 {
		t.Errorf("%d records were in the clear", written)
	}
}
