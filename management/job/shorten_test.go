// SPDX-License-Identifier: Apache-2.0

package job_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	. "github.com/contiv/cluster/management/job"
)

// TestDescribeCutsBetweenCharacters: a reason is stored and shown as text.
func TestDescribeCutsBetweenCharacters(t *testing.T) {
	t.Parallel()

	for size := 140; size < 160; size++ {
		if got := Describe(HostResult{Message: "x" + strings.Repeat("ä", size)}); !utf8.ValidString(got) {
			t.Errorf("%q", got)
		}
	}
}
