// SPDX-License-Identifier: Apache-2.0

package serf

import (
	"testing"
	"time"
)

func TestJoinBackOff(t *testing.T) {
	t.Parallel()

	timing := LAN()
	retry := timing.joinBackOff()

	for range 2 {
		for i, want := 1, timing.JoinMin; i <= 10; i, want = i+1, min(2*want, timing.JoinMax) {
			got := retry.NextBackOff()
			if got < want/2 || got > want*3/2+time.Millisecond {
				t.Errorf("delay %d is %s, want %s with a jitter of a half", i, got, want)
			}
		}

		retry.Reset()
	}
}
