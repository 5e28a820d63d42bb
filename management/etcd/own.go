// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// applyOwn applies the operations of a transaction of this process, so that its caller
// does not wait for the watch. It leaves them to the watch unless they are puts, and the
// view has all revisions before this one.
func (v *view) applyOwn(revision int64, ops []clientv3.Op) {
	v.mu.Lock()
	defer v.mu.Unlock()

	shown := func(op clientv3.Op) bool { return strings.HasPrefix(string(op.KeyBytes()), v.client.Prefix+"/v/") }
	isDeletion := func(op clientv3.Op) bool { return !op.IsPut() && shown(op) }

	if v.loading || v.whole != revision-1 || slices.ContainsFunc(ops, isDeletion) {
		return
	}

	var events []*clientv3.Event

	for _, op := range ops {
		if shown(op) {
			events = append(events, &clientv3.Event{Type: mvccpb.Event_PUT, Kv: &mvccpb.KeyValue{
				Key: op.KeyBytes(), Value: op.ValueBytes(), ModRevision: revision,
			}})
		}
	}

	// Other keys, such as logs, change nothing in the view, and wake nobody.
	if v.whole = revision; len(events) == 0 {
		return
	}

	for _, e := range events {
		v.apply(e)
	}

	v.own[revision] = true
	v.publish(revision)
}

// setLoading keeps own writes out of the view, because the records that are read may be older.
func (v *view) setLoading(loading bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.loading = loading
}
