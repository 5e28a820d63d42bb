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

// source is what counts as one origin of refusals.
type source struct{ via, credential, host, result string }

// flood counts the refusals of one source.
type flood struct {
	began time.Time
	seen  uint64
	held  uint64 // without an entry of their own
	last  Entry  // the last of them
}

// floods bounds the entries about refusals: the first ones of each source have an
// entry each, and the others one entry with their number.
type floods struct {
	sources int    // counted apart; more share one count
	entries uint64 // of each source

	mu   sync.Mutex
	open map[source]*flood
}

// admits reports whether a refusal gets an entry of its own.
func (f *floods) admits(e Entry) bool {
	f.mu.Lock()
	defer f.mu.Unlock()

	own, entries := sourceOf(e), f.entries
	if f.open[own] == nil && len(f.open) >= f.sources {
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

	return false
}

// sourceOf returns the source of a refusal. Every connection has another port.
func sourceOf(e Entry) source {
	host, _, err := net.SplitHostPort(e.From)
	if err != nil {
		host = e.From
	}

	return source{via: e.Via, credential: e.Credential, host: host, result: e.Result}
}

// end ends the counts that began before a time, and returns an entry for each of
// them that has refusals without one.
func (f *floods) end(before, now time.Time) []Entry {
	f.mu.Lock()
	defer f.mu.Unlock()

	var ended []Entry

	for own, one := range f.open {
		if !one.began.Before(before) {
			continue
		}

		delete(f.open, own)

		if one.held == 0 {
			continue
		}

		e := one.last
		if one.held > 1 {
			e.Count = one.held
			e.Reason = strings.TrimSpace(fmt.Sprintf("the last of %d refusals since %s %s",
				one.held, one.began.UTC().Format(time.RFC3339), e.Reason))
		}

		e.Time = now
		ended = append(ended, e)
	}

	return ended
}
