// SPDX-License-Identifier: Apache-2.0

// Package audittest has a store of the audit trail in memory, for tests.
package audittest

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/audit"
)

// Store is a store of the audit trail in memory.
type Store struct {
	mu       sync.Mutex
	Records  map[string]audit.Stored
	Revision int64 // of the last write
	fail     error // of every request; nil: none
	writes   int
}

// AuditRecords implements audit.Store.
func (s *Store) AuditRecords(ctx context.Context, q audit.Query) ([]audit.Stored, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if err := cmp.Or(s.fail, ctx.Err()); err != nil {
		return nil, err
	}

	var found []audit.Stored

	for _, key := range slices.Sorted(maps.Keys(s.Records)) {
		if strings.HasPrefix(key, q.Prefix) {
			found = append(found, s.Records[key])
		}
	}

	if q.Oldest {
		slices.SortStableFunc(found, func(a, b audit.Stored) int { return cmp.Compare(a.Revision, b.Revision) })
	}
	if q.Limit > 0 {
		found = found[:min(len(found), q.Limit)]
	}

	return found, nil
}

// WriteAudit implements audit.Store.
func (s *Store) WriteAudit(ctx context.Context, w audit.Write) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if err := cmp.Or(s.fail, ctx.Err()); err != nil {
		return 0, err
	}
	if w.Guarded && s.Records[audit.HeadKey].Revision != w.Head {
		return 0, inventory.Errorf(inventory.KindConflict, "the head has changed")
	}

	if s.Records == nil {
		s.Records = map[string]audit.Stored{}
	}

	s.Revision++
	s.writes++

	for key, value := range w.Put {
		s.Records[key] = audit.Stored{Key: key, Value: value, Revision: s.Revision}
	}

	for _, key := range w.Drop {
		delete(s.Records, key)
	}

	return s.Revision, nil
}

// Change replaces or removes a record, as somebody with access to the store does.
func (s *Store) Change(key string, change func([]byte) []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()

	r := s.Records[key]
	if r.Value = change(r.Value); r.Value == nil {
		delete(s.Records, key)
	} else {
		s.Records[key] = r
	}
}

// Keys returns the keys of the records that begin with a prefix, in order.
func (s *Store) Keys(prefix string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := slices.Sorted(maps.Keys(s.Records))
	return slices.DeleteFunc(keys, func(key string) bool { return !strings.HasPrefix(key, prefix) })
}

// Writes returns the number of writes.
func (s *Store) Writes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

// Refuse lets every further request fail with the error; nil: none.
func (s *Store) Refuse(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}
