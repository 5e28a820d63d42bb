// SPDX-License-Identifier: Apache-2.0

package record_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/record/recordtest"
)

type note struct {
	ID    string   `json:"id"`
	Text  string   `json:"text,omitempty"`
	Order int      `json:"order,omitempty"`
	Nodes []string `json:"nodes,omitempty"`
	At    int64    `json:"-"`
}

type switchboard struct {
	On bool `json:"on,omitempty"`
}

var (
	notes = record.Kind[note]{
		Name:    "notes",
		Key:     func(n *note) string { return n.ID },
		At:      func(n *note, revision int64) { n.At = revision },
		Compare: func(a, b *note) int { return a.Order - b.Order },
		Nodes:   func(n *note) []string { return n.Nodes },
	}
	board = record.Kind[switchboard]{
		Name: "board", Single: true,
		Damaged: func(_ string, last *switchboard) *switchboard { return last },
	}
	hidden = record.Kind[note]{Name: "hidden", Key: func(n *note) string { return n.ID }}
	byNode = record.Kind[switchboard]{Name: "by-node", ByNode: true}
)

func newStore() *recordtest.Store { return recordtest.NewStore(&notes, &board, &hidden, &byNode) }

func view(s *recordtest.Store) record.View {
	latest, _ := s.Latest()
	return latest.Records()
}

func write(t *testing.T, s *recordtest.Store, path, value string) error {
	t.Helper()

	if value == "" {
		return s.Write(path, nil)
	}
	return s.Write(path, []byte(value))
}

func texts(v record.View) string {
	var out []string
	for key, n := range record.All(v, &notes) {
		out = append(out, fmt.Sprintf("%s:%s@%d", key, n.Text, n.At))
	}

	return strings.Join(out, " ")
}

// TestViewsNeverChange: each view keeps the records of its time, in the order of the kind.
func TestViewsNeverChange(t *testing.T) {
	t.Parallel()

	s := newStore()
	empty := view(s)

	for _, path := range []string{"b", "a"} {
		if err := write(
			t,
			s,
			"notes/"+path,
			`{"id":"`+path+`","text":"x","order":`+fmt.Sprint(int('c'-path[0]))+`}`,
		); err != nil {
			t.Fatal(err)
		}
	}

	two := view(s)

	errtest.None(t, write(t, s, "notes/a", ""))

	one := view(s)

	for want, v := range map[string]record.View{"": empty, "b:x@2 a:x@3": two, "b:x@2": one} {
		if got := texts(v); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}

	if !record.Same(one, view(s), &notes) || record.Same(one, two, &notes) || !record.Same(one, two, &board) {
		t.Error("views do not share what has not changed, or share what has")
	}
}

// TestDamagedRecords: a record that cannot be read is missing, unless its kind has something in
// its place, and one under the key of another counts as unreadable.
func TestDamagedRecords(t *testing.T) {
	t.Parallel()

	s := newStore()

	for _, w := range []struct {
		path, value string
		ok          bool
	}{
		{"notes/a", `{"id":"a"}`, true},
		{"notes/b", `{"id":"a"}`, false},
		{"notes/c", `{`, false},
		{"notes/a", `{`, false},
		{"board", `{"on":true}`, true},
		{"board", `[]`, false},
	} {
		if err := write(t, s, w.path, w.value); (err == nil) != w.ok {
			t.Errorf("%s %s: %v", w.path, w.value, err)
		}
	}

	if got := texts(view(s)); got != "" {
		t.Errorf("%q can be read", got)
	}

	if !record.One(view(s), &board).On {
		t.Error("the last readable record is lost")
	}

	// What stands for a damaged record can be replaced.
	_, _, err := record.Decide(t.Context(), s, func(tx *record.Tx) (struct{}, error) {
		record.Put(tx, &board, &switchboard{})
		return struct{}{}, nil
	})
	if err != nil || record.One(view(s), &board).On {
		t.Errorf("a damaged record stays: %v", err)
	}
}

// inScope are the names of the nodes of a scope.
type inScope []string

func (s inScope) HasNode(name string) bool    { return slices.Contains(s, name) }
func (s inScope) HadNode(name, _ string) bool { return s.HasNode(name) }
func (inScope) HasJob(string) bool            { return false }
func (inScope) OwnsGroup(string) bool         { return false }
func (inScope) Text(text string) string       { return text }
func (inScope) Names(names []string) []string { return names }

// paths returns the keys in the store of all records of a kind.
func paths[T any](v record.View, k *record.Kind[T]) (all []string) {
	for key := range record.All(v, k) {
		all = append(all, k.Path(key))
	}

	return all
}

