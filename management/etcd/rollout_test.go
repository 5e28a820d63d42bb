// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
)

// TestRolloutRecord fails for a field of a rollout that is not stored.
func TestRolloutRecord(t *testing.T) {
	t.Parallel()

	var r rollout.Record
	fill(t, reflect.ValueOf(&r).Elem(), new(int))

	r.Revision = 0 // etcd keeps that of the key

	encoded, err := json.Marshal(newRolloutRecord(r))
	must(t, err)
	decoded, err := decode[rolloutRecord](encoded)
	must(t, err)

	nodes, err := json.Marshal(convertSlice(r.Nodes, newRolloutNodeRecord))
	must(t, err)
	chunk, err := decode[[]rolloutNodeRecord](nodes)
	must(t, err)

	got := decoded.rollout(0)
	got.Nodes = convertSlice(chunk, rolloutNodeRecord.node)

	if decoded.Nodes != len(r.Nodes) || !reflect.DeepEqual(got, r) {
		t.Errorf("read\n%+v\nwant\n%+v", got, r)
	}
}

// TestChunks: any number of nodes fits into one transaction.
func TestChunks(t *testing.T) {
	t.Parallel()

	for nodes := 1; nodes <= rollout.MaxNodes; nodes++ {
		if n := chunkCount(nodes); n > mostChunks || n*chunkSize(nodes) < nodes || (n-1)*chunkSize(nodes) >= nodes {
			t.Fatalf("%d nodes are in %d chunks of %d", nodes, n, chunkSize(nodes))
		}
	}
}

// TestSameNode fails for a field that could change without being stored.
func TestSameNode(t *testing.T) {
	t.Parallel()

	var full rollout.Node
	fill(t, reflect.ValueOf(&full).Elem(), new(int))

	local := full
	local.Since = local.Since.In(time.FixedZone("elsewhere", 3600))

	if !sameNode(full, local) {
		t.Error("a time in another zone is another time")
	}

	for i := range reflect.TypeFor[rollout.Node]().NumField() {
		changed := full
		reflect.ValueOf(&changed).Elem().Field(i).SetZero()

		if sameNode(full, changed) {
			t.Errorf("a change of %s is not seen", reflect.TypeFor[rollout.Node]().Field(i).Name)
		}
	}
}

// written returns the number of keys of a rollout that were written after the revision.
func written(t *testing.T, s *Store, id string, after int64) (keys, size int) {
	t.Helper()

	resp, err := s.client.Get(within(t, patience), s.rolloutKey(id), clientv3.WithPrefix())
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

	s, ctx := store(t), within(t, patience)

	r, err := s.AddRollout(ctx, s.View().Revision, aRollout("r0000000a", 1000), nil, nil)
	must(t, err)

	for _, nodes := range [][]int{{0}, {15, 16}, {999}, {}, {3, 500, 700}} {
		before := r.Revision
		r.Nodes = slices.Clone(r.Nodes)
		chunks := map[int]bool{}

		for _, i := range nodes {
			r.Nodes[i].State, r.Nodes[i].Since = rollout.Succeeded, noon
			chunks[i/chunkSize(1000)] = true
		}

		r, err = s.PutRollout(ctx, 0, r, nil)
		must(t, err)

		if keys, size := written(t, s, r.ID, before); keys != 1+len(chunks) || size > 4096 {
			t.Errorf("a change of %v wrote %d keys, %d bytes", nodes, keys, size)
		}

		if got := s.View().Rollouts[0]; !reflect.DeepEqual(got, r) {
			t.Fatalf("after a change of %v, the view has another record", nodes)
		}
	}

	if again := openWith(t, s, testSecrets()).View(); !reflect.DeepEqual(again.Rollouts[0], r) {
		t.Error("another store reads another record")
	}

	must(t, s.DropRollouts(ctx, []string{r.ID}))

	if keys, _ := written(t, s, r.ID, 0); keys > 0 {
		t.Errorf("%d keys are left", keys)
	}
}

