// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"testing"
	"time"
)

// TestSizes requests the sizes from an endpoint that answers and one that does not.
func TestSizes(t *testing.T) {
	t.Parallel()
	s := store(t)
	const unreachable = "unix:///nonexistent/client.sock"
	s.client.SetEndpoints(shared.Endpoint(), unreachable)

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()

	sizes := s.Sizes(ctx)
	if len(sizes) != 2 || sizes[unreachable].Err == nil {
		t.Errorf("%+v", sizes)
	}

	s.client.SetEndpoints(shared.Endpoint())

	got := s.Sizes(within(t, patience))[shared.Endpoint()]
	if got.Err != nil || got.InUse <= 0 || got.File < got.InUse || got.Quota <= got.File {
		t.Errorf("%+v", got)
	}
}

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
