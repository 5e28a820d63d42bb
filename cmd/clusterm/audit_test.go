// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/contiv/cluster/management/audit"
)

// TestPrintReport: a gap in an export is an error, unless the export was made with filters. What the retention
// removed is named, and no error.
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
		c.report.Dropped = []string{"entries 1 to 3 were removed"}

		var out strings.Builder

		err := printReport(&out, c.report, c.selected)
		if (err != nil) != c.damaged || !strings.Contains(out.String(), c.report.Dropped[0]) {
			t.Errorf("%+v: %v\n%s", c, err, out.String())
		}
	}
}
