// SPDX-License-Identifier: Apache-2.0

package selector_test

import (
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/selector"
)

// TestHardware compares what an inspection has found.
func TestHardware(t *testing.T) {
	t.Parallel()

	accept := func(string) error { return nil }
	inspected := &inventory.Node{Name: "a", Hardware: &inventory.Hardware{
		MemoryMB: 65536, Vendor: "Dell Inc. (\x00\"", UUID: "4c4c4544-0000-1000-8000-000000000001", BMC: "fd00::9",
	}}

	for text, want := range map[string]bool{
		"facts.memory_mb>64000": true, "facts.memory_mb>65536": false, "facts.memory_mb<65537": true,
		"facts.memory_mb=065536": true, "facts.memory_mb!=65536": false, "facts.memory_mb in (1,65536)": true,
		"facts.vendor=Dell-Inc": true, "facts.vendor=Dell": false, "facts.bmc=fd00::9": true,
		"facts.uuid=4c4c4544-0000-1000-8000-000000000001": true, "facts.product": false, "!facts.product": true,
		"facts.disks=0": true, "facts.disks": true,
	} {
		s, err := selector.Parse(text, accept)
		errtest.None(t, err)

		if got := s.Matches(inspected); got != want || !s.OfHardware() {
			t.Errorf("%s: %v", text, got)
		}

		// A node that was not inspected has no facts at all.
		if got := s.Matches(&inventory.Node{Name: "b"}); got != strings.ContainsAny(text, "!") {
			t.Errorf("%s selects a node without facts: %v", text, got)
		}
	}

	for _, text := range []string{
		"facts.memory_mb=many", "facts.memory_mb=-1", "facts.vendor>3", "facts.memory_mb=", "facts.memory_mb in (1,x)",
		"facts.memory>64000", "facts.bogus", "!facts.Disks", "facts.",
	} {
		if _, err := selector.Parse(text, accept); inventory.KindOf(err) != inventory.KindInvalid {
			t.Errorf("%s: %v", text, err)
		}
	}
}
