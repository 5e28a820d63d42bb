// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Many events of one kind within a short time become one message to a target. The first
// ones go at once. Each further one is held until the end of a window, and the held
// ones then become one delivery, which names the newest of them. One write stores it, so a
// crash before it leaves all members pending, and one after it none.
const (
	calm      = 5           // events of a kind in calmTime that go one by one
	calmTime  = time.Minute //
	bundleFor = time.Minute // the length of a window
)

// bundles reports whether events of the kind may share a message: those about nodes and
// jobs, of which there can be many.
func bundles(k Kind) bool {
	return strings.HasPrefix(k, "node.") || strings.HasPrefix(k, "job.")
}

func stormKey(d Delivery) string { return d.Target + " " + d.Event.Kind }

// hold sets Held of a new delivery in a storm. before are all deliveries before it, the oldest first.
func (d *Delivery) hold(before []Delivery) {
	recent := 0

	var until time.Time // the end of the newest window

	for _, b := range slices.Backward(before) {
		age := d.Created.Sub(b.Created)
		if age >= calmTime+bundleFor || recent >= calm && !until.IsZero() {
			break
		}
		if b.Target != d.Target || b.Event.Kind != d.Event.Kind || b.Event.Count > 0 {
			continue
		}

		if age < calmTime {
			recent++
		}
		if b.Held.After(until) {
			until = b.Held
		}
	}

	switch {
	case recent < calm:
	case d.Created.Before(until):
		d.Held = until
	default:
		d.Held = d.Created.Add(bundleFor)
	}
}

// bundle returns a delivery for each window that has ended, and marks those that it contains. A window
// with only one is left alone.
func bundle(list []Delivery, now time.Time) (bundles []write) {
	windows := map[string][]int{}

	for i, d := range list {
		if d.isMember() && !d.Held.After(now) {
			key := stormKey(d) + d.Held.String()
			windows[key] = append(windows[key], i)
		}
	}

	for _, window := range windows {
		if len(window) < 2 {
			continue
		}

		members := make([]Delivery, len(window))

		for at, i := range window {
			members[at] = list[i]
			list[i].Status = Bundled
		}

		bundles = append(bundles, write{Delivery: bundleOf(members)})
	}

	return bundles
}

// isMember reports whether the delivery was held to become a part of a bundle, and was not sent alone.
func (d Delivery) isMember() bool {
	return !d.Held.IsZero() && d.Event.Count == 0 && d.Status == Pending && d.Attempts == 0
}

// bundleOf returns the delivery for all members, which are at least two, the oldest first.
func bundleOf(members []Delivery) Delivery {
	first, last := members[0], members[len(members)-1]
	e := first.Event
	e.ID = fmt.Sprintf("%s-bundle-%s", first.Event.ID, first.Target)
	e.Count, e.Time, e.Job = len(members), last.Event.Time, ""

	var names, nodes, results []string

	counts := map[string]int{}

	for _, m := range members {
		name := m.Event.Node
		if name == "" {
			name = "job " + m.Event.Job
		}
		names = appendNew(names, name)
		nodes = appendNew(nodes, m.Event.Nodes...)

		if m.Event.Node != "" {
			nodes = appendNew(nodes, m.Event.Node)
		}

		if to := m.Event.To; to != "" {
			counts[to]++
			results = appendNew(results, to)
		}

		// A value that the members do not share is left out.
		for _, f := range []struct {
			of    *string
			value string
		}{
			{&e.Actor, m.Event.Actor}, {&e.Node, m.Event.Node}, {&e.Group, m.Event.Group}, {&e.From, m.Event.From},
			{&e.To, m.Event.To}, {&e.Verb, m.Event.Verb}, {&e.Rollout, m.Event.Rollout},
		} {
			if *f.of != f.value {
				*f.of = ""
			}
		}
	}

	for i, to := range results {
		results[i] = fmt.Sprintf("%d %s", counts[to], to)
	}

	e.Summary = fmt.Sprintf("%d times %s: %s", len(members), e.Kind, naming(names, len(names)))
	if len(results) > 0 {
		e.Summary += " (" + strings.Join(results, ", ") + ")"
	}

	e.Nodes = nodes[:min(len(nodes), maxNodes)]

	// It is created just after its newest member, so it keeps their place in the order of sending.
	bundle := pending(first.Target, e, last.Created.Add(time.Nanosecond))
	bundle.Held, bundle.Through = first.Held, last.Created

	return bundle
}

// appendNew appends the names that the list does not have.
func appendNew(list []string, names ...string) []string {
	for _, name := range names {
		if !slices.Contains(list, name) {
			list = append(list, name)
		}
	}

	return list
}

// markBundled sets the status of the deliveries that a bundle among them contains: their
// own records stay as they were.
func markBundled(list []Delivery) {
	bundles := map[string][]Delivery{}

	for _, b := range list {
		if b.Event.Count > 0 {
			bundles[stormKey(b)] = append(bundles[stormKey(b)], b)
		}
	}

	for i, d := range list {
		if !d.isMember() {
			continue
		}

		for _, b := range bundles[stormKey(d)] {
			if b.Held.Equal(d.Held) && !d.Created.After(b.Through) {
				list[i].Status = Bundled
			}
		}
	}
}
