// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"testing"
	"time"
)

func TestShortDuration(t *testing.T) {
	t.Parallel()

	for _, want := range []string{
		"0s", "10s", "1m", "10m", "1m10s", "1h", "20h", "1h10m", "1h0m1s", "100h", "1h30m30s", "1.5s", "1m0.5s", "-1h",
		"100ms",
	} {
		d, err := time.ParseDuration(want)
		if got := ShortDuration(d); err != nil || got != want {
			t.Errorf("%s: %s (%v)", want, got, err)
		}
	}
}
