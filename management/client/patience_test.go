// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/cluster/inventory"
)

// TestPatience retries an unavailable daemon with growing delays until the limit.
func TestPatience(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		c := &Client{opt: Options{Patience: time.Minute}}
		unavailable := inventory.Errorf(inventory.KindUnavailable, "no answer")
		p := c.patience()
		began := time.Now()

		for i, want := 1, firstPause; ; i, want = i+1, min(2*want, maxPause) {
			before := time.Now()

			if err := p.wait(t.Context(), unavailable); err != nil {
				break
			}

			if got := time.Since(before); got < want/2 || got > want*3/2+time.Millisecond {
				t.Errorf("delay %d is %s, want %s with a jitter of a half", i, got, want)
			}
		}

		if took := time.Since(began); took < time.Minute || took > time.Minute+2*maxPause {
			t.Errorf("the attempts ended after %s, want a minute", took)
		}

		p.reset()

		if err := p.wait(t.Context(), inventory.Errorf(inventory.KindRefused, "no")); err == nil {
			t.Error("a refused request is retried")
		}

		ctx, cancel := context.WithCancel(t.Context())
		cancel()

		if err := p.wait(ctx, unavailable); err == nil {
			t.Error("a request is retried after its context has ended")
		}
	})
}
