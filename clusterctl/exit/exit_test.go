// SPDX-License-Identifier: Apache-2.0

package exit

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/contiv/cluster/inventory"
)

// TestCode maps every kind of error to its exit code.
func TestCode(t *testing.T) {
	for _, test := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("anything"), 1},
		{inventory.Errorf(inventory.KindInternal, "x"), 1},
		{inventory.Errorf(inventory.KindConflict, "x"), 1},
		{inventory.Errorf(inventory.KindUnsupported, "x"), 1},
		{inventory.Errorf(inventory.KindInvalid, "x"), 2},
		{inventory.Errorf(inventory.KindTooLarge, "x"), 2},
		{Usagef("x"), 2},
		{Errorf(JobFailed, "x"), 3},
		{fmt.Errorf("wrapped: %w", inventory.Errorf(inventory.KindNotFound, "x")), 4},
		{inventory.Errorf(inventory.KindRefused, "x"), 5},
		{inventory.Errorf(inventory.KindUnauthenticated, "x"), 5},
		{inventory.Errorf(inventory.KindForbidden, "x"), 5},
		{inventory.Errorf(inventory.KindPrecondition, "x"), 5},
		{inventory.Errorf(inventory.KindKeyReused, "x"), 5},
		{inventory.Errorf(inventory.KindUnavailable, "x"), 6},
		{ErrInterrupted, 130},
		{fmt.Errorf("wrapped: %w", context.Canceled), 130},
	} {
		if got := Code(test.err); got != test.want {
			t.Errorf("Code(%v) = %d, want %d", test.err, got, test.want)
		}
	}
}
