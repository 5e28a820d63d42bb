// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"testing"
	"time"
)

// TestOnProbe checks that each probe is reported with its duration.
func TestOnProbe(t *testing.T) {
	t.Parallel()
	s := store(t)
	probes := make(chan time.Duration, 10)
	s.OnProbe(func(took time.Duration, err error) {
		if err == nil {
			probes <- took
		}
	})
	s.view.probe(within(t, patience))

	if took := <-probes; took <= 0 {
		t.Errorf("the probe took %s", took)
	}

	if s.Staleness() <= 0 {
		t.Errorf("staleness %s", s.Staleness())
	}
}
