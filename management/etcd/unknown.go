// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/record"
)

// noteUnknown remembers the fields of a record that only a newer version knows, for the next write of it. The key is
// below that of the view.
func (v *view) noteUnknown(key string, e *clientv3.Event) {
	kind, rest, _ := strings.Cut(key, "/")

	at := slices.IndexFunc(v.tables.Kinds(), func(k record.Any) bool { return k.KindName() == kind })
	if at < 0 {
		return
	}

	had := v.unknown[key] != nil
	delete(v.unknown, key)

	// A write of applyOwn has no revision of the creation, and only fields that this build knows or has kept.
	if own := e.Kv.CreateRevision == 0; e.Type == mvccpb.Event_DELETE || own && !had {
		return
	}

	if u := record.FindUnknown(v.tables.Kinds()[at], rest, e.Kv.Value); u != nil {
		v.unknown[key] = u
	}
}

// keepUnknown adds to each write of a record the fields that only a newer version knows.
func (v *view) keepUnknown(ops etcd.Ops) etcd.Ops {
	v.mu.Lock()
	defer v.mu.Unlock()

	if len(v.unknown) == 0 {
		return ops
	}

	ops.Then = slices.Clone(ops.Then)

	for i, op := range ops.Then {
		key, shown := strings.CutPrefix(string(op.KeyBytes()), v.client.Prefix+"/v/")
		if u := v.unknown[key]; op.IsPut() && shown && u != nil {
			op.WithValueBytes(u.Keep(op.ValueBytes()))
			ops.Then[i] = op
		}
	}

	return ops
}
