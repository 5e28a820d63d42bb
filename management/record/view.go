// SPDX-License-Identifier: Apache-2.0

package record

import (
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/google/btree"
)

// View holds the records of all kinds at one revision. It is immutable; the zero View is
// empty. A copy shares the records.
type View struct {
	items map[string]any // *items[T] by the name of the kind
}

// Reader gives access to records: a View, what embeds one, or a transaction, which is guarded
// by what is read through it.
type Reader interface {
	// Records returns the records.
	Records() View
}

// Records implements Reader.
func (v View) Records() View { return v }

// items are the records of one kind.
type items[T any] struct {
	kind *Kind[T]
	tree *btree.BTreeG[entry[T]] // filled on the first use, see records

	// Those of a scope are made of the whole when they are first asked for: most requests read few kinds.
	fill  sync.Once
	whole *items[T]
	scope Scope

	// In the order of the kind; made when they are first asked for.
	mu     sync.Mutex
	sorted []entry[T] // nil: that of the tree
	list   []*T       // nil: not asked for

	// former is the list of earlier records, of which only those under the keys may differ. nil: unknown.
	former []*T
	differ []string
}

// maxDiffer is the number of changes above which a list is made anew.
const maxDiffer = 64

// treeDegree is that of the trees. A write copies so many entries, about, for each level.
const treeDegree = 32

// entry is a record as it was written at a revision.
type entry[T any] struct {
	key      string
	record   *T
	revision int64
}

// itemsOf returns the records of a kind, or nil. A transaction is guarded by the record under
// the key, or by all records of the kind.
func itemsOf[T any](r Reader, k *Kind[T], key string, all bool) *items[T] {
	found, _ := r.Records().items[k.Name].(*items[T])

	if tx, ok := r.(*Tx); ok {
		if all {
			tx.guardKind(k.Name)
		} else {
			tx.guard(k.Path(key), found.get(key).revision)
		}
	}

	return found
}

// records returns the tree of the records.
func (i *items[T]) records() *btree.BTreeG[entry[T]] {
	if i.whole == nil {
		return i.tree
	}

	i.fill.Do(func() {
		for e := range i.whole.all {
			if e.record = i.kind.shown(e.key, e.record, i.scope); e.record != nil {
				i.tree.ReplaceOrInsert(e)
			}
		}
	})

	return i.tree
}

func (i *items[T]) get(key string) entry[T] {
	if i == nil {
		return entry[T]{}
	}

	e, _ := i.records().Get(entry[T]{key: key})
	return e
}

// all calls yield with the entries in the order of the kind, until it returns false.
func (i *items[T]) all(yield func(entry[T]) bool) {
	switch {
	case i == nil:
	case i.kind.Compare == nil:
		i.records().Ascend(yield)
	default:
		i.order()

		for _, e := range i.sorted {
			if !yield(e) {
				return
			}
		}
	}
}

// order makes the lists.
func (i *items[T]) order() {
	i.mu.Lock()
	defer i.mu.Unlock()

	switch {
	case i.list != nil:
	case i.former != nil:
		i.list, i.former = i.changedList(), nil
	default:
		i.makeLists()
	}
}

// since lets the list be made of that of former records, of which only those under the keys may differ. A copy
// with few changes takes less than a walk over the tree.
func (i *items[T]) since(former *items[T], keys []string) {
	if former == nil || i.kind.Compare != nil || i.kind.Key == nil {
		return
	}

	former.mu.Lock()
	defer former.mu.Unlock()

	if i.former = former.list; i.former == nil {
		i.former, keys = former.former, slices.Concat(former.differ, keys)
	}

	if i.differ = keys; len(keys) > maxDiffer {
		i.former, i.differ = nil, nil
	}
}

// changedList returns the list, made of the former one.
func (i *items[T]) changedList() []*T {
	list := append(make([]*T, 0, len(i.former)+len(i.differ)), i.former...)

	for _, key := range i.differ {
		at, found := slices.BinarySearchFunc(list, key, func(r *T, key string) int {
			return i.kind.compareKeys(i.kind.Key(r), key)
		})

		switch now := i.get(key).record; {
		case found && now != nil:
			list[at] = now
		case found:
			list = slices.Delete(list, at, at+1)
		case now != nil:
			list = slices.Insert(list, at, now)
		}
	}

	return list
}

func (i *items[T]) makeLists() {
	tree := i.records()

	if i.kind.Compare != nil {
		i.sorted = make([]entry[T], 0, tree.Len())
	}

	i.list = make([]*T, 0, tree.Len())

	tree.Ascend(func(e entry[T]) bool {
		if i.list = append(i.list, e.record); i.sorted != nil {
			i.sorted = append(i.sorted, e)
		}
		return true
	})

	if i.sorted == nil {
		return
	}

	slices.SortStableFunc(i.sorted, func(a, b entry[T]) int { return i.kind.Compare(a.record, b.record) })

	for at, e := range i.sorted {
		i.list[at] = e.record
	}
}

// All returns the records of a kind with their keys, in the order of the kind.
func All[T any](r Reader, k *Kind[T]) iter.Seq2[string, *T] {
	found := itemsOf(r, k, "", true)

	return func(yield func(string, *T) bool) {
		found.all(func(e entry[T]) bool { return yield(e.key, e.record) })
	}
}

// List returns the records of a kind, in the order of the kind. The list is shared and must not be
// changed.
func List[T any](r Reader, k *Kind[T]) []*T {
	found := itemsOf(r, k, "", true)
	if found == nil {
		return nil
	}
	found.order()
	return slices.Clip(found.list)
}

