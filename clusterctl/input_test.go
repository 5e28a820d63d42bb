// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"testing"
	"time"
)

func TestParseSince(t *testing.T) {
	t.Parallel()

	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.FixedZone("", 3600))
	for text, want := range map[string]time.Time{
		"10m":                       now.Add(-10 * time.Minute),
		"1h30m":                     now.Add(-90 * time.Minute),
		"2026-01-02T14:00:00Z":      time.Date(2026, 1, 2, 14, 0, 0, 0, time.UTC),
		"2026-01-02T14:00:00+02:00": time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC),
		"2026-01-02 15:00:00":       time.Date(2026, 1, 2, 15, 0, 0, 0, now.Location()),
	} {
		if got, err := parseTime("since", text, now); err != nil || !got.Equal(want) {
			t.Errorf("parseTime(%q) = %v, %v, want %v", text, got, err, want)
		}
	}

	for _, text := range []string{"", "0s", "-10m", "10", "yesterday", "2026-01-02", "2026-13-02T14:00:00Z"} {
		if got, err := parseTime("since", text, now); err == nil {
			t.Errorf("parseTime(%q) = %v, want an error", text, got)
		}
	}
}
