// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
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

// markWriter finds out what a transaction changes in the marks of a view. With other marks
// than those it was decided on it fails, so any view since then will do.
type markWriter struct {
	view    *state.View
	sealed  bool // a write may have secrets
	changed bool
}

// written notes that values are written at a place, and returns them with the marked ones secret.
func (m *markWriter) written(at []string, values configuration.Vars) configuration.Vars {
	m.sealed = true

	// Variables are where names are marked.
	if at[0] != state.Variables.Name {
		return values.Mark(state.Marked(m.view))
	}

	m.changed = m.changed || changesMarks(m.view, state.Scope(at[1]), values)

	return values
}

// ops returns the conditions and operations for a transaction on a view at the revision.
func (m *markWriter) ops(s *Store, revision int64, writes []record.Write) (ops etcd.Ops) {
	for _, w := range writes {
		if scope, is := strings.CutPrefix(w.Path, state.Variables.Path("")); is && w.Value == nil {
			m.written(state.PlaceOf(state.Scope(scope)), nil)
		}
	}

	if m.sealed {
		ops.If = []clientv3.Cmp{s.sameMarks(revision)}
	}

	if m.changed {
		ops.Then = []clientv3.Op{clientv3.OpPut(s.marksKey(), "")}
	}

	return ops
}

// changesMarks reports whether the variables of a scope have a secret with a name that is
// not marked, or lack one of the view.
func changesMarks(v *state.View, scope state.Scope, vars configuration.Vars) bool {
	for name, value := range state.VarsOf(v, scope) {
		if isSecret(value) && !isSecret(vars[name]) {
			return true
		}
	}

	marked := state.Marked(v)

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

// unmarkOps returns the operations for the marks of nodes that are forgotten, and what tells decisions
// that records of their kinds are gone.
func (s *Store) unmarkOps(writes []state.NodeWrite) (ops []clientv3.Op) {
	v := s.View()
	forgotten, removed, unmarked := false, false, false

	for _, w := range writes {
		if scope := state.ScopeNode(w.Node.Name); w.Tombstone != nil {
			forgotten = true
			removed = removed || state.VarsOf(v, scope) != nil
			unmarked = unmarked || changesMarks(v, scope, nil)
		}
	}

	if forgotten {
		ops = append(ops, clientv3.OpPut(s.removedKey(job.Nodes.Name), ""),
			clientv3.OpPut(s.removedKey(state.Connections.Name), ""),
			clientv3.OpPut(s.removedKey(state.Machines.Name), ""),
			clientv3.OpPut(s.removedKey(state.Facts.Name), ""))
	}

	if removed {
		ops = append(ops, clientv3.OpPut(s.removedKey(state.Variables.Name), ""))
	}

	if unmarked {
		ops = append(ops, clientv3.OpPut(s.marksKey(), ""))
	}

	return ops
}

// markInputs returns the inputs of a job with the marked variables secret, and the
// condition that no other is marked meanwhile.
func (s *Store) markInputs(in job.Inputs) (job.Inputs, clientv3.Cmp) {
	v := s.View()
	return markedInputs(in, state.Marked(v)), s.sameMarks(v.Revision)
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
