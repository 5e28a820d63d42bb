// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
)

// A rollout is written twice for each of its nodes, and may have thousands. So its nodes
// are stored apart from its head, in chunks below its key, and a write has only the
// chunks that differ. Each write has the head, whose revision is that of the rollout: the
// chunks are never newer than the head, and a write on an older one conflicts.
const (
	leastChunk = 16 // nodes
	// mostChunks bounds the operations of a write, see etcd.MaxOps.
	mostChunks = 64
)

// chunkSize returns the number of nodes in each chunk of a rollout, the last one excepted.
func chunkSize(nodes int) int { return max(leastChunk, (nodes+mostChunks-1)/mostChunks) }

// chunkCount returns the number of chunks of a rollout.
func chunkCount(nodes int) int { return (nodes + chunkSize(nodes) - 1) / chunkSize(nodes) }

// rolloutChunkRecord is the progress of successive nodes of a rollout.
type rolloutChunkRecord struct {
	Rollout string              `json:"rollout"`
	Chunk   int                 `json:"chunk"`
	Nodes   []rolloutNodeRecord `json:"nodes"`
}

// rolloutNodesPrefix begins the keys of the chunks of a rollout.
func (s *Store) rolloutNodesPrefix(id string) string { return s.rolloutKey(id) + "/" }

// chunkName returns the key of a chunk below its kind.
func chunkName(id string, chunk int) string { return fmt.Sprintf("%s/%02d", id, chunk) }

// putRolloutNodes returns the operations that store the nodes of a rollout, as far as they
// differ from the stored ones; nil: nothing is stored, or it is unknown.
func (s *Store) putRolloutNodes(r rollout.Record, stored []rollout.Node) ([]clientv3.Op, error) {
	var ops []clientv3.Op

	size := chunkSize(len(r.Nodes))

	for first := 0; first < len(r.Nodes); first += size {
		end := min(first+size, len(r.Nodes))
		nodes := r.Nodes[first:end]

		if len(stored) == len(r.Nodes) && slices.EqualFunc(nodes, stored[first:end], sameNode) {
			continue
		}

		chunk := first / size

		b, err := json.Marshal(rolloutChunkRecord{
			Rollout: r.ID, Chunk: chunk, Nodes: convertSlice(nodes, newRolloutNodeRecord),
		})
		if err != nil {
			return nil, err
		}

		ops = append(ops, clientv3.OpPut(s.rolloutKey(chunkName(r.ID, chunk)), string(record.Compress(b))))
	}

	return ops, nil
}

// sameNode reports whether two records of a node are stored the same.
func sameNode(a, b rollout.Node) bool {
	if !a.Since.Equal(b.Since) || !a.Begun.Equal(b.Begun) {
		return false
	}

	// One side may have a monotonic clock or another zone.
	b.Since, b.Begun = a.Since, a.Begun

	return a == b
}

// decodeRolloutChunk parses a chunk under its name below the kind.
func decodeRolloutChunk(name string, kv *mvccpb.KeyValue) (rolloutChunkRecord, error) {
	b, err := record.Expand(kv.Value)
	if err != nil {
		return rolloutChunkRecord{}, err
	}

	record, err := decode[rolloutChunkRecord](b)
	if err == nil && chunkName(record.Rollout, record.Chunk) != name {
		err = fmt.Errorf("the record names chunk %d of rollout %q", record.Chunk, record.Rollout)
	}

	return record, err
}

// checkRollout decodes the head or a chunk of a rollout.
func checkRollout(name string, kv *mvccpb.KeyValue) error {
	if strings.Contains(name, "/") {
		return errorOf(decodeRolloutChunk(name, kv))
	}

	return errorOf(decodeRollout(name, kv))
}

// storedRollout is a rollout as the view has read it.
type storedRollout struct {
	head   *rolloutHead // nil: missing or unreadable
	chunks map[int][]rollout.Node
	whole  *rollout.Record // of both; nil: not put together since a change
}

// rolloutHead is a rollout without its nodes.
type rolloutHead struct {
	rollout.Record

	nodes int // their number
}

