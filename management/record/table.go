// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Tables hold the newest records of some kinds, as they are read from a store. The caller
// serializes the calls. The views that it hands out never change.
type Tables struct {
	kinds  []Any
	tables map[string]table // by the name of the kind
	shared bool             // view has what the tables have
	view   View
}

// table holds the records of one kind.
type table interface {
	// apply applies the write of a value; nil: its removal.
	apply(key string, value []byte, revision int64) error
	get(key string) any // an untyped nil: none
	// former returns what Tables.Former does; now is the record after the change, or nil.
	former(key string, before, now any) (former any, size int)
	share() any // *items[T]
	// subject returns the key of the record that has the key rest, below the kind, in the store.
	subject(rest string) string
	// joined returns what Tables.Joined does, for a kind.
	joined() map[string]error
}

// NewTables returns empty tables. Two kinds of one name are a fault of the program.
func NewTables(kinds []Any) *Tables {
	t := &Tables{kinds: kinds, tables: map[string]table{}}

	for _, k := range kinds {
		if t.tables[k.KindName()] != nil {
			panic(fmt.Sprintf("two kinds of record have the name %s", k.KindName()))
		}

		t.tables[k.KindName()] = k.table()
	}

	return t
}

// Kinds returns the kinds, in the order of NewTables.
func (t *Tables) Kinds() []Any { return t.kinds }

// Subject returns the record to which a key in the store belongs. It is false if it belongs
// to none of these kinds.
func (t *Tables) Subject(path string) (Ref, bool) {
	kind, key, _ := strings.Cut(path, "/")

	table, known := t.tables[kind]
	if known {
		key = table.subject(key)
	}

	return Ref{Kind: kind, Key: key}, known
}

// Apply applies the write of a value under a key in the store; nil: its removal. A value that
// cannot be decoded is an error, and the record is then what Kind.Damaged returns.
func (t *Tables) Apply(path string, value []byte, revision int64) error {
	kind, key, _ := strings.Cut(path, "/")
	t.shared = false

	return t.tables[kind].apply(key, value, revision)
}

// Get returns the newest form of a record, or an untyped nil.
func (t *Tables) Get(ref Ref) any { return t.tables[ref.Kind].get(ref.Key) }

// Former returns the record before a change, with its size in bytes, if the change may hide it
// from a scope: it is removed, or concerns other nodes now. Otherwise it returns nil.
func (t *Tables) Former(ref Ref, before any) (former any, size int) {
	if before == nil {
		return nil, 0
	}

	return t.tables[ref.Kind].former(ref.Key, before, t.Get(ref))
}

// View returns the records as they are now.
func (t *Tables) View() View {
	if !t.shared {
		t.view, t.shared = View{items: make(map[string]any, len(t.tables))}, true
		for kind, table := range t.tables {
			t.view.items[kind] = table.share()
		}
	}

	return t.view
}

// Joined returns the records in several keys that were put together since the last call, by their key
// in the store, with the reason for which that failed, or nil.
func (t *Tables) Joined() map[string]error {
	all := map[string]error{}
	for _, table := range t.tables {
		maps.Copy(all, table.joined())
	}

	return all
}

// plain is the table of a kind with one key for each record.
type plain[T any] struct {
	kind   *Kind[T]
	byKey  map[string]entry[T]
	shared *items[T] // has byKey; nil after a change
}

func (k *Kind[T]) table() table {
	if k.Chunks != nil {
		return k.Chunks.table(k)
	}

	return &plain[T]{kind: k, byKey: map[string]entry[T]{}}
}

func (p *plain[T]) subject(rest string) string { return rest }

func (p *plain[T]) joined() map[string]error { return nil }

func (p *plain[T]) get(key string) any {
	if e, ok := p.byKey[key]; ok {
		return e.record
	}

	return nil
}

func (p *plain[T]) former(key string, before, now any) (former any, size int) {
	nodes := p.kind.concerns(key, before.(*T))
	if now != nil && slices.Equal(nodes, p.kind.concerns(key, now.(*T))) {
		return nil, 0
	}

	// About its size in memory: the stored form may be compressed.
	text, _ := json.Marshal(before)

	return before, len(text)
}

func (p *plain[T]) share() any {
	if p.shared == nil {
		p.shared = &items[T]{kind: p.kind, byKey: p.byKey}
	}

	return p.shared
}

// set replaces a record; without one it removes it. Views may share the map, so it is copied
// once after each of them.
func (p *plain[T]) set(e entry[T]) {
	if p.shared != nil {
		p.byKey, p.shared = maps.Clone(p.byKey), nil
	}

	if e.record == nil {
		delete(p.byKey, e.key)
	} else {
		p.byKey[e.key] = e
	}
}

func (p *plain[T]) apply(key string, value []byte, revision int64) error {
	if value == nil {
		p.set(entry[T]{key: key})
		return nil
	}

	r, err := p.kind.Decode(key, value, revision)
	if err != nil {
		r = nil
		if p.kind.Damaged != nil {
			r = p.kind.Damaged(key, p.byKey[key].record)
		}
	}

	p.set(entry[T]{key, r, revision})

	return err
}
