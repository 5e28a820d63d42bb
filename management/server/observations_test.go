// SPDX-License-Identifier: Apache-2.0

package server

import (
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

func TestObservationsOf(t *testing.T) {
	t.Parallel()

	one := []api.Observation{{Label: "a", Serial: "1", Addr: "10.0.0.1", Alive: true}}
	for name, tt := range map[string]struct {
		report api.Report
		want   inventory.Kind // "" for a valid report
	}{
		"partial":         {api.Report{Observer: "rack1", Observations: one}, ""},
		"full":            {api.Report{Observer: "rack1", Full: true, Observations: one}, ""},
		"full and empty":  {api.Report{Observer: "rack1", Full: true}, ""},
		"empty":           {api.Report{Observer: "rack1"}, inventory.KindInvalid},
		"no observer":     {api.Report{Observations: one}, inventory.KindInvalid},
		"a bad observer":  {api.Report{Observer: "a b", Observations: one}, inventory.KindInvalid},
		"reserved post":   {api.Report{Observer: "post", Observations: one}, inventory.KindInvalid},
		"reserved gossip": {api.Report{Observer: "gossip", Observations: one}, inventory.KindInvalid},
		"range":           {api.Report{Observer: "rack1", Full: true, After: "a-1", Until: "b-1"}, ""},
		"first range":     {api.Report{Observer: "rack1", Full: true, Until: "b-1"}, ""},
		"last range":      {api.Report{Observer: "rack1", Full: true, After: "b-1"}, ""},
		"partial range":   {api.Report{Observer: "rack1", After: "b-1", Observations: one}, inventory.KindInvalid},
		"empty range":     {api.Report{Observer: "rack1", Full: true, After: "b", Until: "b"}, inventory.KindInvalid},
		"too many": {
			api.Report{Observer: "rack1", Observations: make([]api.Observation, api.MaxObservations+1)},
			inventory.KindTooLarge,
		},
	} {
		got, err := observationsOf(tt.report)
		if tt.want == "" && (err != nil || len(got) != len(tt.report.Observations)) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}

		if tt.want != "" && inventory.KindOf(err) != tt.want {
			t.Errorf("%s: %v, want %s", name, err, tt.want)
		}
	}
}
