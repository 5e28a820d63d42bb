// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

// marksKey is the key that a write changes if it marks a variable with an unmarked
// name as secret, or removes a mark. Every write of variables requires that it did not
// change since the view of the writer: so a value in the clear is older than the mark,
// and EncryptOnce finds it.
func (s *Store) marksKey() string { return s.key("/x/marks") }

// sameMarks is the condition that the same variables are marked as in the view at the
// revision.
func (s *Store) sameMarks(revision int64) clientv3.Cmp { return unchanged(s.marksKey(), revision) }

// markedSince returns the revision of the last change of the marks, 0 without one. The
// view has reached it.
func (s *Store) markedSince(ctx context.Context) (int64, error) {
	bounded, cancel := s.bounded(ctx)
	defer cancel()

	resp, err := s.client.Get(bounded, s.marksKey(), clientv3.WithKeysOnly())
	if err != nil || len(resp.Kvs) == 0 {
		return 0, s.failure(bounded, err)
	}

	revision := resp.Kvs[0].ModRevision

	return revision, s.explained(bounded, s.view.wait(bounded, revision))
}

// markOps returns the conditions and operations for a write of the variables of a scope
// that was decided on the view at the revision.
func (s *Store) markOps(revision int64, scope state.Scope, vars configuration.Vars) etcd.Ops {
	ops := etcd.Ops{If: []clientv3.Cmp{s.sameMarks(revision)}}

	// With other marks the condition fails, so any view since the revision will do.
	if changesMarks(s.View(), scope, vars) {
		ops.Then = []clientv3.Op{clientv3.OpPut(s.marksKey(), "")}
	}

	return ops
}

// changesMarks reports whether the variables of a scope have a secret with a name that is
// not marked, or lack one of the view.
func changesMarks(v *state.View, scope state.Scope, vars configuration.Vars) bool {
	for name, value := range v.Vars(scope) {
		if isSecret(value) && !isSecret(vars[name]) {
			return true
		}
	}

	marked := v.Marked()

	for name, value := range vars {
		if isSecret(value) && !marked(name) {
			return true
		}
	}

	return false
}

func isSecret(value any) bool {
	_, secret := value.(configuration.Secret)
	return secret
}

// unmarkOps returns the operations for the marks of nodes that are forgotten.
func (s *Store) unmarkOps(writes []state.NodeWrite) []clientv3.Op {
	v := s.View()

	for _, w := range writes {
		if w.Tombstone != nil && changesMarks(v, state.ScopeNode(w.Node.Name), nil) {
			return []clientv3.Op{clientv3.OpPut(s.marksKey(), "")}
		}
	}

	return nil
}

// markInputs returns the inputs of a job with the marked variables secret, and the
// condition that no other is marked meanwhile.
func (s *Store) markInputs(in job.Inputs) (job.Inputs, clientv3.Cmp) {
	v := s.View()

	return markedInputs(in, v.Marked()), s.sameMarks(v.Revision)
}

// markedInputs returns the inputs with the marked variables secret. Usually they are.
func markedInputs(in job.Inputs, marked func(name string) bool) job.Inputs {
	inClear := func(name string, value any) bool { return value != nil && !isSecret(value) && marked(name) }
	if !anyInput(in, inClear) {
		return in
	}

	in, _ = convertInputs(in, func(name string, value any) (any, error) {
		if inClear(name, value) {
			return configuration.NewSecret(value), nil
		}

		return value, nil
	})

	return in
}

// anyInput reports whether the condition holds for a variable of the inputs.
func anyInput(in job.Inputs, holds func(name string, value any) bool) bool {
	for name, value := range in.Extra {
		if holds(name, value) {
			return true
		}
	}

	found := false

	in.EachVars(func(_ string, vars map[string]configuration.Var) {
		for name, v := range vars {
			found = found || holds(name, v.Value)
		}
	})

	return found
}

// markedOverlay returns the settings made at run time with the marked variables secret.
func markedOverlay(overlay map[string]any, marked func(name string) bool) map[string]any {
	overlay, _ = convertOverlay(overlay, func(vars configuration.Vars) (configuration.Vars, error) {
		return vars.Mark(marked), nil
	})

	return overlay
}
