// SPDX-License-Identifier: Apache-2.0

package record

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/btree"
)

// Kind describes the records of one kind. Records are shared as *T and never
// changed. A Kind does not change after its first use.
type Kind[T any] struct {
	// Name begins the keys of the records: the one under KEY has the key NAME/KEY in the
	// store.
	Name string
	// Single: the store has one record at most, and its key is Name.
	Single bool
	// Key returns the key of a record. A record that is stored under another one is
	// unreadable. nil: records do not carry their key.
	Key func(*T) string
	// At sets the revision of the last write of a decoded record; nil: records have none.
	At func(*T, int64)
	// CompareKeys orders the keys; nil: by their bytes.
	CompareKeys func(a, b string) int
	// Compare orders the records of All; nil: by their keys.
	Compare func(a, b *T) int
	// Every: a watch shows every change of a record, and not only its newest form.
	Every bool
	// Former: a change of a record has the record before.
	Former bool
	// Codec encodes records; nil: JSON by the tags of T.
	Codec Codec[T]
	// Chunks, unless nil, is *Chunks: a list of each record is stored in keys of its own. Such a kind has
	// no Damaged.
	Chunks Split[T]
	// Secret returns a copy of a record in which convert has converted each set of values that may be
	// secret. Nil: the records have none. Such a kind has no Chunks.
	Secret func(r *T, convert Convert) (*T, error)
	// Damaged returns what stands for a record that cannot be read. last is the record
	// that was read before, or nil. If Damaged is nil, the record is missing.
	Damaged func(key string, last *T) *T
	// Nodes returns the names of the nodes that the record concerns.
	Nodes func(*T) []string
	// ByNode: the key of a record is the name of the node that it concerns.
	ByNode bool
	// Show returns the form of a record for callers within a scope, or nil if they do not
	// see it. If Show is nil they see records of which all Nodes are in the scope; without
	// Nodes as well, they see none.
	Show func(*T, Scope) *T
}

// Convert encrypts or decrypts the secrets among values by name. place is part of their encryption:
// where a value was not encrypted it cannot be decrypted. It does not change values.
type Convert func(place []string, values map[string]any) (map[string]any, error)

// Codec converts records to and from their stored form. Its methods may be called at once.
type Codec[T any] interface {
	Encode(*T) ([]byte, error)
	// Decode parses the record under the key; the bytes are only valid during the call.
	Decode(key string, value []byte) (*T, error)
}

// Any is a Kind of any type of record.
type Any interface {
	// KindName returns the Name of the kind.
	KindName() string
	// Check returns the reason for which a record cannot be decoded, or nil. rest is the
	// part of its key in the store after the name of the kind.
	Check(rest string, value []byte) error
	// Path returns the key in the store of the record under a key.
	Path(key string) string
	// HasSecrets reports whether records may have secrets.
	HasSecrets() bool
	// Rewrite returns the stored form of a record with its secrets converted; convert may be nil.
	Rewrite(rest string, value []byte, convert Convert) ([]byte, error)

	// guard guards the commit of a transaction by all records.
	guard(tx *Tx)
	// table returns an empty table, which calls written after each write of a record.
	table(written func(key string, before any, size int)) table
}

// Scope is what the kinds need to know of the scope of a caller.
type Scope interface {
	// HasNode reports whether the node belongs to the scope.
	HasNode(name string) bool
	// HadNode reports whether the node belongs to the scope, or did while it was in the group,
	// also if it is gone.
	HadNode(name, group string) bool
	// HasJob reports whether the scope has the job.
	HasJob(id string) bool
	// OwnsGroup reports whether all nodes of the group belong to the scope.
	OwnsGroup(group string) bool
	// Text returns the text without the names of nodes outside of the scope.
	Text(text string) string
	// Names returns those names that are not of nodes outside of the scope.
	Names(names []string) []string
}

// KindName implements Any.
func (k *Kind[T]) KindName() string { return k.Name }

