// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"
	"net"
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

// changeEntries bounds the entries of a caller who makes the same change to one thing again and again, and
// changeSources the things that count apart; a change to a further one has an entry of its own.
const changeSources, changeEntries = 100_000, 20

// plainHTTP is the credential of everybody that reaches the listener of that name. On the socket, the kernel proves
// the account.
const plainHTTP = "plain_http"

// source is what counts as one origin of entries.
type source struct{ via, credential, who, host, result, verb, targets string }

// flood counts the entries of one source.
type flood struct {
	began time.Time
	seen  uint64
	held  uint64 // without an entry of their own
	last  Entry  // the last of them
}

// floods bounds the entries of sources: the first ones of each have an entry each, and the others one
// entry with their number.
type floods struct {
	sources int    // counted apart; more share one count, or changes are not bounded
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

	own, entries := sourceOf(e), f.entries
	if f.changes {
		own.verb, own.targets = e.Verb, strings.Join(e.Targets, "\n")
	}

	if f.open[own] == nil && len(f.open) >= f.sources {
		if f.changes {
			return true
		}

		own, entries = source{}, 0
	}

	one := f.open[own]
	if one == nil {
		one = &flood{began: e.Time}
		f.open[own] = one
	}

	one.seen++
	if one.seen <= entries {
		return true
	}

	one.held++
	one.last = e
	f.changed = true

	return false
}

// isStranger reports whether the caller has no credential of its own.
func isStranger(e Entry) bool { return e.Credential == "" || e.Credential == plainHTTP }

// sourceOf returns the source of an entry. Every connection has another port, and a stranger any name.
func sourceOf(e Entry) source {
	host, _, err := net.SplitHostPort(e.From)
	if err != nil {
		host = e.From
	}
	s := source{via: e.Via, credential: e.Credential, host: host, result: e.Result}
	if !isStranger(e) {
		s.who = e.Who
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
		if !one.began.Before(before) {
			continue
		}

		delete(f.open, own)

		if one.held > 0 {
			ended, f.changed = append(ended, one.entry(f.changes)), true
		}
	}

	return ended
}

// held returns the entries that wait for the end of their counts, and whether they have changed since the last call.
func (f *floods) held() (entries []Entry, changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()

	for _, one := range f.open {
		if one.held > 0 {
			entries = append(entries, one.entry(f.changes))
		}
	}

	changed, f.changed = f.changed, false

	return entries, changed
}

// entry returns the entry for those that have none of their own, with the time of the last of them.
func (f *flood) entry(changes bool) Entry {
	e := f.last
	if f.held == 1 {
		return e
	}

	what := "refusals"
	if changes {
		what = "changes"
	}

	e.Count = f.held
	e.Reason = strings.TrimSpace(fmt.Sprintf("the last of %d %s since %s %s",
		f.held, what, f.began.UTC().Format(time.RFC3339), e.Reason))

	return e
}
