// SPDX-License-Identifier: Apache-2.0

package state

import (
	"testing"
	"time"
)

// TestOutages counts, second by second, in which of them the store was away, and expects the same of every span.
func TestOutages(t *testing.T) {
	t.Parallel()

	away := "..###...#....####"
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(second int) time.Time { return begin.Add(time.Duration(second) * time.Second) }

	for now := range len(away) {
		var o Outages
		for second := range now + 1 {
			o.Note(away[second] == '#', at(second))
			o.Note(away[second] == '#', at(second)) // again
		}

		for from := range now + 1 {
			for to := from; to <= now; to++ {
				want := 0
				for second := from; second < to; second++ {
					if away[second] == '#' {
						want++
					}
				}

				if got := o.Between(at(from), at(to)); got != time.Duration(want)*time.Second {
					t.Errorf("at %d, from %d to %d: %s, want %d s", now, from, to, got, want)
				}
			}
		}
	}

	var none *Outages
	if none.Note(true, begin); none.Between(begin, at(9)) != 0 {
		t.Error("an outage of nothing")
	}
}