// Decode parses the record under a key, as it was written at the revision.
func (k *Kind[T]) Decode(key string, value []byte, revision int64) (*T, error) {
	r, err := k.decode(key, value)
	if err != nil {
		return nil, err
	}
	if k.Key != nil && k.Key(r) != key {
		return nil, fmt.Errorf("the record names %q", k.Key(r))
	}

	if k.At != nil {
		k.At(r, revision)
	}

	return r, nil
}

func (k *Kind[T]) decode(key string, value []byte) (*T, error) {
	if k.Codec != nil {
		return k.Codec.Decode(key, value)
	}

	r := new(T)
	return r, json.Unmarshal(value, r)
}

// Path implements Any.
func (k *Kind[T]) Path(key string) string {
	if k.Single {
		return k.Name
	}
	return k.Name + "/" + key
}

// KindOf returns the name of the kind to which a key in the store belongs.
func KindOf(path string) string {
	kind, _, _ := strings.Cut(path, "/")
	return kind
}

// PathOf returns the key in the store of a record.
func (k *Kind[T]) PathOf(r *T) string {
	if k.Single {
		return k.Name
	}
	return k.Path(k.Key(r))
}

// Encode returns the stored form of a record.
func (k *Kind[T]) Encode(r *T) ([]byte, error) {
	if k.Codec != nil {
		return k.Codec.Encode(r)
	}
	return json.Marshal(r)
}

// Check implements Any.
func (k *Kind[T]) Check(rest string, value []byte) error {
	if k.isChunk(rest) {
		return k.Chunks.check(rest, value)
	}

	_, err := k.Decode(rest, value, 0)
	return err
}

// HasSecrets implements Any.
func (k *Kind[T]) HasSecrets() bool { return k.Secret != nil }

func (k *Kind[T]) guard(tx *Tx) { itemsOf(tx, k, "", !k.Single) }

// Rewrite implements Any.
func (k *Kind[T]) Rewrite(rest string, value []byte, convert Convert) ([]byte, error) {
	if k.isChunk(rest) {
		return k.Chunks.rewrite(rest, value)
	}

	r, err := k.Decode(rest, value, 0)
	if err != nil {
		return nil, err
	}
	return k.seal(rest, r, convert)
}

// isChunk reports whether a key of the kind, after its name, is that of a chunk.
func (k *Kind[T]) isChunk(rest string) bool { return k.Chunks != nil && strings.Contains(rest, "/") }

// seal returns the stored form of a record with its secrets converted. convert may be nil.
func (k *Kind[T]) seal(key string, r *T, convert Convert) ([]byte, error) {
	r, err := k.convert(r, convert)
	if err != nil {
		return nil, err
	}
	value, err := k.Encode(r)
	if err != nil {
		err = fmt.Errorf("encode %s: %w", k.Path(key), err)
	}
	return value, err
}

func (k *Kind[T]) convert(r *T, convert Convert) (*T, error) {
	if k.Secret == nil || convert == nil {
		return r, nil
	}
	return k.Secret(r, convert)
}

// concerns returns the names of the nodes that a record concerns.
func (k *Kind[T]) concerns(key string, r *T) []string {
	switch {
	case k.ByNode:
		return []string{key}
	case k.Nodes != nil:
		return k.Nodes(r)
	default:
		return nil
	}
}

// shown returns the form of a record for callers within a scope; nil: they do not see it.
func (k *Kind[T]) shown(key string, r *T, s Scope) *T {
	if k.Show != nil {
		return k.Show(r, s)
	}

	// A record that concerns no node concerns the whole manager.
	nodes := k.concerns(key, r)
	if len(nodes) == 0 || slices.ContainsFunc(nodes, func(name string) bool { return !s.HasNode(name) }) {
		return nil
	}

	return r
}

// compareKeys compares two keys.
func (k *Kind[T]) compareKeys(a, b string) int {
	if k.CompareKeys != nil {
		return k.CompareKeys(a, b)
	}
	return cmp.Compare(a, b)
}

// tree returns an empty tree of records by their keys.
func (k *Kind[T]) tree() *btree.BTreeG[entry[T]] {
	return btree.NewG(treeDegree, func(a, b entry[T]) bool { return k.compareKeys(a.key, b.key) < 0 })
}