// Get returns the record under a key, or nil.
func Get[T any](r Reader, k *Kind[T], key string) *T {
	return itemsOf(r, k, key, false).get(key).record
}

// One returns the only record of a kind; a zero one if there is none.
func One[T any](r Reader, k *Kind[T]) T {
	if record := Get(r, k, ""); record != nil {
		return *record
	}

	var zero T
	return zero
}

// Revision returns the revision of the last write of the record under a key; 0: there is none.
func Revision[T any](r Reader, k *Kind[T], key string) int64 {
	return itemsOf(r, k, key, false).get(key).revision
}

// With returns the view with those records of the kind, by their keys, and no others. Their
// revision is 1.
func With[T any](v View, k *Kind[T], records map[string]*T) View {
	v.items = maps.Clone(v.items)
	if v.items == nil {
		v.items = map[string]any{}
	}

	tree := k.tree()
	for key, r := range records {
		tree.ReplaceOrInsert(entry[T]{key, r, 1})
	}

	v.items[k.Name] = &items[T]{kind: k, tree: tree}

	return v
}

// WithOne returns the view with the only record of the kind.
func WithOne[T any](v View, k *Kind[T], r T) View { return With(v, k, map[string]*T{"": &r}) }

// WithList returns the view with those records of the kind, which carry their keys, and no
// others.
func WithList[T any](v View, k *Kind[T], records ...*T) View {
	byKey := make(map[string]*T, len(records))
	for _, r := range records {
		byKey[k.Key(r)] = r
	}

	return With(v, k, byKey)
}

// Within returns the part of the view that callers within the scope see.
func (v View) Within(s Scope) View {
	part := View{items: make(map[string]any, len(v.items))}

	for kind, all := range v.items {
		part.items[kind] = all.(anyItems).within(s)
	}

	return part
}

// Has reports whether the view has the record.
func (v View) Has(ref Ref) bool {
	all, ok := v.items[ref.Kind].(anyItems)
	return ok && all.has(ref.Key)
}

// Shown returns the form of an earlier record for callers within a scope, or nil if they do not see
// it. r may be nil.
func (v View) Shown(ref Ref, r any, s Scope) any {
	all, ok := v.items[ref.Kind].(anyItems)
	if !ok || r == nil {
		return nil
	}
	return all.shown(ref.Key, r, s)
}

// Differences calls f with each record that was written or removed between two views of one
// store, and with the former record, or nil.
func Differences(old, now View, f func(ref Ref, before any)) {
	for kind, all := range now.items {
		all.(anyItems).differences(old.items[kind], func(key string, before any) { f(Ref{kind, key}, before) })
	}
}

// anyItems is *items of any type.
type anyItems interface {
	within(s Scope) any
	has(key string) bool
	shown(key string, r any, s Scope) any
	differences(old any, f func(key string, before any))
}

func (i *items[T]) has(key string) bool { return i.get(key).record != nil }

func (i *items[T]) shown(key string, r any, s Scope) any {
	return untyped(i.kind.shown(key, r.(*T), s))
}

// untyped returns a record, or an untyped nil.
func untyped[T any](r *T) any {
	if r == nil {
		return nil
	}
	return r
}

func (i *items[T]) differences(old any, f func(key string, before any)) {
	before, _ := old.(*items[T])
	if before == i {
		return
	}

	for e := range i.all {
		if was := before.get(e.key); was.record == nil || was.revision != e.revision {
			f(e.key, untyped(was.record))
		}
	}

	for was := range before.all {
		if !i.has(was.key) {
			f(was.key, was.record)
		}
	}
}

func (i *items[T]) within(s Scope) any {
	return &items[T]{kind: i.kind, tree: i.kind.tree(), whole: i, scope: s}
}

// Ref names a record.
type Ref struct {
	Kind string
	Key  string
}

// Same reports whether two views have the same records of a kind, because none was written in
// between. It is false for views that do not come from the same store.
func Same[T any](a, b Reader, k *Kind[T]) bool {
	inA, okA := a.Records().items[k.Name].(*items[T])
	inB, okB := b.Records().items[k.Name].(*items[T])
	return okA == okB && inA == inB
}

// Set returns the view with a record in the place of the one under the key; nil removes that. Its
// revision is 1.
func Set[T any](v View, k *Kind[T], key string, r *T) View { return SetAt(v, k, key, r, 1) }

// SetAt is Set with the revision of the record.
func SetAt[T any](v View, k *Kind[T], key string, r *T, revision int64) View {
	tree, former := k.tree(), itemsOf(v, k, "", true)
	if former != nil {
		tree = former.records().Clone()
	}
	if tree.ReplaceOrInsert(entry[T]{key, r, revision}); r == nil {
		tree.Delete(entry[T]{key: key})
	}

	now := &items[T]{kind: k, tree: tree}
	now.since(former, []string{key})

	v = With(v, k, nil)
	v.items[k.Name] = now

	return v
}

// Only returns a view with the records of one kind.
func Only[T any](r Reader, k *Kind[T]) View {
	only := View{items: map[string]any{}}
	if all := itemsOf(r, k, "", true); all != nil {
		only.items[k.Name] = all
	}
	return only
}

// Change returns the view with the only record of the kind changed; a zero one if there is none.
func Change[T any](v View, k *Kind[T], change func(*T)) View {
	r := One(v, k)
	change(&r)
	return WithOne(v, k, r)
}
