// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
)

// floodTime is how long refusals and changes of one kind are counted together.
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

// A shared entry of refusals names heldTargets targets, and has heldError bytes of the error: the head has all of them.
const heldTargets, heldError = 10, 256

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
	Last  Entry     `json:"last"` // the last of them; of refusals, the last of all
}

// folds bound the entries of each source: the first ones have an entry each, and the others one entry with their
// number. They are not safe for concurrent use.
type folds struct{ strangers, known, changes floods }

type floods struct {
	sources int    // counted apart
	entries uint64 // of each source
	open    map[source]*flood
}

// newFolds returns folds that go on with some floods.
func newFolds(held []*flood) *folds {
	f := &folds{
		strangers: floods{strangerSources, strangerEntries, map[source]*flood{}},
		known:     floods{knownSources, knownEntries, map[source]*flood{}},
		changes:   floods{changeSources, changeEntries, map[source]*flood{}},
	}
	for _, one := range held {
		f.of(one.Last).open[sourceOf(one.Last)] = one
	}

	return f
}

func (f *folds) of(e Entry) *floods {
	switch {
	case e.Result == Done:
		return &f.changes
	case isStranger(e):
		return &f.strangers
	default:
		return &f.known
	}
}

// admits reports whether an entry is one of its own.
func (f *folds) admits(e Entry) bool {
	// The manager's own failures and changes cannot be forced by anybody.
	if e.Via == "" {
		return true
	}

	counted, own := f.of(e), sourceOf(e)
	entries := counted.entries

	if counted.open[own] == nil && len(counted.open) >= counted.sources {
		if e.Result == Done {
			return true
		}

		own, entries = source{}, 0 // all further sources of refusals are one
	}

	one := counted.open[own]
	if one == nil {
		one = &flood{Began: e.Time}
		counted.open[own] = one
	}

	number := max(1, e.Count)
	one.Seen += number

	// What shared an entry already does so again.
	admitted := e.Count == 0 && (one.Seen <= entries ||
		e.Result == Done && one.Held == 0 && len(counted.waiting()) >= changeHeld)

	if e.Result != Done {
		e.Targets, e.Error = e.Targets[:min(len(e.Targets), heldTargets)], inventory.Shorten(e.Error, heldError)
	}
	if !admitted || e.Result != Done {
		one.Last = e
	}
	if !admitted {
		one.Held += number
	}

	return admitted
}

// isStranger reports whether the caller has no credential of its own.
func isStranger(e Entry) bool { return e.Credential == "" || e.Credential == plainHTTP }

// sourceOf returns the source of an entry, with the change if it is one. Every connection has another port, and a
// stranger any name.
func sourceOf(e Entry) source {
	host, _, err := net.SplitHostPort(e.From)
	if err != nil {
		host = e.From
	}
	s := source{via: e.Via, credential: e.Credential, host: host, result: e.Result}
	if !isStranger(e) {
		s.who = e.Who
	}
	if e.Result == Done {
		s.verb, s.targets = e.Verb, strings.Join(e.Targets, "\n")
	}

	return s
}

// end ends the counts that began before a time, and returns those that have entries without one of their own.
func (f *folds) end(before time.Time) (ended []*flood) {
	for _, counted := range []floods{f.strangers, f.known, f.changes} {
		for own, one := range counted.open {
			if one.Began.Before(before) {
				delete(counted.open, own)

				if one.Held > 0 {
					ended = append(ended, one)
				}
			}
		}
	}

	slices.SortFunc(ended, func(a, b *flood) int { return a.Began.Compare(b.Began) })

	return ended
}

// kept returns what another instance needs to go on: all refusals, and the changes that share an entry.
func (f *folds) kept() []*flood {
	return slices.Concat(
		slices.Collect(maps.Values(f.strangers.open)), slices.Collect(maps.Values(f.known.open)), f.changes.waiting())
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

// folded returns the last of the entries that have none of their own, with their number.
func (f *flood) folded() Entry {
	e := f.Last
	if e.Count = f.Held; f.Held == 1 {
		e.Count = 0
	}
	return e
}

// entry returns the entry of those that have none of their own.
func (f *flood) entry() Entry {
	e := f.folded()
	if e.Count == 0 {
		return e
	}

	what := "refusals"
	if e.Result == Done {
		what = "changes"
	}

	e.Reason = strings.TrimSpace(fmt.Sprintf("the last of %d %s since %s %s",
		e.Count, what, f.Began.UTC().Format(time.RFC3339), e.Reason))

	return e
}
