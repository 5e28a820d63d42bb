// SPDX-License-Identifier: Apache-2.0

package inventory

import "testing"

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 jobs run", 1: "1 job runs", 2: "2 jobs run"} {
		if got := Count(n, "job runs", "jobs run"); got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
}
