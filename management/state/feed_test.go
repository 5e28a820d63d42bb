// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
)

func changes(revisions ...int64) []Change {
	var out []Change
	for i, r := range revisions {
		out = append(out, Change{Ref: record.Ref{Kind: job.Nodes.Name, Key: fmt.Sprint(i)}, Revision: r, Size: 10})
	}

	return out
}

func revisions(list []Change) []int64 {
	var out []int64
	for _, c := range list {
		out = append(out, c.Revision)
	}

	return out
}

func TestFeedTellsWholeRevisions(t *testing.T) {
	t.Parallel()
	f := NewFeed(10, 100, 1000)
	f.Publish(20, changes(11, 13, 13, 13, 15))

	for _, row := range []struct {
		since    int64
		limit    int
		want     []int64
		revision int64
		more     bool
	}{
		{10, 100, []int64{11, 13, 13, 13, 15}, 20, false},
		{10, 1, []int64{11}, 11, true},
		{10, 2, []int64{11, 13, 13, 13}, 13, true}, // 13 is not split
		{11, 4, []int64{13, 13, 13, 15}, 20, false},
		{12, 100, []int64{13, 13, 13, 15}, 20, false},
		{13, 1, []int64{15}, 20, false},
		{15, 1, nil, 20, false},
		{25, 1, nil, 20, false}, // the future
	} {
		got, err := f.Since(row.since, row.limit)
		if err != nil || !slices.Equal(revisions(got.List), row.want) || got.Revision != row.revision ||
			got.More != row.more {
			t.Errorf(
				"since %d limit %d: %v, revision %d, more %t, %v; want %v, %d, %t",
				row.since,
				row.limit,
				revisions(got.List),
				got.Revision,
				got.More,
				err,
				row.want,
				row.revision,
				row.more,
			)
		}
	}

	if _, err := f.Since(9, 1); inventory.KindOf(err) != inventory.KindExpired {
		t.Errorf("before its beginning: %v", err)
	}
}

func TestFeedPassesOverWhatItHas(t *testing.T) {
	t.Parallel()
	f := NewFeed(10, 100, 1000)
	f.Publish(12, changes(10, 11, 12))
	f.Publish(12, changes(11, 12))
	f.Publish(11, nil)

	got, err := f.Since(10, 100)
	if err != nil || !slices.Equal(revisions(got.List), []int64{11, 12}) || got.Revision != 12 {
		t.Errorf("%v %d %v", revisions(got.List), got.Revision, err)
	}
}

func TestFeedWakes(t *testing.T) {
	t.Parallel()
	f := NewFeed(10, 100, 1000)

	woken := func(do func()) bool {
		c, err := f.Since(f.revision, 1)
		if err != nil {
			t.Fatal(err)
		}

		do()

		select {
		case <-c.Woken:
			return true
		default:
			return false
		}
	}
	for _, row := range []struct {
		what string
		do   func()
		want bool
	}{
		{"a change", func() { f.Publish(11, changes(11)) }, true},
		{"a revision without changes", func() { f.Publish(12, nil) }, false},
		{"silence", func() { f.SetStale(true) }, true},
		{"silence again", func() { f.SetStale(true) }, false},
		{"an end of silence", func() { f.SetStale(false) }, true},
	} {
		if got := woken(row.do); got != row.want {
			t.Errorf("%s: woken %t", row.what, got)
		}
	}
}

// TestFeedIsBounded compares the feed with a list of everything: whatever it
// still answers is whole, and it never keeps more than it may.
func TestFeedIsBounded(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	f := NewFeed(0, 50, 600)
	var all []Change

	revision := int64(0)
	for range 500 {
		var add []Change
		for range r.IntN(4) {
			revision += int64(1 + r.IntN(3))
			for range 1 + r.IntN(5) {
				ref := record.Ref{Key: fmt.Sprint(len(all) + len(add))}
				add = append(add, Change{Ref: ref, Revision: revision, Size: r.IntN(40)})
			}
		}

		all = append(all, add...)
		f.Publish(revision, add)

		if kept := len(f.changes) - f.head; kept > 50 || f.bytes > 600 || f.bytes < 0 || len(f.changes) > 200 {
			t.Fatalf("it keeps %d changes, %d bytes, in a list of %d", kept, f.bytes, len(f.changes))
		}

		for _, since := range []int64{revision, revision - int64(r.IntN(30)), revision - int64(r.IntN(200)), 0} {
			got, err := f.Since(since, 1000)

			want := all[slices.IndexFunc(append(slices.Clone(all), Change{
				Revision: since + 1,
			}), func(c Change) bool { return c.Revision > since }):]
			switch {
			case err != nil && since >= f.floor:
				t.Fatalf("since %d, floor %d: %v", since, f.floor, err)
			case err == nil && !slices.EqualFunc(got.List, want, func(a, b Change) bool { return a.Key == b.Key }):
				t.Fatalf("since %d, floor %d: %v, want %v", since, f.floor, revisions(got.List), revisions(want))
			}
		}
	}

	if f.floor == 0 {
		t.Error("nothing was ever dropped")
	}

	// A single revision that is too large is not kept, and not told in part.
	var large []Change
	for range 60 {
		large = append(large, Change{Revision: revision + 1, Size: 1})
	}

	f.Publish(revision+1, large)

	if _, err := f.Since(revision, 1000); inventory.KindOf(err) != inventory.KindExpired {
		t.Errorf("a revision that is too large: %v", err)
	}

	if got, err := f.Since(revision+1, 1000); err != nil || len(got.List) > 0 {
		t.Errorf("after a revision that is too large: %v %v", got.List, err)
	}
}
