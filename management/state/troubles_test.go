// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestTroubles: the worst of each kind is told, if it was in the time asked about.
func TestTroubles(t *testing.T) {
	t.Parallel()

	noon := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

	var some Troubles

	some.Probed(900*time.Millisecond, noon.Add(time.Second)) // no trouble
	some.Probed(3*time.Second, noon.Add(5*time.Second))
	some.Probed(2*time.Second, noon.Add(9*time.Second))
	some.note(noTurn, 20*time.Second, noon.Add(time.Minute))

	for _, c := range []struct {
		from, to time.Duration
		want     []string
	}{
		{0, 1500 * time.Millisecond, nil},
		{0, 10 * time.Second, []string{"its store took 3s to answer, until 2026-11-28T12:00:05Z"}},
		{6 * time.Second, 50 * time.Second, []string{
			"its store took 2s to answer, until 2026-11-28T12:00:09Z",
			"its process got no processor time for 20s, until 2026-11-28T12:01:00Z",
		}},
		{2 * time.Minute, 3 * time.Minute, nil},
	} {
		if got := some.During(noon.Add(c.from), noon.Add(c.to)); !slices.Equal(got, c.want) {
			t.Errorf("from %s to %s: %q, want %q", c.from, c.to, got, c.want)
		}
	}

	standing := ""
	some.Stand(func() string { return standing })

	for _, want := range [][]string{nil, {"its certificate ends"}} {
		if got := some.During(noon.Add(2*time.Minute), noon.Add(3*time.Minute)); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		standing = "its certificate ends"
	}

	var none *Troubles
	if got := none.During(noon, noon.Add(time.Hour)); got != nil {
		t.Errorf("%q", got)
	}
}

// TestTroublesWatch: a process that has its turns has no trouble.
func TestTroublesWatch(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		var some Troubles

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()

		begun := time.Now()
		some.Watch(ctx)

		if got := some.During(begun, time.Now()); got != nil {
			t.Errorf("%q", got)
		}
	})
}
