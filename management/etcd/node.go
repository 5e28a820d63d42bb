// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/state"
)

// nodeRecord is a node, or its reservation by a job (Before is set).
type nodeRecord struct {
	Name         string                `json:"name"`
	Label        string                `json:"label"`
	Serial       string                `json:"serial"`
	Addr         string                `json:"addr"`
	Status       inventory.Status      `json:"status"`
	PrevStatus   inventory.Status      `json:"prev_status,omitempty"`
	State        inventory.State       `json:"state"`
	PrevState    inventory.State       `json:"prev_state,omitempty"`
	Group        string                `json:"group,omitempty"`
	Residue      []string              `json:"residue,omitempty"`
	Applied      string                `json:"applied,omitempty"`
	Configured   *inventory.Configured `json:"configured,omitempty"`
	Cleaned      bool                  `json:"cleaned,omitempty"`
	Playbooks    map[string]string     `json:"playbooks,omitempty"`
	LastError    string                `json:"last_error,omitempty"`
	Verification *inventory.Verdict    `json:"verification,omitempty"`
	Job          string                `json:"job,omitempty"`
	Verb         inventory.Verb        `json:"verb,omitempty"`
	Before       *beforeRecord         `json:"before,omitempty"`
	Labels       map[string]string     `json:"labels,omitempty"`
	Seen         map[string]bool       `json:"seen,omitempty"`
	Sightings    sightingRecords       `json:"sightings,omitempty"`
	Duplicates   []string              `json:"duplicates,omitempty"`
	SetAside     []string              `json:"set_aside,omitempty"`
	From         string                `json:"announced_from,omitempty"`
	HostKeys     []string              `json:"host_keys,omitempty"`
	Presence     presenceRecord        `json:"presence,omitzero"`
	Entries      uint64                `json:"entries"`
	Created      time.Time             `json:"created"`
	Updated      time.Time             `json:"updated"`
	Actor        string                `json:"actor,omitempty"`
}

// sightingRecords are what observers say about a node, by observer.
type sightingRecords map[string]sightingRecord

type sightingRecord struct {
	Addr   string    `json:"addr"`
	Others []string  `json:"others,omitempty"`
	Since  time.Time `json:"since,omitzero"`
}

func newSightingRecords(all map[string]inventory.Sighting) sightingRecords {
	if len(all) == 0 {
		return nil
	}

	records := sightingRecords{}
	for observer, s := range all {
		records[observer] = sightingRecord(s)
	}

	return records
}

func (all sightingRecords) sightings() map[string]inventory.Sighting {
	if len(all) == 0 {
		return nil
	}

	sightings := map[string]inventory.Sighting{}
	for observer, r := range all {
		sightings[observer] = inventory.Sighting(r)
	}

	return sightings
}

// beforeRecord holds the fields of a node that its reservation replaced.
type beforeRecord struct {
	Status     inventory.Status `json:"status"`
	PrevStatus inventory.Status `json:"prev_status,omitempty"`
	Group      string           `json:"group,omitempty"`
	LastError  string           `json:"last_error,omitempty"`
	Applied    string           `json:"applied,omitempty"`
	Residue    []string         `json:"residue,omitempty"`
	Entries    uint64           `json:"entries"`
}

func newNodeRecord(n inventory.Node) nodeRecord {
	return nodeRecord{
		Name:         n.Name,
		Label:        n.Label,
		Serial:       n.Serial,
		Addr:         n.Addr,
		Status:       n.Status,
		PrevStatus:   n.PrevStatus,
		State:        n.State,
		PrevState:    n.PrevState,
		Group:        n.Group,
		Residue:      n.Residue,
		Applied:      n.Applied,
		Configured:   n.Configured,
		Cleaned:      n.Cleaned,
		Playbooks:    n.Playbooks,
		LastError:    n.LastError,
		Verification: n.Verification,
		Job:          n.Job,
		Verb:         n.Verb,
		Before:       (*beforeRecord)(n.Before),
		Labels:       n.Labels,
		Seen:         n.Seen,
		Sightings:    newSightingRecords(n.Sightings),
		Duplicates:   n.Duplicates,
		SetAside:     n.SetAside,
		From:         n.AnnouncedFrom,
		HostKeys:     n.HostKeys,
		Presence:     newPresenceRecord(n.Presence),
		Entries:      n.Entries,
		Created:      n.Created,
		Updated:      n.Updated,
		Actor:        n.Actor,
	}
}

