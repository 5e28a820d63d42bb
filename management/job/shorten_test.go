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
		if got := Describe(&Run{}, HostResult{Message: "x" + strings.Repeat("ä", size)}); !utf8.ValidString(got) {
			t.Errorf("%q", got)
		}
	}
}

// TestDescribeNamesTheTaskOfAPlaybook: the only task of any other step is no news.
func TestDescribeNamesTheTaskOfAPlaybook(t *testing.T) {
	t.Parallel()

	res := HostResult{Begun: true, Failed: 1, Task: "check credentials", Message: "permission denied"}

	for playbook, want := range map[string]string{
		"": "permission denied", "clean.yml": `task "check credentials": permission denied`,
	} {
		if got := Describe(&Run{Playbook: playbook}, res); got != want {
			t.Errorf("with the playbook %q: %s, want %s", playbook, got, want)
		}
	}

	res.Message = ""
	if got := Describe(&Run{}, res); got != `task "check credentials"` {
		t.Errorf("without a message: %s", got)
	}
}
