// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/job"
)

// allGenerations changes when it is not known which groups do.
func allGenerations(prefix string) string { return prefix + "/x/generation" }

// generationKey is written with every claim, release and removal of nodes of the group.
func (s *Store) generationKey(group string) string {
	return s.key("/x/generations/%d", job.GenerationOf(group))
}

// generations returns the conditions that no group in uses has changed after the revision
// of a decision, and the operations that change the generations of other groups. Revision
// 0 is no decision.
func (s *Store) generations(revision int64, uses, changes []string) etcd.Ops {
	var ops etcd.Ops

	if revision > 0 {
		ops.If = append(ops.If, unchanged(allGenerations(s.client.Prefix), revision))
	}

	for _, key := range s.generationKeys(uses) {
		ops.If = append(ops.If, unchanged(key, revision))
	}

	for _, key := range s.generationKeys(changes) {
		ops.Then = append(ops.Then, clientv3.OpPut(key, ""))
	}

	return ops
}

// generationKeys returns the keys of the groups, each once.
func (s *Store) generationKeys(groups []string) []string {
	keys := make([]string, len(groups))
	for i, g := range groups {
		keys[i] = s.generationKey(g)
	}

	slices.Sort(keys)

	return slices.Compact(keys)
}
