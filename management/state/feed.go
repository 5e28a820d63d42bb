// SPDX-License-Identifier: Apache-2.0

package state

import (
	"sort"
	"sync"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/record"
)

// Config is the subject of changes of the configuration, of which there is one.
var Config = record.Ref{Kind: "config"}

// Change is the change of one record in the View, from its Revision on. The
// values it points to are immutable.
type Change struct {
	record.Ref // or Config

	Revision int64
	// Record and Former are the record after the change and before it, as far as record.Tables.Change
	// returns them. Otherwise the record is in the view: it may be large, and change often. The change of
	// the connection of a node is one of the node, which has the same record on both sides.
	Record, Former any

	// Size is the approximate size in bytes, for the limit of the feed.
	Size int
}

// Changes is a part of the feed.
type Changes struct {
	// List is in the order of revisions. It ends with the end of a revision.
	List []Change
	// Revision is the end of the part: List is complete up to it.
	Revision int64
	// More: the feed has changes after Revision.
	More bool
	// Stale: the store has not answered for 3 seconds.
	Stale bool
	// Woken is closed by the next change, and when Stale changes.
	Woken <-chan struct{}
}

// Feed buffers the newest changes of the view for watchers. Each watcher reads at
// its own speed and delays neither the others nor the view. All methods may be
// called at once, and none blocks.
type Feed struct {
	maxCount, maxBytes int

	mu       sync.Mutex
	changes  []Change // the oldest first; those before head are dropped
	head     int
	bytes    int
	floor    int64 // every change after this revision, up to revision, is kept
	revision int64
	stale    bool
	woken    chan struct{}
}

// NewFeed returns a Feed that begins after the revision and keeps at most so
// many changes and, about, bytes.
func NewFeed(revision int64, count, bytes int) *Feed {
	return &Feed{maxCount: count, maxBytes: bytes, floor: revision, revision: revision, woken: make(chan struct{})}
}

// Publish adds changes, in the order of their revisions, and completes the feed
// up to the revision. It skips changes that were published before.
func (f *Feed) Publish(revision int64, changes []Change) {
	f.mu.Lock()
	defer f.mu.Unlock()

	news := false
	for _, c := range changes {
		if c.Revision > f.revision {
			f.changes, f.bytes, news = append(f.changes, c), f.bytes+c.Size, true
		}
	}

	// The revision grows without changes, too: the store holds keys outside the feed.
	f.revision = max(f.revision, revision)
	if n := len(f.changes); n > 0 {
		f.revision = max(f.revision, f.changes[n-1].Revision)
	}

	f.trim()

	if news {
		f.wake()
	}
}

// trim drops the oldest changes, whole revisions at a time, until the rest is
// within the limits.
func (f *Feed) trim() {
	for f.head < len(f.changes) && (len(f.changes)-f.head > f.maxCount || f.bytes > f.maxBytes) {
		// Half a revision would be an inconsistent state.
		f.floor = f.changes[f.head].Revision
		for f.head < len(f.changes) && f.changes[f.head].Revision == f.floor {
			f.bytes -= f.changes[f.head].Size
			f.changes[f.head] = Change{}
			f.head++
		}
	}

	// Copy only after half of the list is dropped: amortized, each change moves once.
	if f.head > len(f.changes)/2 {
		n := copy(f.changes, f.changes[f.head:])
		clear(f.changes[n:])
		f.changes, f.head = f.changes[:n], 0
	}
}

func (f *Feed) wake() {
	close(f.woken)
	f.woken = make(chan struct{})
}

// SetStale records whether the store has stopped answering.
func (f *Feed) SetStale(stale bool) {
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.stale != stale {
		f.stale = stale
		f.wake()
	}
}

// Since returns the changes after the revision: about limit changes, and whole
// revisions. It returns KindExpired if some of them were dropped. A revision in
// the future has no changes.
func (f *Feed) Since(revision int64, limit int) (Changes, error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	if revision < f.floor {
		return Changes{}, inventory.Errorf(inventory.KindExpired,
			"the changes after revision %d are no longer kept; the oldest is after %d", revision, f.floor).
			Do("begin anew with the present state: leave the revision out")
	}

	kept := f.changes[f.head:]
	first := sort.Search(len(kept), func(i int) bool { return kept[i].Revision > revision })

	// Do not split a revision at the limit.
	last := min(first+limit, len(kept))
	for last > first && last < len(kept) && kept[last].Revision == kept[last-1].Revision {
		last++
	}

	out := Changes{
		List:     append([]Change(nil), kept[first:last]...),
		Revision: f.revision,
		More:     last < len(kept),
		Stale:    f.stale,
		Woken:    f.woken,
	}
	if out.More {
		out.Revision = kept[last-1].Revision
	}
	return out, nil
}
