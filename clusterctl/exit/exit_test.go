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

// TestRemedy: a command that only shows something says for what, and a command that
// carries the remedy out stands alone.
func TestRemedy(t *testing.T) {
	const program = "clusterctl -u x"

	one := "web-1"

	for want, a := range map[string]inventory.Action{
		"to list the nodes: clusterctl -u x nodes get":                 inventory.ListNodes(),
		"to choose from the nodes: clusterctl -u x nodes get":          inventory.Submit(inventory.VerbCommission),
		"to see its settings: clusterctl -u x nodes get web-1 -o long": inventory.SetConnection(one),
		"clusterctl -u x nodes commission web-1":                       inventory.Submit(inventory.VerbCommission, one),
		"clusterctl -u x nodes trust web-1":                            inventory.TrustHostKey(one),
		"clusterctl -u x discover 192.0.2.1":                           inventory.Discover("192.0.2.1"),
		"clusterctl -u x job list":                                     inventory.ListJobs(),
	} {
		if got := Remedy(program, "in words", []inventory.Action{a}); got != "in words\n"+want {
			t.Errorf("%s: %q, want %q", a, got, want)
		}
	}

	if got := Remedy(program, "", nil); got != "" {
		t.Errorf("no remedy is %q", got)
	}
}
