// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/window"
)

// putToken is a decision of its own on a store.
func putToken(t *testing.T, s *Store, id, name string) {
	t.Helper()
	_, _, err := record.Decide(t.Context(), s, func(tx *record.Tx) (struct{}, error) {
		record.Put(tx, &access.TokenKind, &access.Token{ID: id, Name: name})
		return struct{}{}, nil
	})
	must(t, err)
}

func removeToken(t *testing.T, s *Store, id string) {
	t.Helper()
	_, _, err := record.Decide(t.Context(), s, func(tx *record.Tx) (struct{}, error) {
		record.Remove(tx, &access.TokenKind, id)
		return struct{}{}, nil
	})
	must(t, err)
}

// TestDecisionsConflict: a change of what a decision has read, between the decision and its
// commit, is a conflict, which another instance may cause. A change of anything else is none.
func TestDecisionsConflict(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name    string
		read    func(tx *record.Tx)
		change  func(t *testing.T, s *Store)
		decides int
	}{
		{
			"the record", func(tx *record.Tx) { record.Get(tx, &access.TokenKind, "a") },
			func(t *testing.T, s *Store) { t.Helper(); putToken(t, s, "a", "other") }, 2,
		},
		{
			"a missing record", func(tx *record.Tx) { record.Get(tx, &access.TokenKind, "c") },
			func(t *testing.T, s *Store) { t.Helper(); putToken(t, s, "c", "c") }, 2,
		},
		{
			"another record", func(tx *record.Tx) { record.Get(tx, &access.TokenKind, "a") },
			func(t *testing.T, s *Store) { t.Helper(); putToken(t, s, "b", "other") }, 1,
		},
		{
			"all, a new one", func(tx *record.Tx) { record.List(tx, &access.TokenKind) },
			func(t *testing.T, s *Store) { t.Helper(); putToken(t, s, "c", "c") }, 2,
		},
		{
			"all, one removed", func(tx *record.Tx) { record.List(tx, &access.TokenKind) },
			func(t *testing.T, s *Store) { t.Helper(); removeToken(t, s, "b") }, 2,
		},
		{
			"all nodes, one forgotten", func(tx *record.Tx) { record.List(tx, &job.Nodes) },
			func(t *testing.T, s *Store) {
				t.Helper()

				n := s.View().Nodes()[0]
				gone := inventory.Tombstone{Name: n.Name, Time: noon, Actor: "ann"}
				must(t, second(s.Forget(t.Context(), s.View().Revision, nil,
					[]state.NodeWrite{{Node: *n, Tombstone: &gone}}, nil)))
			}, 2,
		},
		{
			"all jobs, one dropped", func(tx *record.Tx) { record.List(tx, &job.Kind) },
			func(t *testing.T, s *Store) {
				t.Helper()
				dropJobs(t, s, s.View().Jobs()[0].ID)
			}, 2,
		},
		{
			// token-uses begins with the letters of tokens, and is another kind.
			"all, of another kind", func(tx *record.Tx) { record.List(tx, &access.TokenKind) },
			func(t *testing.T, s *Store) {
				t.Helper()
				use := access.TokenUse{Time: noon}
				must(t, second(record.Replace(t.Context(), s, &access.TokenUseKind, "a", 0, &use)))
			}, 1,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			s := store(t)
			other := open(t, s.client)

			putToken(t, s, "a", "a")
			putToken(t, s, "b", "b")
			accepted(t, s, seen(t, s, 1))

			decided := 0

			_, revision, err := record.Decide(within(t, patience), s, func(tx *record.Tx) (struct{}, error) {
				c.read(tx)

				if decided++; decided == 1 {
					must(t, other.Sync(t.Context()))
					c.change(t, other)
				}

				record.Put(tx, &window.FreezeKind, &window.Freeze{On: true})

				return struct{}{}, nil
			})
			if err != nil || decided != c.decides || record.Revision(s.View(), &window.FreezeKind, "") != revision {
				t.Errorf("decided %d times, want %d: revision %d, %v", decided, c.decides, revision, err)
			}

			// Another process reads the same records.
			if again := open(t, s.client).View(); !window.FreezeOf(again).On {
				t.Errorf("the next process has %+v", window.FreezeOf(again))
			}
		})
	}
}

// TestReplace: a write over a newer record is a conflict and changes nothing.
func TestReplace(t *testing.T) {
	t.Parallel()

	s := store(t)
	ctx := within(t, patience)

	first, err := record.Replace(ctx, s, &state.Memory, "", 0, &state.Automation{Count: 1})
	must(t, err)

	if a := state.AutomationOf(s.View()); a.Count != 1 || a.Revision != first {
		t.Errorf("%+v, want the revision %d", a, first)
	}

	must(t, second(record.Replace(ctx, s, &state.Memory, "", first, &state.Automation{Count: 2})))
	conflict(t, second(record.Replace(ctx, s, &state.Memory, "", first, &state.Automation{Count: 3})))

	if a := state.AutomationOf(s.View()); a.Count != 2 {
		t.Errorf("%+v", a)
	}
}
