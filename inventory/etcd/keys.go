// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"encoding/json"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
)

// MaxOps is how many operations etcd takes in one transaction by default.
const MaxOps = 128

// MaxBytes is what a transaction of several parts is kept below: etcd takes 1.5
// MiB by default, all told.
const MaxBytes = 1 << 20

// Below PREFIX/v is what every instance keeps in its view; below PREFIX/x what
// is read on demand: history, inputs and logs.

// NodeKey is where a node is kept.
func (c *Client) NodeKey(name string) string { return c.Prefix + "/v/nodes/" + name }

// TombstoneKey is where a tombstone is kept.
func (c *Client) TombstoneKey(name string) string { return c.Prefix + "/v/graves/" + name }

// HistoryKey is where one entry of a node's history is kept; it sorts by age.
func (c *Client) HistoryKey(name string, seq uint64) string {
	return fmt.Sprintf("%s/x/history/%s/%016x", c.Prefix, name, seq)
}

// HistoryPrefix is below which a node's whole history is kept.
func (c *Client) HistoryPrefix(name string) string { return c.Prefix + "/x/history/" + name + "/" }

// Ops are guarded operations that belong together.
type Ops struct {
	If   []clientv3.Cmp
	Then []clientv3.Op
}

// Add appends further ones.
func (o *Ops) Add(more Ops) {
	o.If = append(o.If, more.If...)
	o.Then = append(o.Then, more.Then...)
}

// Size is what counts against MaxOps.
func (o Ops) Size() int { return max(len(o.If), len(o.Then)) }

// Bytes is what counts against MaxBytes.
func (o Ops) Bytes() int {
	n := 0
	for _, op := range o.Then {
		n += len(op.KeyBytes()) + len(op.ValueBytes())
	}

	return n
}

// PutNode writes a node if its record is still at the revision it was read at,
// adds the entries to its history, and drops the entries that fall out of it.
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

// DeleteNode removes a node, if its record is still as it was read, with its history.
func (c *Client) DeleteNode(n inventory.Node) Ops {
	key := c.NodeKey(n.Name)

	return Ops{
		If:   []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", n.Revision)},
		Then: []clientv3.Op{clientv3.OpDelete(key), clientv3.OpDelete(c.HistoryPrefix(n.Name), clientv3.WithPrefix())},
	}
}