// join returns the rollout with its nodes.
func (r *storedRollout) join() (*rollout.Record, error) {
	whole := r.head.Record
	size := chunkSize(r.head.nodes)
	whole.Nodes = make([]rollout.Node, 0, r.head.nodes)

	for chunk := range chunkCount(r.head.nodes) {
		nodes := r.chunks[chunk]
		if len(nodes) != min(size, r.head.nodes-chunk*size) {
			return nil, errors.New("the record " + strconv.Quote(chunkName(whole.ID, chunk)) +
				" of its nodes is missing or damaged")
		}

		whole.Nodes = append(whole.Nodes, nodes...)
	}

	return &whole, nil
}

// rollout returns the entry of a rollout, and marks it as changed. The caller holds the lock.
func (v *view) rollout(id string) *storedRollout {
	v.rolloutList = nil

	r := v.rollouts[id]
	if r == nil {
		r = &storedRollout{chunks: map[int][]rollout.Node{}}
		v.rollouts[id] = r
	}

	r.whole = nil

	return r
}

// applyRollout applies the head of a rollout, or one of its chunks.
func (v *view) applyRollout(name string, deleted bool, kv *mvccpb.KeyValue) (err error) {
	id, chunk, isChunk := strings.Cut(name, "/")
	r := v.rollout(id)

	switch {
	case isChunk:
		err = r.applyChunk(name, chunk, deleted, kv)
	case deleted:
		r.head = nil
	default:
		var head rolloutHead

		r.head = nil
		if head, err = decodeRollout(id, kv); err == nil {
			r.head = &head
		}
	}

	if r.head == nil && len(r.chunks) == 0 {
		delete(v.rollouts, id)
	}

	return err
}

func (r *storedRollout) applyChunk(name, chunk string, deleted bool, kv *mvccpb.KeyValue) error {
	// Without a number it is no chunk of ours, and its record is refused.
	if number, err := strconv.Atoi(chunk); err == nil {
		delete(r.chunks, number)
	}

	if deleted {
		return nil
	}

	record, err := decodeRolloutChunk(name, kv)
	if err == nil {
		r.chunks[record.Chunk] = convertSlice(record.Nodes, rolloutNodeRecord.node)
	}

	return err
}

// joinRollouts puts the rollouts that have changed together. One of which a part is missing
// is unreadable. The caller holds the lock.
func (v *view) joinRollouts() {
	for id, r := range v.rollouts {
		if r.whole != nil || r.head == nil {
			continue
		}

		var err error

		r.whole, err = r.join()
		v.noteUnreadable("v/rollouts/"+id, err)
	}
}

// nodesOf returns the nodes of a rollout at that revision, or nil if the view has another
// one.
func (v *view) nodesOf(id string, revision int64) []rollout.Node {
	v.mu.Lock()
	defer v.mu.Unlock()

	v.joinRollouts()

	if r := v.rollouts[id]; r != nil && r.whole != nil && r.whole.Revision == revision {
		return r.whole.Nodes
	}

	return nil
}

// isIncomplete reports whether a rollout cannot be read because of its chunks, whatever its
// head is.
func isIncomplete(ctx context.Context, client *etcd.Client, key string, kv *mvccpb.KeyValue) (bool, error) {
	id, isRollout := strings.CutPrefix(key, "v/rollouts/")
	if !isRollout || strings.Contains(id, "/") {
		return false, nil
	}

	head, err := decodeRollout(id, kv)
	if err != nil {
		return true, nil
	}

	s := &Store{client: client}

	resp, err := get(ctx, client, s.rolloutNodesPrefix(id), clientv3.WithPrefix())
	if err != nil {
		return false, err
	}

	r := storedRollout{head: &head, chunks: map[int][]rollout.Node{}}

	for _, kv := range resp.Kvs {
		name := strings.TrimPrefix(string(kv.Key), s.rolloutKey(""))
		if _, chunk, _ := strings.Cut(name, "/"); r.applyChunk(name, chunk, false, kv) != nil {
			return true, nil
		}
	}

	_, err = r.join()

	return err != nil, nil
}