// TestIncompleteRollout: without one of its chunks a rollout cannot be read, and is removed as a
// whole, by the head or by the damaged chunk.
func TestIncompleteRollout(t *testing.T) {
	t.Parallel()

	s, ctx := store(t), within(t, patience)

	for id, key := range map[string]string{"r0000000a": "", "r0000000b": "/01", "r0000000c": ""} {
		must(t, second(s.AddRollout(ctx, s.View().Revision, aRollout(id, 40), nil, nil)))

		chunk := s.rolloutKey(chunkName(id, 1))

		switch id {
		case "r0000000a": // it is gone
			must(t, second(s.client.Delete(ctx, chunk)))
		case "r0000000b":
			must(t, second(s.client.Put(ctx, chunk, "nonsense")))
		case "r0000000c": // the chunk of another rollout
			resp, err := s.client.Get(ctx, s.rolloutKey(chunkName(id, 0)))
			must(t, err)
			must(t, second(s.client.Put(ctx, chunk, string(resp.Kvs[0].Value))))
		}

		must(t, s.Sync(ctx))

		again := openWith(t, s, testSecrets())
		for _, v := range []*state.View{s.View(), again.View()} {
			if v.UnreadableRollout(id) == nil || v.UnreadableFiles() == nil || len(v.Rollouts) > 0 {
				t.Errorf("%s: %+v, %v", id, v.Rollouts, v.Unreadable)
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

// TestRollouts stores a rollout with secrets, accepts one of its jobs, and drops it.
func TestRollouts(t *testing.T) {
	t.Parallel()

	s, ctx := store(t), within(t, patience)
	extra := configuration.Vars{"password": configuration.NewSecret(canary), "plain": "b"}

	r, err := s.AddRollout(ctx, s.View().Revision, aRollout("r0000000a", 2), extra, &access.Key{ID: "k", Request: "r"})
	must(t, err)

	// A rollout that was decided on an older view may overlap.
	_, err = s.AddRollout(ctx, r.Revision-1, aRollout("r0000000b", 2), extra, nil)
	if got := s.View().Rollouts; inventory.KindOf(err) != inventory.KindConflict || len(got) != 1 ||
		!reflect.DeepEqual(got[0], r) {
		t.Errorf("%v, %+v", err, got)
	}

	if result, err := s.Result(ctx, "k"); err != nil || result == nil || result.Rollout != r.ID {
		t.Errorf("%+v, %v", result, err)
	}

	if bytes.Contains(values(t, s), []byte(canary)) {
		t.Error("the secret is in etcd")
	}

	if got, err := s.RolloutExtra(ctx, r.ID); err != nil || !reflect.DeepEqual(got, extra) {
		t.Errorf("%+v, %v", got, err)
	}

	// The job and the record are one: of two deciders on one record, one comes through.
	j := job.Job{Verb: inventory.VerbApply, Status: job.Queued, Targets: []job.Target{{Name: "a-00000"}}, Rollout: r.ID}
	begun := r.Begun(rollout.Begin{Node: "a-00000"}, job.Job{ID: "1"}, noon)

	accepted, stored, err := s.AcceptRollout(ctx, 0, begun, j, job.Inputs{})
	must(t, err)

	_, _, err = s.AcceptRollout(ctx, 1, begun, j, job.Inputs{})
	if inventory.KindOf(err) != inventory.KindConflict || len(s.View().Jobs) != 1 {
		t.Errorf("twice: %v, %+v", err, s.View().Jobs)
	}

	v := s.View()
	if accepted.ID != "1" || v.Jobs[0].Rollout != r.ID || v.Rollouts[0].Nodes[0].Job != "1" ||
		v.Rollouts[0].Revision != stored.Revision {
		t.Errorf("%+v, %+v", v.Jobs, v.Rollouts)
	}

	stored.Status = rollout.Paused
	_, err = s.PutRollout(ctx, 0, r, nil)

	if inventory.KindOf(err) != inventory.KindConflict {
		t.Errorf("an old record: %v", err)
	}

	_, err = s.PutRollout(ctx, 0, stored, nil)
	must(t, err)

	if again := openWith(t, s, testSecrets()).View(); again.Rollouts[0].Status != rollout.Paused {
		t.Errorf("%+v", again.Rollouts)
	}

	must(t, s.DropRollouts(ctx, []string{r.ID}))

	_, err = s.RolloutExtra(ctx, r.ID)
	if inventory.KindOf(err) != inventory.KindNotFound || len(s.View().Rollouts) > 0 {
		t.Errorf("dropped: %v, %+v", err, s.View().Rollouts)
	}
}

// TestLargestRollout stores one of as many nodes as there may be, each with a long reason.
func TestLargestRollout(t *testing.T) {
	t.Parallel()

	s, ctx := store(t), within(t, patience)
	r := aRollout("r0000000b", rollout.MaxNodes)

	for i := range r.Nodes {
		n := &r.Nodes[i]
		n.State, n.Job, n.Gate = rollout.Failed, fmt.Sprint(i), fmt.Sprint(i+1)
		n.Since, n.Begun = noon, noon.Add(-time.Hour)
		n.Group, n.Rack = "service-worker", fmt.Sprintf("rack-%d", i%40)
		n.Former, n.Reason = fmt.Sprintf("%064d", i%9), fmt.Sprintf("job %d: host %s: %0250d", i, n.Name, i)
	}

	r, err := s.AddRollout(ctx, s.View().Revision, r, nil, nil)
	must(t, err)

	if got := s.View().Rollouts; len(got) != 1 || !reflect.DeepEqual(got[0].Nodes, r.Nodes) {
		t.Errorf("%d rollouts", len(got))
	}
}

// TestUnreadableRollout: a damaged rollout leaves the others alone, keeps the playbooks, and
// can be removed.
func TestUnreadableRollout(t *testing.T) {
	t.Parallel()

	s, ctx := store(t), within(t, patience)

	_, err := s.AddRollout(ctx, s.View().Revision, aRollout("r0000000a", 1), nil, nil)
	must(t, err)
	_, err = s.client.Put(ctx, s.rolloutKey("r0000000b"), "nonsense")
	must(t, err)
	must(t, s.Sync(ctx))

	again := openWith(t, s, testSecrets())
	v := again.View()

	if len(v.Rollouts) != 1 || v.UnreadableRollout("r0000000b") == nil || v.UnreadableFiles() == nil {
		t.Errorf("%+v, %v", v.Rollouts, v.Unreadable)
	}

	must(t, RemoveUnreadable(ctx, s.client, testKinds, "v/rollouts/r0000000b"))
	must(t, again.Sync(ctx))

	if v := again.View(); v.UnreadableFiles() != nil || len(v.Rollouts) != 1 {
		t.Errorf("%+v, %v", v.Rollouts, v.Unreadable)
	}
}
