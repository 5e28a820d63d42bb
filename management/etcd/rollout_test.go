// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
)

func rolloutKey(s *Store, id string) string { return s.key("/v/%s", rollout.Kind.Path(id)) }

// putRollout stores a rollout over the newest one.
func putRollout(t *testing.T, s *Store, r rollout.Record) rollout.Record {
	t.Helper()

	revision, err := commit(t, s, func(tx *record.Tx) { record.Put(tx, &rollout.Kind, &r) })
	must(t, err)

	r.Revision = revision

	return r
}

func dropRollout(t *testing.T, s *Store, id string) {
	t.Helper()
	must(t, second(commit(t, s, func(tx *record.Tx) { record.Remove(tx, &rollout.Kind, id) })))
}

func stored(v *state.View) []*rollout.Record { return record.List(v, &rollout.Kind) }

// written returns the number of keys of a rollout that were written after the revision.
func written(t *testing.T, s *Store, id string, after int64) (keys, size int) {
	t.Helper()

	resp, err := s.client.Get(within(t, patience), rolloutKey(s, id), clientv3.WithPrefix())
	must(t, err)

	for _, kv := range resp.Kvs {
		if kv.ModRevision > after {
			keys++
			size += len(kv.Value)
		}
	}

	return keys, size
}

// TestRolloutWritesWhatChanged: the write of a large rollout has its head and the chunks of the
// nodes that changed, and every reader sees the whole.
func TestRolloutWritesWhatChanged(t *testing.T) {
	t.Parallel()

	s := store(t)
	r := putRollout(t, s, aRollout("r0000000a", 1000))

	for _, nodes := range [][]int{{0}, {15, 16}, {999}, {}, {3, 500, 700}} {
		before := r.Revision
		r.Nodes = slices.Clone(r.Nodes)
		chunks := map[int]bool{}

		for _, i := range nodes {
			r.Nodes[i].State, r.Nodes[i].Since = rollout.Succeeded, noon
			chunks[i/16] = true
		}

		r = putRollout(t, s, r)

		if keys, size := written(t, s, r.ID, before); keys != 1+len(chunks) || size > 4096 {
			t.Errorf("a change of %v wrote %d keys, %d bytes", nodes, keys, size)
		}

		if got := stored(s.View())[0]; !reflect.DeepEqual(*got, r) {
			t.Fatalf("after a change of %v, the view has another record", nodes)
		}
	}

	if again := openWith(t, s, testSecrets()).View(); !reflect.DeepEqual(*stored(again)[0], r) {
		t.Error("another store reads another record")
	}

	dropRollout(t, s, r.ID)

	if keys, _ := written(t, s, r.ID, 0); keys > 0 {
		t.Errorf("%d keys are left", keys)
	}
}

// TestIncompleteRollout: without one of its chunks a rollout cannot be read, and is removed as a
// whole, by the head or by the damaged chunk.
func TestIncompleteRollout(t *testing.T) {
	t.Parallel()

	s, ctx := store(t), within(t, patience)

	// Sync waits for the newest write of the head.
	write := func(op clientv3.Op) {
		head := clientv3.OpPut(headKey(s.client.Prefix), "")
		must(t, second(s.client.Txn(ctx).Then(op, head).Commit()))
	}

	for id, key := range map[string]string{"r0000000a": "", "r0000000b": "/01", "r0000000c": ""} {
		putRollout(t, s, aRollout(id, 40))

		chunk := rolloutKey(s, id+"/01")

		switch id {
		case "r0000000a": // it is gone
			write(clientv3.OpDelete(chunk))
		case "r0000000b":
			write(clientv3.OpPut(chunk, "nonsense"))
		case "r0000000c": // the chunk of another rollout
			resp, err := s.client.Get(ctx, rolloutKey(s, id+"/00"))
			must(t, err)
			write(clientv3.OpPut(chunk, string(resp.Kvs[0].Value)))
		}

		must(t, s.Sync(ctx))

		again := openWith(t, s, testSecrets())
		for _, v := range []*state.View{s.View(), again.View()} {
			if v.Damaged(&rollout.Kind, id) == nil || v.UnreadableFiles() == nil || len(stored(v)) > 0 {
				t.Errorf("%s: %+v, %v", id, stored(v), v.Unreadable)
			}
		}

		must(t, RemoveUnreadable(ctx, s.client, testKinds, "v/rollouts/"+id+key))
		must(t, s.Sync(ctx))

		if keys, _ := written(t, s, id, 0); keys > 0 || len(s.View().Unreadable) > 0 {
			t.Errorf("%s: %d keys are left, %v", id, keys, s.View().Unreadable)
		}
	}
}

// aRollout is a rollout of n nodes.
func aRollout(id string, n int) rollout.Record {
	r := rollout.Record{
		ID: id, Status: rollout.Running, Actor: "anna", Created: noon, Spec: rollout.Spec{Action: inventory.VerbApply},
	}
	for i := range n {
		r.Nodes = append(r.Nodes, rollout.Node{Name: fmt.Sprintf("a-%05d", i), State: rollout.Waiting})
	}

	return r
}

// TestLargestRollout stores one of as many nodes as there may be, each with a long reason.
func TestLargestRollout(t *testing.T) {
	t.Parallel()

	s := store(t)
	r := aRollout("r0000000b", rollout.MaxNodes)

	for i := range r.Nodes {
		n := &r.Nodes[i]
		n.State, n.Job, n.Gate = rollout.Failed, fmt.Sprint(i), fmt.Sprint(i+1)
		n.Since, n.Begun = noon, noon.Add(-time.Hour)
		n.Group, n.Rack = "service-worker", fmt.Sprintf("rack-%d", i%40)
		n.Former, n.Reason = fmt.Sprintf("%064d", i%9), fmt.Sprintf("job %d: host %s: %0250d", i, n.Name, i)
	}

	r = putRollout(t, s, r)

	if got := stored(s.View()); len(got) != 1 || !reflect.DeepEqual(got[0].Nodes, r.Nodes) {
		t.Errorf("%d rollouts", len(got))
	}
}

// TestUnreadableRollout: a damaged rollout leaves the others alone, keeps the playbooks, and
// can be removed.
func TestUnreadableRollout(t *testing.T) {
	t.Parallel()

	s, ctx := store(t), within(t, patience)

	putRollout(t, s, aRollout("r0000000a", 1))

	_, err := s.client.Put(ctx, rolloutKey(s, "r0000000b"), "nonsense")
	must(t, err)
	must(t, s.Sync(ctx))

	again := openWith(t, s, testSecrets())
	v := again.View()

	if len(stored(v)) != 1 || v.Damaged(&rollout.Kind, "r0000000b") == nil || v.UnreadableFiles() == nil {
		t.Errorf("%+v, %v", stored(v), v.Unreadable)
	}

	must(t, RemoveUnreadable(ctx, s.client, testKinds, "v/rollouts/r0000000b"))
	must(t, again.Sync(ctx))

	if v := again.View(); v.UnreadableFiles() != nil || len(stored(v)) != 1 {
		t.Errorf("%+v, %v", stored(v), v.Unreadable)
	}
}
