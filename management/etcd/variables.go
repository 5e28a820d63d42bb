// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/management/state"
)

// variablesRecord holds the variables of a scope. configuration.Vars has the codec
// of its free-form values, which keeps every digit of a number.
type variablesRecord struct {
	Vars configuration.Vars `json:"vars"`
}

func newVariablesRecord(v configuration.Vars) variablesRecord { return variablesRecord{v} }
func (r variablesRecord) variables() configuration.Vars       { return r.Vars }

func (s *Store) variablesKey(scope state.Scope) string { return s.key("/v/vars/%s", scope) }

// PutVars replaces the variables of a scope, or removes them if vars is empty. It is
// KindConflict if the scope changed after the revision; 0 skips that check.
func (s *Store) PutVars(
	ctx context.Context, revision int64, scope state.Scope, vars configuration.Vars,
) (int64, error) {
	key := s.variablesKey(scope)
	if len(vars) == 0 {
		return s.commitUnchanged(ctx, key, revision, clientv3.OpDelete(key))
	}

	op, err := put(key, newVariablesRecord(vars))
	if err != nil {
		return 0, err
	}

	return s.commitUnchanged(ctx, key, revision, op)
}
