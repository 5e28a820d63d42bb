// SPDX-License-Identifier: Apache-2.0

package record_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/record/recordtest"
)

// crate has a list that is stored in chunks of two, or in three chunks.
type crate struct {
	ID    string
	Items []int
	At    int64
}

type crateHead struct {
	ID    string `json:"id"`
	Items int    `json:"items"`
}

type crateChunk struct {
	ID     string `json:"id"`
	Number int    `json:"number"`
	Items  []int  `json:"items"`
}

type crateCodec struct{}

func (crateCodec) Encode(c *crate) ([]byte, error) {
	return json.Marshal(crateHead{c.ID, len(c.Items)})
}

func (crateCodec) Decode(_ string, value []byte) (*crate, error) {
	var h crateHead
	err := json.Unmarshal(value, &h)
	return &crate{ID: h.ID, Items: make([]int, h.Items)}, err
}

var (
	crateChunks = record.Chunks[crate, int, crateChunk]{
		List: func(c *crate) *[]int { return &c.Items }, Same: func(a, b int) bool { return a == b },
		Least: 2, Most: 3,
		Chunk:    func(id string, number int, items []int) crateChunk { return crateChunk{id, number, items} },
		Elements: func(c crateChunk) (string, int, []int) { return c.ID, c.Number, c.Items },
	}
	crates = record.Kind[crate]{
		Name: "crates", Key: func(c *crate) string { return c.ID }, At: func(c *crate, at int64) { c.At = at },
		Codec: crateCodec{}, Chunks: &crateChunks,
	}
)

// put stores a crate, and returns the keys that were written.
func put(t *testing.T, s *recordtest.Store, c crate) (paths []string) {
	t.Helper()

	_, _, err := record.Decide(t.Context(), s, func(tx *record.Tx) (any, error) {
		record.Put(tx, &crates, &c)

		writes, err := tx.Writes(nil)
		for _, w := range writes {
			paths = append(paths, w.Path)
		}

		return nil, err
	})
	errtest.None(t, err)

	return paths
}

// TestChunks: a write has the chunks that differ and the head, and each view keeps the record of its time.
func TestChunks(t *testing.T) {
	t.Parallel()

	s := recordtest.NewStore(&crates)

	var views []record.View

	for i, step := range []struct {
		items []int
		paths []string
	}{
		{[]int{1, 2, 3}, []string{"crates/a/00", "crates/a/01", "crates/a"}},
		{[]int{1, 2, 4}, []string{"crates/a/01", "crates/a"}},
		{[]int{1, 2, 4}, []string{"crates/a"}},
		// Four elements would be two chunks of two, eight are three of three.
		{[]int{1, 2, 3, 4, 5, 6, 7, 8}, []string{"crates/a/00", "crates/a/01", "crates/a/02", "crates/a"}},
		{[]int{9}, []string{"crates/a/00", "crates/a/01", "crates/a/02", "crates/a"}},
		{nil, []string{"crates/a/00", "crates/a"}},
	} {
		if paths := put(t, s, crate{ID: "a", Items: step.items}); !slices.Equal(paths, step.paths) {
			t.Errorf("step %d wrote %v, want %v", i, paths, step.paths)
		}

		views = append(views, view(s))

		if got := record.Get(view(s), &crates, "a"); !slices.Equal(got.Items, step.items) || got.At == 0 ||
			record.Revision(view(s), &crates, "a") != got.At {
			t.Errorf("step %d: %+v", i, got)
		}
	}

	if got := record.Get(views[0], &crates, "a").Items; !slices.Equal(got, []int{1, 2, 3}) {
		t.Errorf("the first view has %v now", got)
	}

	put(t, s, crate{ID: "a", Items: []int{1, 2, 3}})

	_, _, err := record.Decide(t.Context(), s, func(tx *record.Tx) (any, error) {
		record.Remove(tx, &crates, "a")

		writes, err := tx.Writes(nil)
		if len(writes) != 3 || writes[2].Path != "crates/a" {
			t.Errorf("a removal writes %v", writes)
		}
		return nil, err
	})
	if err != nil || len(record.List(view(s), &crates)) > 0 {
		t.Errorf("removed: %v", err)
	}
}

// TestTornChunks: without one of its chunks a record cannot be read, until it is there again.
func TestTornChunks(t *testing.T) {
	t.Parallel()

	chunk := func(id string, number int, items ...int) []byte {
		b, err := json.Marshal(crateChunk{id, number, items})
		errtest.None(t, err)
		return record.Compress(b)
	}

	tables := record.NewTables([]record.Any{&crates})
	whole := func() string {
		found := record.Get(tables.View(), &crates, "a")
		if found == nil {
			return fmt.Sprint(tables.Joined()["crates/a"] != nil)
		}
		return fmt.Sprint(found.Items)
	}

	for i, step := range []struct {
		path  string
		value []byte
		ok    bool
		want  string // the items, or whether a join failed
	}{
		{"crates/a/00", chunk("a", 0, 1, 2), true, "false"},
		{"crates/a", []byte(`{"id":"a","items":3}`), true, "true"},
		{"crates/a/01", chunk("a", 1, 3), true, "[1 2 3]"},
		{"crates/a/01", []byte("nonsense"), false, "true"},
		{"crates/a/01", chunk("b", 1, 3), false, "true"},
		{"crates/a/01", chunk("a", 1, 3, 4), true, "true"},
		{"crates/a/01", chunk("a", 1, 4), true, "[1 2 4]"},
		{"crates/a/xx", chunk("a", 1, 4), false, "[1 2 4]"},
		{"crates/a/00", nil, true, "true"},
		{"crates/a", nil, true, "false"},
	} {
		if ref, _ := tables.Subject(step.path); ref.Key != "a" {
			t.Errorf("%s belongs to %q", step.path, ref.Key)
		}

		err := tables.Apply(step.path, step.value, int64(i+1))
		if got := whole(); (err == nil) != step.ok || got != step.want {
			t.Errorf("step %d: %s, %v", i, got, err)
		}
	}
}

// TestChunksGuard: of two writes on one record, one is a conflict, whatever chunks they have.
func TestChunksGuard(t *testing.T) {
	t.Parallel()

	s := recordtest.NewStore(&crates)
	put(t, s, crate{ID: "a", Items: []int{1, 2, 3}})

	first := *record.Get(view(s), &crates, "a")
	put(t, s, crate{ID: "a", Items: []int{0, 2, 3}})

	first.Items = []int{1, 2, 4}

	_, err := record.Replace(t.Context(), s, &crates, "a", first.At, &first)
	if inventory.KindOf(err) != inventory.KindConflict {
		t.Errorf("a write on an older record: %v", err)
	}
}
