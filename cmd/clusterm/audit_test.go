// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"testing"

	"github.com/contiv/cluster/management/audit"
)

// TestPrintReport: a gap in an export is an error, unless the export was made with filters.
func TestPrintReport(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		report   audit.Report
		selected bool
		damaged  bool
	}{
		{audit.Report{Entries: 3, First: 1, Last: 3}, false, false},
		{audit.Report{Entries: 3, First: 1, Last: 5, Missing: 2}, false, true},
		{audit.Report{Entries: 3, First: 1, Last: 5, Missing: 2}, true, false},
		{audit.Report{Entries: 3, First: 1, Last: 5, Missing: 2, Problems: []string{"changed"}}, true, true},
	} {
		if err := printReport(io.Discard, c.report, c.selected); (err != nil) != c.damaged {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
