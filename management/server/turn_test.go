// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// testsPolicies tests a policy with the inventory of today, with given ones, and with wrong
// ones.
func testsPolicies(t *testing.T, c *client.Client) {
	t.Helper()

	ctx, at := t.Context(), time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

	tested := must[api.PolicyTested](t)(c.TestPolicy(ctx, "returns", api.PolicyTest{}))
	if tested.Policy != "returns" || len(tested.Outlooks) != 1 || tested.Outlooks[0].Message != "none is given" {
		t.Errorf("%+v", tested)
	}

	given := []api.PolicyTestNode{{
		Name: "rack-1-x", Status: "Unallocated", State: "Discovered", Created: &at, Updated: &at,
	}}
	tested = must[api.PolicyTested](t)(c.TestPolicy(ctx, "returns", api.PolicyTest{Nodes: &given}))

	if o := tested.Outlooks[0]; tested.Nodes != 1 || o.Node != "rack-1-x" || o.Message != "rack-1 x" || !o.Now ||
		o.Action != "verify" || !o.Until.Equal(at) {
		t.Errorf("%+v", tested)
	}

	if r := tested.Roles; len(r) != 1 || r[0].Notes[0] != at.String() {
		t.Errorf("%+v", r)
	}

	for _, n := range []api.PolicyTestNode{
		{Name: "", Status: "Unallocated", State: "Discovered"},
		{Name: "x-", Status: "Unallocated", State: "Discovered"},
		{Name: "x-1", Status: "New", State: "Discovered"},
		{Name: "x-1", Status: "Unallocated", State: "here"},
		{Name: "x-1", Status: "Unallocated", State: "Discovered", PrevStatus: "Old"},
	} {
		_, err := c.TestPolicy(ctx, "returns", api.PolicyTest{Nodes: &[]api.PolicyTestNode{n}})
		if inventory.KindOf(err) != inventory.KindInvalid {
			t.Errorf("%+v: %v", n, err)
		}
	}

	if _, err := c.TestPolicy(ctx, "nightly", api.PolicyTest{}); inventory.KindOf(err) != inventory.KindNotFound {
		t.Error(err)
	}
}
