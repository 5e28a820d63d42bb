// SPDX-License-Identifier: Apache-2.0

package state

import (
	"sort"
	"sync"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
)

// ChangeKind is what a change is about.
type ChangeKind string

// The kinds of change.
const (
	ChangeNodes  ChangeKind = "nodes"
	ChangeJobs   ChangeKind = "jobs"
	ChangeVars   ChangeKind = "vars"
	ChangeConfig ChangeKind = "config" // the overlay
)

// Change is one thing that a View shows differently from some revision on. What
// it points to never changes.
type Change struct {
	Revision int64
	Kind     ChangeKind
	Name     string // of the node, the id of the job, the scope of variables

	// Node is the node as it counts now, and Was as it counted before. nil: it
	// is gone, or was not there.
	Node, Was  *inventory.Node
	Connection *configuration.Connection // what is set for Node
	Job        *job.Job                  // nil: it is gone
	Vars       configuration.Vars        // nil: none are set

	// Size is about how many bytes it takes, for the bound of what is kept.
	Size int
}

// Changes are what is different after some revision.
type Changes struct {
	// List is in the order of revisions. It ends with the end of a revision.
	List []Change
	// Revision is how far they reach: there is no further change up to it.
	Revision int64
	// More: there are changes after Revision already.
	More bool
	// Stale: the store has said nothing for 3 seconds.
	Stale bool
	// Woken is closed when there is something new: a change, or another Stale.
	Woken <-chan struct{}
}

// Feed keeps the newest changes of the view for those who watch it: each reads
// at its own speed, and none holds up another or the view. All methods may be
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

// Publish adds changes, in the order of their revisions, and says that there
// are no others up to the revision. What was published before is passed over.
func (f *Feed) Publish(revision int64, changes []Change) {
	f.mu.Lock()
	defer f.mu.Unlock()

	news := false
	for _, c := range changes {
		if c.Revision > f.revision {
			f.changes, f.bytes, news = append(f.changes, c), f.bytes+c.Size, true
		}
	}

	f.revision = max(f.revision, revision)
	if n := len(f.changes); n > 0 {
		f.revision = max(f.revision, f.changes[n-1].Revision)
	}

	f.trim()

	if news {
		f.wake()
	}
}

// trim drops the oldest changes, whole revisions at a time, until what is left
// is within the bounds.
func (f *Feed) trim() {
	for f.head < len(f.changes) && (len(f.changes)-f.head > f.maxCount || f.bytes > f.maxBytes) {
		f.floor = f.changes[f.head].Revision
		for f.head < len(f.changes) && f.changes[f.head].Revision == f.floor {
			f.bytes -= f.changes[f.head].Size
			f.changes[f.head] = Change{}
			f.head++
		}
	}

	if f.head > len(f.changes)/2 { // seldom enough to cost nothing
		n := copy(f.changes, f.changes[f.head:])
		clear(f.changes[n:])
		f.changes, f.head = f.changes[:n], 0
	}
}

func (f *Feed) wake() {
	close(f.woken)
	f.woken = make(chan struct{})
}

// SetStale says whether the store is silent.
func (f *Feed) SetStale(stale bool) {
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.stale != stale {
		f.stale = stale
		f.wake()
	}
}

// Since returns what changed after the revision: about limit changes at most,
// and whole revisions. It is KindExpired where not everything that did is still
// kept. A revision in the future has no changes.
func (f *Feed) Since(revision int64, limit int) (Changes, error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	if revision < f.floor {
		return Changes{}, inventory.Errorf(inventory.KindExpired,
			"what changed after revision %d is no longer kept; the oldest is after %d", revision, f.floor).
			Do("begin anew with the present state: leave the revision out")
	}

	kept := f.changes[f.head:]
	first := sort.Search(len(kept), func(i int) bool { return kept[i].Revision > revision })

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
