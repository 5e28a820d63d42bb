// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory/etcd"
)

func (s *Store) connectionKey(node string) string { return s.key("/v/connections/%s", node) }

// addConnection adds the write of a node's ssh parameters: none if c is nil, their
// removal if it is zero.
func (s *Store) addConnection(ops *etcd.Ops, node string, c *configuration.Connection) error {
	if c == nil {
		return nil
	}

	key := s.connectionKey(node)
	if *c == (configuration.Connection{}) {
		ops.Then = append(ops.Then, clientv3.OpDelete(key))
		return nil
	}

	op, err := put(key, *c)
	ops.Then = append(ops.Then, op)

	return err
}
