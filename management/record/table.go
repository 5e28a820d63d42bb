// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/btree"
)

// Tables hold the newest records of some kinds, as they are read from a store. The caller
// serializes the calls. The views that it hands out never change.
type Tables struct {
	// Open, unless nil, decrypts the secrets of records. Set it before the first use.
	Open Convert

	// Written, unless nil, is called with each write of a record, with the former record, or nil, and
	// the approximate size of what Former returns as its new form.
	Written func(ref Ref, before any, size int)

	kinds  []Any
	tables map[string]table // by the name of the kind
	shared bool             // view has what the tables have
	view   View
}

// table holds the records of one kind.
type table interface {
	// apply applies the write of a value; nil: its removal.
	apply(key string, value []byte, revision int64, open Convert) error
	get(key string) any // an untyped nil: none
	replace(key string, r any)
	// change returns what Tables.Change does; now is the record after the change, or nil.
	change(key string, before, now any) (record, former any, size int)
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
		name := k.KindName()
		if t.tables[name] != nil {
			panic(fmt.Sprintf("two kinds of record have the name %s", name))
		}

		t.tables[name] = k.table(func(key string, before any, size int) {
			if t.Written != nil {
				t.Written(Ref{name, key}, before, size)
			}
		})
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
	return t.tables[kind].apply(key, value, revision, t.Open)
}

// Replace puts a record of the kind in the place of a record, as of the same revision.
func (t *Tables) Replace(ref Ref, record any) {
	t.shared = false
	t.tables[ref.Kind].replace(ref.Key, record)
}

// Get returns the newest form of a record, or an untyped nil.
func (t *Tables) Get(ref Ref) any { return t.tables[ref.Kind].get(ref.Key) }

// Change returns what a watch has to keep of a change: the record, if the watch shows every one of the
// kind, and the record before, if the kind says so, or the change may hide it from a scope: it is removed, or
// concerns other nodes now. size is that of the record before, in bytes. changed is false if the record is as before.
func (t *Tables) Change(ref Ref, before any) (record, former any, size int, changed bool) {
	now := t.Get(ref)
	record, former, size = t.tables[ref.Kind].change(ref.Key, before, now)
	return record, former, size, before != now
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
	kind    *Kind[T]
	written func(key string, before any, size int)
	tree    *btree.BTreeG[entry[T]]
	shared  *items[T] // has a copy of the tree, but for what was written since
	since   []string  // the keys that were written since, up to one more than maxDiffer
}

func (k *Kind[T]) table(written func(key string, before any, size int)) table {
	p := plain[T]{kind: k, written: written, tree: k.tree()}
	if k.Chunks != nil {
		return k.Chunks.table(p)
	}
	return &p
}

func (p *plain[T]) subject(rest string) string { return rest }

func (p *plain[T]) joined() map[string]error { return nil }

func (p *plain[T]) get(key string) any {
	return untyped(p.at(key))
}

func (p *plain[T]) at(key string) *T {
	e, _ := p.tree.Get(entry[T]{key: key})
	return e.record
}

func (p *plain[T]) replace(key string, r any) {
	before, _ := p.tree.Get(entry[T]{key: key})
	p.set(entry[T]{key, r.(*T), before.revision})
	p.written(key, untyped(before.record), 0)
}

func (p *plain[T]) change(key string, before, now any) (record, former any, size int) {
	if p.kind.Every {
		record = now
	}

	// The record before is that of an earlier change, so it has no size of its own.
	if before == nil || p.kind.Former {
		return record, before, 0
	}

	nodes := p.kind.concerns(key, before.(*T))
	if now != nil && slices.Equal(nodes, p.kind.concerns(key, now.(*T))) {
		return record, nil, 0
	}

	// About its size in memory: the stored form may be compressed.
	text, _ := json.Marshal(before)

	return record, before, len(text)
}

func (p *plain[T]) share() any {
	if p.shared == nil || len(p.since) > 0 {
		former := p.shared
		p.shared = &items[T]{kind: p.kind, tree: p.tree.Clone()}
		p.shared.since(former, p.since)
		p.since = nil
	}

	return p.shared
}

// set replaces a record; without one it removes it.
func (p *plain[T]) set(e entry[T]) {
	if len(p.since) <= maxDiffer {
		p.since = append(p.since, e.key)
	}

	if e.record == nil {
		p.tree.Delete(e)
	} else {
		p.tree.ReplaceOrInsert(e)
	}
}

func (p *plain[T]) apply(key string, value []byte, revision int64, open Convert) (err error) {
	before := p.at(key)

	var r *T
	if value != nil {
		if r, err = p.kind.Decode(key, value, revision); err == nil {
			r, err = p.kind.convert(r, open)
		}

		if err != nil {
			r = nil
			if p.kind.Damaged != nil {
				r = p.kind.Damaged(key, before)
			}
		}
	}

	p.set(entry[T]{key, r, revision})

	size := 0
	if p.kind.Every {
		size = len(value)
	}
	p.written(key, untyped(before), size)

	return err
}