// node returns the domain's node. It shares maps and slices with the record.
func (r *nodeRecord) node(revision int64) *inventory.Node {
	return &inventory.Node{
		Name:          r.Name,
		Label:         r.Label,
		Serial:        r.Serial,
		Addr:          r.Addr,
		Status:        r.Status,
		PrevStatus:    r.PrevStatus,
		State:         r.State,
		PrevState:     r.PrevState,
		Group:         r.Group,
		Residue:       r.Residue,
		Applied:       r.Applied,
		Configured:    r.Configured,
		Cleaned:       r.Cleaned,
		Playbooks:     r.Playbooks,
		LastError:     r.LastError,
		Verification:  r.Verification,
		Job:           r.Job,
		Verb:          r.Verb,
		Before:        (*inventory.Before)(r.Before),
		Labels:        r.Labels,
		Seen:          r.Seen,
		Sightings:     r.Sightings.sightings(),
		Duplicates:    r.Duplicates,
		SetAside:      r.SetAside,
		AnnouncedFrom: r.From,
		HostKeys:      r.HostKeys,
		Presence:      r.Presence.presence(),
		Entries:       r.Entries,
		Created:       r.Created,
		Updated:       r.Updated,
		Actor:         r.Actor,
		Revision:      revision,
	}
}

// decodeNode parses the record under the key of the named node.
func decodeNode(name string, kv *mvccpb.KeyValue) (*inventory.Node, error) {
	record, err := decode[nodeRecord](kv.Value)
	if err != nil {
		return nil, err
	}

	// Snapshots are sorted by name; a wrong one would break every search.
	if record.Name != name {
		return nil, fmt.Errorf("the record names node %q", record.Name)
	}

	return record.node(kv.ModRevision), nil
}

func (s *Store) nodeKey(name string) string { return s.key("/v/nodes/%s", name) }

// putNodeOps returns the operations that write a node and append to its history, on
// condition that the record is still at n.Revision (0: it must not exist).
func (s *Store) putNodeOps(n inventory.Node, entries []inventory.HistoryEntry) (etcd.Ops, error) {
	key := s.nodeKey(n.Name)

	node, err := put(key, newNodeRecord(n))
	if err != nil {
		return etcd.Ops{}, err
	}

	history, err := s.historyOps(n.Name, entries)
	if err != nil {
		return etcd.Ops{}, err
	}

	return etcd.Ops{
		If:   []clientv3.Cmp{atRevision(key, n.Revision)},
		Then: append([]clientv3.Op{node}, history...),
	}, nil
}

// nodeOps returns the operations of each write: those of a node, or of its removal
// if the write has a tombstone.
func (s *Store) nodeOps(writes []state.NodeWrite) ([]etcd.Ops, error) {
	parts := make([]etcd.Ops, len(writes))

	var err error
	for i, w := range writes {
		if w.Tombstone != nil {
			parts[i], err = s.forgetOps(w.Node, *w.Tombstone)
		} else {
			parts[i], err = s.putNodeOps(w.Node, w.Entries)
		}

		if err != nil {
			return nil, err
		}
	}

	return parts, nil
}

// parallelChunks is the number of chunks in flight to etcd at a time. Chunks do not
// depend on each other, and etcd syncs those that arrive together to disk at once.
const parallelChunks = 4

// PutNodes writes nodes in chunks and returns the names of the nodes that changed
// since they were read. It writes a conflicting chunk again node by node, so that
// one conflict does not hold the others back.
func (s *Store) PutNodes(ctx context.Context, writes []state.NodeWrite) (conflicts []string, err error) {
	parts := make([]etcd.Ops, len(writes))
	for i, w := range writes {
		if parts[i], err = s.putNodeOps(s.keepReservation(w.Node), w.Entries); err != nil {
			return nil, err
		}

		if err := s.addConnection(&parts[i], w.Node.Name, w.Connection); err != nil {
			return nil, err
		}
	}

	// A slot is free as soon as a chunk is written, so a slow one holds up no other.
	chunks := pack(parts, 0)
	if len(chunks) == 1 {
		return s.putChunk(ctx, writes, chunks[0])
	}

	conflicting, errs := make([][]string, len(chunks)), make([]error, len(chunks))
	slots := make(chan struct{}, parallelChunks)

	var writers sync.WaitGroup

	var failed atomic.Bool
	for i, ops := range chunks {
		// Each write has exactly one condition, so they count the writes of a chunk.
		chunk := writes[:len(ops.If)]
		writes = writes[len(ops.If):]
		slots <- struct{}{}

		if failed.Load() {
			break
		}

		writers.Go(func() {
			conflicting[i], errs[i] = s.putChunk(ctx, chunk, ops)
			failed.CompareAndSwap(false, errs[i] != nil)
			<-slots
		})
	}

	writers.Wait()

	for _, err := range errs {
		if err != nil {
			return slices.Concat(conflicting...), err
		}
	}

	return slices.Concat(conflicting...), nil
}

func (s *Store) putChunk(ctx context.Context, chunk []state.NodeWrite, ops etcd.Ops) (conflicts []string, err error) {
	_, err = s.commit(ctx, ops)

	switch {
	case inventory.KindOf(err) != inventory.KindConflict:
		return nil, err
	case len(chunk) == 1:
		return []string{chunk[0].Node.Name}, nil
	}

	// Node by node, the nodes without a conflict are written.
	for _, w := range chunk {
		more, err := s.PutNodes(ctx, []state.NodeWrite{w})
		if err != nil {
			return conflicts, err
		}

		conflicts = append(conflicts, more...)
	}

	return conflicts, nil
}
