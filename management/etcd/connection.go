// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory/etcd"
)

// connectionRecord holds the ssh parameters of a node.
type connectionRecord struct {
	User          string `json:"user,omitempty"`
	KeyFile       string `json:"key_file,omitempty"`
	FormerKeyFile string `json:"former_key_file,omitempty"` // in the inputs of a job only
	Port          int    `json:"port,omitempty"`
	Become        *bool  `json:"become,omitempty"`
	BecomeUser    string `json:"become_user,omitempty"`
	Jump          string `json:"jump,omitempty"`
	Python        string `json:"python,omitempty"`
}

func newConnectionRecord(c configuration.Connection) connectionRecord { return connectionRecord(c) }
func (r connectionRecord) connection() configuration.Connection       { return configuration.Connection(r) }

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

	op, err := put(key, newConnectionRecord(*c))
	ops.Then = append(ops.Then, op)

	return err
}
