// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"slices"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/state"
)

// TestForgetOutsideScope: a request to forget nodes of which the caller does not see all is refused, and what the
// manager does on the others goes on.
func TestForgetOutsideScope(t *testing.T) {
	t.Parallel()

	v := &state.View{}
	v.SetNodes([]*inventory.Node{{Name: "a-1", Group: "worker"}, {Name: "b-1", Group: "master"}}...)

	filter, err := access.Scope{Groups: []string{"worker"}}.Filter()
	errtest.None(t, err)

	var ended []string

	ns := New(Options{
		State: fixedView{view: v}, Audit: &aTrail{}, Yield: func(_ context.Context, _ string, nodes []string) error {
			ended = append(ended, nodes...)
			return nil
		},
	})

	_, err = ns.Forget(t.Context(), access.Caller{Principal: "ann", Scope: filter}, ForgetRequest{
		Nodes: []string{"a-1", "b-1"}, Reason: "x",
	})
	if inventory.KindOf(err) != inventory.KindNotFound || !slices.Equal(ended, []string{"a-1"}) {
		t.Errorf("%v; what was done on %v was ended", err, ended)
	}
}
