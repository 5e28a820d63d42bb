// SPDX-License-Identifier: Apache-2.0

package job_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	. "github.com/contiv/cluster/management/job"
)

func TestShorten(t *testing.T) {
	t.Parallel()

	if got := Shorten("short", 200); got != "short" {
		t.Error(got)
	}

	for size := 195; size < 260; size++ {
		got := Shorten(strings.Repeat("ä€x", size), 200)
		if len(got) > 200 || !utf8.ValidString(got) || !strings.HasSuffix(got, " …") ||
			!strings.HasPrefix(got, "ä€xä€x") {
			t.Errorf("%q", got)
		}
	}
}

// TestDescribeCutsBetweenCharacters: a reason is stored and shown as text.
func TestDescribeCutsBetweenCharacters(t *testing.T) {
	t.Parallel()

	for size := 140; size < 160; size++ {
		if got := Describe(HostResult{Message: "x" + strings.Repeat("ä", size)}); !utf8.ValidString(got) {
			t.Errorf("%q", got)
		}
	}
}
