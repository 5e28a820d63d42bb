// SPDX-License-Identifier: Apache-2.0

package state

import (
	"sync"
	"time"
)

// maxOutages is the number of outages that are kept.
const maxOutages = 64

// Outages are the times in which the view was stale, as this process saw them: deadlines do not count them. A nil one
// has none. All methods may be called at once.
type Outages struct {
	mu    sync.Mutex
	ended [][2]time.Time
	since time.Time // of the one that lasts; zero: none does
}

// Note notes whether the view is stale now.
func (o *Outages) Note(stale bool, now time.Time) {
	if o == nil {
		return
	}

	o.mu.Lock()
	defer o.mu.Unlock()

	switch {
	case stale && o.since.IsZero():
		o.since = now
	case !stale && !o.since.IsZero():
		o.ended = append(o.ended, [2]time.Time{o.since, now})
		o.ended = o.ended[max(0, len(o.ended)-maxOutages):]
		o.since = time.Time{}
	}
}

// Between returns the time without the store between two times.
func (o *Outages) Between(from, to time.Time) time.Duration {
	if o == nil {
		return 0
	}

	o.mu.Lock()
	defer o.mu.Unlock()

	sum := time.Duration(0)
	add := func(begin, end time.Time) {
		if begin.Before(from) {
			begin = from
		}
		if end.After(to) {
			end = to
		}
		sum += max(0, end.Sub(begin))
	}

	for _, e := range o.ended {
		add(e[0], e[1])
	}

	if !o.since.IsZero() {
		add(o.since, to)
	}

	return sum
}
