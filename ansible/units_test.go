// SPDX-License-Identifier: Apache-2.0

package ansible_test

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
)

// TestUnits holds the exposure of the units, as systemd scores it. A unit explains
// each directive that it cannot set.
func TestUnits(t *testing.T) {
	t.Parallel()

	program, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze on this machine")
	}

	level := regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`)

	for unit, highest := range map[string]float64{
		"../cmd/clusterm/clusterm.service":         6,
		"../cmd/clusterm/clusterm-monitor.service": 3,
		"roles/agent/files/clusterm-agent.service": 3,
	} {
		if _, err := os.Stat(unit); err != nil {
			t.Fatal(err)
		}

		// The exit status depends on a threshold of its own.
		out, _ := exec.Command(program, "security", "--offline=true", "--no-pager", unit).CombinedOutput()

		m := level.FindSubmatch(out)
		if m == nil {
			t.Skipf("this systemd does not score unit files: %s", out)
		}
		score, err := strconv.ParseFloat(string(m[1]), 64)
		if err != nil || score > highest {
			t.Errorf("%s has an exposure of %s, more than %v\n%s", unit, m[1], highest, out)
		}
	}
}
