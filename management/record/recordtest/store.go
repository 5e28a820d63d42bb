// SPDX-License-Identifier: Apache-2.0

// Package recordtest keeps records in memory, for tests of what reads and writes them.
package recordtest

import (
	"context"
	"strings"
	"sync"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/record"
)

// Store is a record.Store in memory. Records are encoded and decoded as by a real store, and a
// commit fails if something that it is guarded by has changed.
type Store struct {
	// Before, unless nil, is called before each commit; its error is that of the commit. Set
	// it before the first use.
	Before func(tx *record.Tx) error
	// Base, unless nil, returns what Latest returns, e.g. a view with nodes and jobs.
	Base func(records record.View, revision int64) record.Reader

	// Attached, unless nil, is called at each commit for each part that is attached to it.
	Attached func(part any)

	mu       sync.Mutex
	tables   *record.Tables
	revision int64
	written  map[string]int64 // the revision of each key
	newest   map[string]int64 // the newest write or removal of each kind
	changed  chan struct{}
	commits  int
}

var _ record.Store = (*Store)(nil)

// NewStore returns a store of some kinds, at revision 1.
func NewStore(kinds ...record.Any) *Store {
	return &Store{
		tables: record.NewTables(kinds), revision: 1, written: map[string]int64{}, newest: map[string]int64{},
		changed: make(chan struct{}),
	}
}

// Latest implements record.Store.
func (s *Store) Latest() (record.Reader, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.Base != nil {
		return s.Base(s.tables.View(), s.revision), s.revision
	}
	return s.tables.View(), s.revision
}

// Changed implements record.Store.
func (s *Store) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// Sync implements record.Store.
func (s *Store) Sync(ctx context.Context) error { return ctx.Err() }

// Commit implements record.Store.
func (s *Store) Commit(_ context.Context, tx *record.Tx) (int64, error) {
	if s.Before != nil {
		if err := s.Before(tx); err != nil {
			return 0, err
		}
	}

	writes, err := tx.Writes(nil)
	if err != nil {
		return 0, err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	records, kinds := tx.Guards()
	for path, revision := range records {
		if s.written[path] != revision {
			return 0, inventory.Errorf(inventory.KindConflict, "%s has changed", path)
		}
	}

	for kind := range kinds {
		if s.newest[kind] > tx.Revision() {
			return 0, inventory.Errorf(inventory.KindConflict, "a record of the kind %s has changed", kind)
		}
	}

	s.revision++
	s.commits++

	if s.Attached != nil {
		for _, part := range tx.Parts() {
			s.Attached(part)
		}
	}

	for _, w := range writes {
		if err := s.apply(w); err != nil {
			return 0, err
		}
	}

	close(s.changed)
	s.changed = make(chan struct{})

	return s.revision, nil
}

func (s *Store) apply(w record.Write) error {
	kind, _, _ := strings.Cut(w.Path, "/")
	s.newest[kind], s.written[w.Path] = s.revision, s.revision

	if w.Value == nil {
		delete(s.written, w.Path)
	}
	return s.tables.Apply(w.Path, w.Value, s.revision)
}

// Write writes a value under a key, as somebody else would, readable or not; nil removes it.
func (s *Store) Write(path string, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.revision++
	err := s.apply(record.Write{Path: path, Value: value})

	close(s.changed)
	s.changed = make(chan struct{})

	return err
}

// Commits returns the number of commits that succeeded.
func (s *Store) Commits() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commits
}
