// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/audit"
	"github.com/contiv/cluster/management/record"
)

// auditor encodes records, and keeps those that no transaction has.
type auditor struct {
	mu   sync.Mutex
	late []access.Record
}

func (a *auditor) Record(_ context.Context, r access.Record) {
	a.mu.Lock()
	defer a.mu.Unlock()

	if !r.Stored || r.Err != nil {
		a.late = append(a.late, r)
	}
}

func (*auditor) Encode(_ context.Context, r access.Record) ([]byte, error) {
	return json.Marshal(audit.Entry{Time: r.Time, Who: r.Principal, Verb: r.Action, Targets: r.Targets, Result: "done"})
}

// TestAuditedTransaction: the entry of a change is written at the revision of the change, once, also in a group; that
// of a change that was refused, or made nothing, is not.
func TestAuditedTransaction(t *testing.T) {
	t.Parallel()

	s := store(t)
	a := &auditor{}

	put := func(id string, refusal error) (revision int64, err error) {
		r := access.Record{Action: "tokens.create", Targets: []string{id}}
		err = access.Audited(t.Context(), a, access.Caller{Principal: "anna"}, r,
			func(ctx context.Context, _ *access.Record) error {
				_, revision, err = record.Decide(ctx, s, func(tx *record.Tx) (struct{}, error) {
					// A conflict with others, which all read it.
					if record.Get(tx, &access.TokenKind, id) == nil {
						record.Put(tx, &access.TokenKind, &access.Token{ID: id})
					}
					return struct{}{}, refusal
				})
				return err
			})

		return revision, err
	}

	revisions := map[string]int64{}

	var (
		all sync.WaitGroup
		mu  sync.Mutex
	)

	for _, id := range strings.Fields("a b c d e f g h i j k l m n o p") {
		all.Go(func() {
			revision, err := put(id, nil)
			if err != nil {
				t.Error(err)
			}

			mu.Lock()
			defer mu.Unlock()
			revisions[id] = revision
		})
	}

	all.Wait()

	_, err := put("a", nil) // nothing is written, so the entry follows
	must(t, err)

	refused := inventory.Errorf(inventory.KindRefused, "no")
	if _, err := put("q", refused); !errors.Is(err, refused) {
		t.Error(err)
	}

	if len(a.late) != 2 || a.late[0].Err != nil || a.late[1].Err == nil {
		t.Errorf("outside of transactions: %+v", a.late)
	}

	stored, err := s.AuditRecords(t.Context(), audit.Query{Prefix: audit.NewPrefix, Oldest: true})
	must(t, err)

	found := map[string]int64{}

	for _, one := range stored {
		must(t, audit.Check(one.Key, one.Value))

		for line := range strings.Lines(string(one.Value)) {
			var e audit.Entry
			must(t, json.Unmarshal([]byte(line), &e))

			if found[e.Targets[0]] != 0 {
				t.Errorf("%s has several entries", e.Targets[0])
			}
			found[e.Targets[0]] = one.Revision
		}
	}

	for id, revision := range revisions {
		if found[id] != revision {
			t.Errorf("%s was written at revision %d, and its entry at %d", id, revision, found[id])
		}
	}

	if len(found) != len(revisions) {
		t.Errorf("%d entries of %d changes", len(found), len(revisions))
	}
}

// TestAnnouncedDecisions: the entries of decisions are written at the revision of the record that has them, or with
// it not at all.
func TestAnnouncedDecisions(t *testing.T) {
	t.Parallel()

	s := store(t)
	a := &auditor{}

	put := func(id string, revision int64) int64 {
		var parts []any
		for _, who := range []string{"policy:one", "policy:two"} {
			entry, stored := access.Announce(t.Context(), a, access.Caller{Principal: who}, access.Record{Action: id})
			parts = append(parts, entry)

			defer stored()
		}

		revision, _ = record.Replace(t.Context(), s, &access.TokenKind, id, revision, &access.Token{ID: id}, parts...)

		return revision
	}

	made, refused := put("a", 0), put("b", 7)
	if made == 0 || refused != 0 {
		t.Fatalf("made at %d, refused at %d", made, refused)
	}

	stored, err := s.AuditRecords(t.Context(), audit.Query{Prefix: audit.NewPrefix})
	must(t, err)

	if len(stored) != 1 || stored[0].Revision != made {
		t.Fatalf("made at %d, with the entries %+v", made, stored)
	}

	if text := string(stored[0].Value); strings.Count(text, `"verb":"a"`) != 2 || strings.Contains(text, `"b"`) {
		t.Errorf("the entries are %s", text)
	}

	if len(a.late) > 0 {
		t.Errorf("outside of the transaction: %+v", a.late)
	}
}
