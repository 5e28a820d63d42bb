// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"testing"
)

// TestAlone: an instance without others keeps a job until it releases it.
func TestAlone(t *testing.T) {
	t.Parallel()

	if !(Alone{}).Leads() {
		t.Error("an instance without others does not lead")
	}

	owned, release, err := Alone{}.Own(t.Context(), "1", 0)
	if err != nil || owned.Err() != nil {
		t.Fatalf("Own: %v, %v", err, owned.Err())
	}
	release()

	if cause := context.Cause(owned); !errors.Is(cause, context.Canceled) {
		t.Errorf("the context ended with %v after the release", cause)
	}
}
