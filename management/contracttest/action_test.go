// SPDX-License-Identifier: Apache-2.0

package contracttest_test

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/contracttest"
)

// TestActions expects a documented name and a valid request for every action. The
// server's own test compares the documented requests with its routes.
func TestActions(t *testing.T) {
	c, err := contracttest.Load()
	errtest.None(t, err)
	schema := c.Components.Schemas["Action"]
	if names := schema.Value.Properties["action"].Value.Enum; len(names) != len(inventory.Actions) {
		t.Errorf("%d names are documented, there are %d actions", len(names), len(inventory.Actions))
	}

	for _, row := range inventory.Actions {
		a := inventory.Action{
			Name: row.Name, Verb: inventory.VerbMaintenance, Nodes: []string{"web-1"}, Job: "5", Failed: true,
			Key: "jobs.timeout", Value: "2h0m0s",
		}
		if row.Name == inventory.ActionSetVariable {
			a.Value = `"2h"` // JSON
		}
		wire := api.ActionsOf([]inventory.Action{a})[0]

		text, err := json.Marshal(wire)
		errtest.None(t, err)
		if err := c.Check("Action", text); err != nil {
			t.Errorf("%s: %v", a, err)
		}

		r := httptest.NewRequest(wire.Method, wire.Path, strings.NewReader(string(wire.Body)))
		if len(wire.Body) > 0 {
			r.Header.Set("Content-Type", api.TypeJSON)
		}
		if err := c.Request(r, wire.Body); err != nil {
			t.Errorf("%s sends %s %s %s: %v", a, wire.Method, wire.Path, wire.Body, err)
		}
	}
}
