// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"testing"
	"time"
)

// TestWaitCountsNot: a command that failed once and waits for its turn keeps the rest of its time.
func TestWaitCountsNot(t *testing.T) {
	t.Parallel()

	now := time.Now()
	s := checkState{result: CheckResult{Command: true}}

	s.begin(now)
	s.wait(now.Add(10 * time.Second))
	s.wait(now.Add(20 * time.Second))

	if !s.result.Since.IsZero() {
		t.Errorf("its time goes on while it waits: %+v", s)
	}

	s.begin(now.Add(time.Hour))

	if want := now.Add(time.Hour - 10*time.Second); !s.result.Since.Equal(want) {
		t.Errorf("%s, want %s", s.result.Since, want)
	}
}
