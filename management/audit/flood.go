// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// floodTime is how long refusals of one kind are counted together.
const floodTime = 10 * time.Minute

// The bounds on the refusals within floodTime. A caller without a credential of its
// own can be anybody, so that all of them together make few entries.
const (
	strangerSources, strangerEntries = 32, 3
	knownSources, knownEntries       = 256, 50
)

// changeEntries bounds the entries of a caller who makes the same change to one thing again and again, changeSources
// the things that count apart, and changeHeld those that share an entry at a time; a change to a further one has an
// entry of its own.
const changeSources, changeHeld, changeEntries = 100_000, 256, 20

// plainHTTP is the credential of everybody that reaches the listener of that name. On the socket, the kernel proves
// the account.
const plainHTTP = "plain_http"

// source is what counts as one origin of entries.
type source struct{ via, credential, who, host, result, verb, targets string }

// flood counts the entries of one source.
type flood struct {
	Began time.Time `json:"began"`
	Seen  uint64    `json:"seen"`
	Held  uint64    `json:"held"` // without an entry of their own
	Last  Entry     `json:"last"` // the last of them
}

// floods bounds the entries of sources: the first ones of each have an entry each, and the others one
// entry with their number.
type floods struct {
	sources int    // counted apart; more share one count, or changes are not bounded
	sharing int    // that share an entry at a time, of changes
	entries uint64 // of each source
	changes bool   // not refusals

	mu      sync.Mutex
	open    map[source]*flood
	changed bool // since the last call of held
}

// admits reports whether an entry is one of its own.
func (f *floods) admits(e Entry) bool {
	f.mu.Lock()
	defer f.mu.Unlock()

	own, entries := f.sourceOf(e), f.entries
	if f.open[own] == nil && len(f.open) >= f.sources {
		if f.changes {
			return true
		}

		own, entries = source{}, 0
	}

	one := f.open[own]
	if one == nil {
		one = &flood{Began: e.Time}
		f.open[own] = one
	}

	one.Seen++
	if one.Seen <= entries || f.changes && one.Held == 0 && len(f.waiting()) >= f.sharing {
		return true
	}

	one.Held++
	one.Last = e
	f.changed = true

	return false
}

// isStranger reports whether the caller has no credential of its own.
func isStranger(e Entry) bool { return e.Credential == "" || e.Credential == plainHTTP }

// sourceOf returns the source of an entry, with the change if changes count. Every connection has another port, and a
// stranger any name.
func (f *floods) sourceOf(e Entry) source {
	host, _, err := net.SplitHostPort(e.From)
	if err != nil {
		host = e.From
	}
	s := source{via: e.Via, credential: e.Credential, host: host, result: e.Result}
	if !isStranger(e) {
		s.who = e.Who
	}
	if f.changes {
		s.verb, s.targets = e.Verb, strings.Join(e.Targets, "\n")
	}

	return s
}

// end ends the counts that began before a time, and returns an entry for each of
// them that has some without one of their own.
func (f *floods) end(before time.Time) []Entry {
	f.mu.Lock()
	defer f.mu.Unlock()

	var ended []Entry

	for own, one := range f.open {
		if !one.Began.Before(before) {
			continue
		}

		delete(f.open, own)

		if one.Held > 0 {
			ended, f.changed = append(ended, one.entry(f.changes)), true
		}
	}

	return ended
}

// held returns the entries that wait for the end of their counts, and whether they have changed since the last call.
func (f *floods) held() (entries []Entry, changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()

	for _, one := range f.waiting() {
		entries = append(entries, one.entry(f.changes))
	}

	changed, f.changed = f.changed, false

	return entries, changed
}

// waiting returns the floods that have entries without one of their own, the oldest first.
func (f *floods) waiting() (list []*flood) {
	for _, one := range f.open {
		if one.Held > 0 {
			list = append(list, one)
		}
	}

	slices.SortFunc(list, func(a, b *flood) int { return a.Began.Compare(b.Began) })

	return list
}

// entry returns the entry for those that have none of their own, with the time of the last of them.
func (f *flood) entry(changes bool) Entry {
	e := f.Last
	if f.Held == 1 {
		return e
	}

	what := "refusals"
	if changes {
		what = "changes"
	}

	e.Count = f.Held
	e.Reason = strings.TrimSpace(fmt.Sprintf("the last of %d %s since %s %s",
		f.Held, what, f.Began.UTC().Format(time.RFC3339), e.Reason))

	return e
}
