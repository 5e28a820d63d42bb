// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/state"
)

func (s *Store) tombstoneKey(node string) string { return s.key("/v/tombstones/%s", node) }

// forgetOps returns the operations that replace a node and everything stored under
// its name by a tombstone, on condition that the record is still at its revision.
func (s *Store) forgetOps(n inventory.Node, t inventory.Tombstone) (etcd.Ops, error) {
	tombstone, err := put(s.tombstoneKey(n.Name), t)
	if err != nil {
		return etcd.Ops{}, err
	}

	return etcd.Ops{
		If: []clientv3.Cmp{atRevision(s.nodeKey(n.Name), n.Revision)},
		Then: []clientv3.Op{
			clientv3.OpDelete(s.nodeKey(n.Name)),
			clientv3.OpDelete(s.historyPrefix(n.Name), clientv3.WithPrefix()),
			clientv3.OpDelete(s.key("/v/%s", state.Variables.Path(string(state.ScopeNode(n.Name))))),
			clientv3.OpDelete(s.variablesHistoryPrefix(state.ScopeNode(n.Name)), clientv3.WithPrefix()),
			clientv3.OpDelete(s.connectionKey(n.Name)),
			clientv3.OpDelete(s.key("/v/%s", state.Machines.Path(n.Name))),
			clientv3.OpDelete(s.key("/v/%s", state.Facts.Path(n.Name))),
			clientv3.OpDelete(s.key("/v/%s", state.Agents.Path(n.Name))),
			tombstone,
		},
	}, nil
}

// Forget replaces nodes by tombstones and returns the revision of the last
// transaction. It is KindConflict if a node changed, or after the revision of the
// decision the generation of a group in uses. A request beyond one transaction is written
// in chunks: a failure leaves the nodes of the remaining chunks untouched.
func (s *Store) Forget(
	ctx context.Context, decided int64, uses []string, writes []state.NodeWrite, key *access.Key,
) (int64, error) {
	parts, err := s.nodeOps(writes)
	if err != nil {
		return 0, err
	}

	var changes []string
	for _, w := range writes {
		changes = append(append(changes, w.Node.Group), w.Node.Residue...)
	}

	groups := s.generations(decided, uses, changes)

	// The result goes into the last chunk: a retry after a partial failure must
	// not find the request carried out.
	unmark := s.unmarkOps(writes)

	chunks := pack(parts, jobOps+groups.Size()+len(unmark))
	if err := s.addResult(&chunks[len(chunks)-1], key, access.Result{}); err != nil {
		return 0, err
	}

	// The first chunk itself changes the generations, so the others cannot test them.
	chunks[0].If = append(chunks[0].If, groups.If...)

	var revision int64
	for i, ops := range chunks {
		ops.Then = append(append(ops.Then, groups.Then...), unmark...)

		commit := s.commit
		if i == len(chunks)-1 {
			commit = s.commitRecorded
		}
		if revision, err = commit(ctx, ops); err != nil {
			return 0, err
		}
	}

	return revision, nil
}
