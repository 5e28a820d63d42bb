// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"encoding/json"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
)

// MaxOps is etcd's default limit of operations in one transaction.
const MaxOps = 128

// MaxBytes bounds a transaction that is split into parts. It leaves headroom to
// etcd's default limit of 1.5 MiB per request.
const MaxBytes = 1 << 20

// Every instance caches the keys below PREFIX/v in its view, and reads those below
// PREFIX/x (history, inputs, logs) on demand.

// NodeKey returns the key of a node's record.
func (c *Client) NodeKey(name string) string { return c.Prefix + "/v/nodes/" + name }

// TombstoneKey returns the key of a forgotten node's tombstone.
func (c *Client) TombstoneKey(name string) string { return c.Prefix + "/v/graves/" + name }

// HistoryKey returns the key of a history entry; keys sort by age.
func (c *Client) HistoryKey(name string, seq uint64) string {
	return fmt.Sprintf("%s/x/history/%s/%016x", c.Prefix, name, seq)
}

// HistoryPrefix returns the prefix of all history entries of a node.
func (c *Client) HistoryPrefix(name string) string { return c.Prefix + "/x/history/" + name + "/" }

// Ops is a part of a transaction: operations and their preconditions.
type Ops struct {
	If   []clientv3.Cmp
	Then []clientv3.Op
}

// Add appends the conditions and operations of more.
func (o *Ops) Add(more Ops) {
	o.If = append(o.If, more.If...)
	o.Then = append(o.Then, more.Then...)
}

// Size returns the number that counts against MaxOps.
func (o Ops) Size() int { return max(len(o.If), len(o.Then)) }

// Bytes returns the size that counts against MaxBytes.
func (o Ops) Bytes() int {
	n := 0
	for _, op := range o.Then {
		n += len(op.KeyBytes()) + len(op.ValueBytes())
	}

	return n
}

// PutNode returns the operations that write a node and append to its history, on
// condition that the record is still at n.Revision (0: absent). They delete
// one old entry per new entry beyond inventory.HistoryLimit.
func (c *Client) PutNode(n inventory.Node, entries []inventory.HistoryEntry) (Ops, error) {
	key := c.NodeKey(n.Name)

	value, err := json.Marshal(n)
	if err != nil {
		return Ops{}, err
	}

	ops := Ops{
		If:   []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", n.Revision)},
		Then: []clientv3.Op{clientv3.OpPut(key, string(value))},
	}
	for _, e := range entries {
		value, err := json.Marshal(e)
		if err != nil {
			return Ops{}, err
		}

		ops.Then = append(ops.Then, clientv3.OpPut(c.HistoryKey(n.Name, e.Seq), string(value)))
		if e.Seq > inventory.HistoryLimit {
			ops.Then = append(ops.Then, clientv3.OpDelete(c.HistoryKey(n.Name, e.Seq-inventory.HistoryLimit)))
		}
	}

	return ops, nil
}

// DeleteNode returns the operations that delete a node and its history, on condition
// that the record is still at n.Revision.
func (c *Client) DeleteNode(n inventory.Node) Ops {
	key := c.NodeKey(n.Name)

	return Ops{
		If:   []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", n.Revision)},
		Then: []clientv3.Op{clientv3.OpDelete(key), clientv3.OpDelete(c.HistoryPrefix(n.Name), clientv3.WithPrefix())},
	}
}