// TestWithinScope: by default, a caller with a scope sees what concerns its nodes alone.
func TestWithinScope(t *testing.T) {
	t.Parallel()

	s := newStore()

	for path, value := range map[string]string{
		"notes/in": `{"id":"in","nodes":["a-1"]}`, "notes/both": `{"id":"both","nodes":["a-1","b-1"]}`,
		"notes/none": `{"id":"none"}`, "hidden/in": `{"id":"in","nodes":["a-1"]}`, "board": `{"on":true}`,
		"by-node/a-1": `{"on":true}`, "by-node/b-1": `{"on":true}`,
	} {
		errtest.None(t, write(t, s, path, value))
	}

	part := view(s).Within(inScope{"a-1"})
	got := slices.Concat(paths(part, &notes), paths(part, &board), paths(part, &hidden), paths(part, &byNode))

	if want := []string{"notes/in", "by-node/a-1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestDecisionsAreGuarded: whatever a decision has read, a change of it between the decision and
// the commit makes it decide anew; a change of anything else does not.
func TestDecisionsAreGuarded(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name    string
		read    func(tx *record.Tx)
		path    string
		value   string // of the change in between; empty: a removal
		decides int
	}{
		{"nothing", func(*record.Tx) {}, "notes/a", `{"id":"a","text":"new"}`, 1},
		{"the record", func(tx *record.Tx) { record.Get(tx, &notes, "a") }, "notes/a", `{"id":"a","text":"new"}`, 2},
		{"the record, removed", func(tx *record.Tx) { record.Get(tx, &notes, "a") }, "notes/a", "", 2},
		{"another record", func(tx *record.Tx) { record.Get(tx, &notes, "b") }, "notes/a", `{"id":"a"}`, 1},
		{"a missing record", func(tx *record.Tx) { record.Get(tx, &notes, "c") }, "notes/c", `{"id":"c"}`, 2},
		{"all records", func(tx *record.Tx) { record.List(tx, &notes) }, "notes/c", `{"id":"c"}`, 2},
		{"all records, one removed", func(tx *record.Tx) { record.List(tx, &notes) }, "notes/b", "", 2},
		{"all of another kind", func(tx *record.Tx) { record.List(tx, &hidden) }, "notes/c", `{"id":"c"}`, 1},
		{"the only record", func(tx *record.Tx) { record.One(tx, &board) }, "board", `{"on":true}`, 2},
		{
			"what it replaces", func(tx *record.Tx) { record.Put(tx, &notes, &note{ID: "a"}) },
			"notes/a", `{"id":"a","text":"new"}`, 2,
		},
		{
			"what it removes", func(tx *record.Tx) { record.Remove(tx, &notes, "a") },
			"notes/a", `{"id":"a","text":"new"}`, 2,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			s := newStore()
			for _, id := range []string{"a", "b"} {
				errtest.None(t, write(t, s, "notes/"+id, `{"id":"`+id+`"}`))
			}

			meanwhile := true
			s.Before = func(*record.Tx) error {
				if meanwhile {
					meanwhile = false
					return write(t, s, c.path, c.value)
				}

				return nil
			}

			decided := 0

			_, revision, err := record.Decide(t.Context(), s, func(tx *record.Tx) (struct{}, error) {
				decided++
				c.read(tx)
				record.PutAt(tx, &byNode, "a-1", &switchboard{On: true})
				return struct{}{}, nil
			})
			if err != nil || revision == 0 || decided != c.decides {
				t.Errorf("decided %d times, want %d; revision %d, %v", decided, c.decides, revision, err)
			}
		})
	}
}

// TestDecisionFails: an error of the decision, of the encoding or of the store writes nothing.
func TestDecisionFails(t *testing.T) {
	t.Parallel()

	s := newStore()
	refused := errors.New("no")

	for _, c := range []struct {
		decide func(tx *record.Tx) error
		before error
		want   error
	}{
		{func(tx *record.Tx) error { record.Put(tx, &notes, &note{ID: "a"}); return refused }, nil, refused},
		{func(tx *record.Tx) error { record.Put(tx, &notes, &note{ID: "a"}); return nil }, refused, refused},
		{func(*record.Tx) error { return nil }, refused, nil}, // there is nothing to write
	} {
		s.Before = func(*record.Tx) error { return c.before }

		_, revision, err := record.Decide(
			t.Context(),
			s,
			func(tx *record.Tx) (struct{}, error) { return struct{}{}, c.decide(tx) },
		)
		if !errors.Is(err, c.want) || revision != 0 || texts(view(s)) != "" {
			t.Errorf("revision %d, %v, %q", revision, err, texts(view(s)))
		}
	}

	// A conflict that does not end is returned, with its kind.
	s.Before = func(*record.Tx) error { return inventory.Errorf(inventory.KindConflict, "again") }

	_, err := record.Replace(context.Background(), s, &notes, "a", 0, &note{ID: "a"})
	if inventory.KindOf(err) != inventory.KindConflict {
		t.Errorf("%v", err)
	}
}

// unencodable has a field that JSON cannot encode.
type unencodable struct {
	F func() `json:"f"`
}

// TestUnencodableRecord: what cannot be encoded fails the commit, with the key.
func TestUnencodableRecord(t *testing.T) {
	t.Parallel()

	kind := record.Kind[unencodable]{Name: "bad"}
	s := recordtest.NewStore(&kind)

	_, err := record.Replace(t.Context(), s, &kind, "a", 0, &unencodable{F: func() {}})

	var unsupported *json.UnsupportedTypeError
	if !errors.As(err, &unsupported) || !strings.Contains(err.Error(), "bad/a") {
		t.Errorf("%v", err)
	}
}

// TestKindsHaveNames: two kinds of one name would read each other's records.
func TestKindsHaveNames(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("two kinds of one name are accepted")
		}
	}()

	record.NewTables([]record.Any{&notes, &notes})
}
