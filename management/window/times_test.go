// SPDX-License-Identifier: Apache-2.0

package window

import (
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory/errtest"
)

// TestTimes: the time before and the time after, across a change of the clocks.
func TestTimes(t *testing.T) {
	t.Parallel()

	for _, c := range []struct{ cron, zone, at, last, next string }{
		{"0 3 * * *", "", "2026-03-01T02:59:59Z", "2026-02-28T03:00:00Z", "2026-03-01T03:00:00Z"},
		{"0 3 * * *", "", "2026-03-01T03:00:00Z", "2026-03-01T03:00:00Z", "2026-03-02T03:00:00Z"},
		{"* 3 * * *", "", "2026-03-01T02:59:00Z", "2026-02-28T03:59:00Z", "2026-03-01T03:00:00Z"},
		{"0 0 29 2 *", "", "2027-01-01T00:00:00Z", "2024-02-29T00:00:00Z", "2028-02-29T00:00:00Z"},
		// On 29 March 2026 the clocks of Berlin leave out the hour from 2.
		{"30 2 * * *", "Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"},
	} {
		times, err := ParseTimes(c.cron, c.zone)
		errtest.None(t, err)

		at, _ := time.Parse(time.RFC3339, c.at)
		if got := times.Last(at).UTC().Format(time.RFC3339); got != c.last {
			t.Errorf("%s before %s is %s, want %s", times, c.at, got, c.last)
		}
		if got := times.Next(at).UTC().Format(time.RFC3339); got != c.next {
			t.Errorf("%s after %s is %s, want %s", times, c.at, got, c.next)
		}
	}

	if (Times{}).Last(time.Now()) != (time.Time{}) {
		t.Error("the zero value has a time")
	}
}

// TestBadTimes refuses an expression that does not parse, one that never comes, and an unknown
// time zone.
func TestBadTimes(t *testing.T) {
	t.Parallel()

	for _, c := range []struct{ cron, zone, want string }{
		{"0 3 * *", "", "is not a cron expression"},
		{"0 25 * * *", "", "field 2, the hour"},
		{"@daily", "", "is not a cron expression"},
		{"0 3 30 2 *", "", "never comes: no year has such a day"},
		{"0 3 * * *", "Europe/Nowhere", `"Europe/Nowhere" is not in the IANA database`},
		{"0 3 * * *", "Local", `"Local" is not in the IANA database`},
	} {
		times, err := ParseTimes(c.cron, c.zone)
		if err == nil {
			err = times.Check()
		}

		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v, want %q", c.cron, c.zone, err, c.want)
		}
	}
}

func TestShortest(t *testing.T) {
	t.Parallel()

	for cron, want := range map[string]time.Duration{
		"0 3 * * *": 24 * time.Hour, "0 3,5 * * *": 2 * time.Hour, "* * * * *": time.Minute,
	} {
		times, err := ParseTimes(cron, "")
		if err != nil || times.Shortest() != want {
			t.Errorf("%s: %s, want %s, %v", cron, times.Shortest(), want, err)
		}
	}
}
