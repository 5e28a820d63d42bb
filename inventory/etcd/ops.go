// SPDX-License-Identifier: Apache-2.0

package etcd

import clientv3 "go.etcd.io/etcd/client/v3"

// MaxOps is etcd's default limit of operations in one transaction.
const MaxOps = 128

// MaxBytes bounds a transaction that is split into parts. It leaves headroom to
// etcd's default limit of 1.5 MiB per request.
const MaxBytes = 1 << 20

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
