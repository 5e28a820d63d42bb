// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"slices"
	"testing"
)

// TestPeers: a node is told from the others of its product if these agree, and if there are enough of them.
func TestPeers(t *testing.T) {
	t.Parallel()

	odd := Hardware{Vendor: "Dell", Product: "R640", DIMMs: 15, Disks: 0, Firmware: "1.2", MemoryMB: 15 << 14}

	for _, c := range []struct {
		same, other, nodes int // with 16 DIMMs, with 12, and of another product
		own                Hardware
		want               []string
	}{
		{37, 0, 9, odd, []string{
			"37 of 38 have 16 DIMMs, this one 15", "37 of 38 have 262144 MiB of memory, this one 245760",
			"37 of 38 have 2 disks, this one 0", "37 of 38 have 1.4 as firmware, this one 1.2",
		}},
		{4, 0, 0, odd, []string{
			"4 of 5 have 16 DIMMs, this one 15", "4 of 5 have 262144 MiB of memory, this one 245760",
			"4 of 5 have 2 disks, this one 0", "4 of 5 have 1.4 as firmware, this one 1.2",
		}},
		{3, 0, 9, odd, nil},
		// Of 20, 12 are less than three quarters.
		{12, 7, 0, odd, []string{"19 of 20 have 2 disks, this one 0", "19 of 20 have 1.4 as firmware, this one 1.2"}},
		// What was not found is no difference.
		{9, 0, 0, Hardware{Vendor: "Dell", Product: "R640", Disks: 2}, nil},
		{9, 0, 0, Hardware{Vendor: "Dell", Product: "R650", DIMMs: 15}, nil},
		{9, 0, 0, Hardware{DIMMs: 15}, nil},
	} {
		n := &Node{Name: "own", Hardware: &c.own}
		all := []*Node{n, {Name: "uninspected"}}

		add := func(count, dimms int, product string) {
			for range count {
				all = append(all, &Node{Name: fmt.Sprint("n", len(all)), Hardware: &Hardware{
					Vendor: "Dell", Product: product, DIMMs: dimms, MemoryMB: dimms << 14, Disks: 2, Firmware: "1.4",
				}})
			}
		}
		add(c.same, 16, "R640")
		add(c.other, 12, "R640")
		add(c.nodes, 8, "R740")

		if got := Peers(*n, all); !slices.Equal(got, c.want) {
			t.Errorf("%d, %d, %d: %q, want %q", c.same, c.other, c.nodes, got, c.want)
		}
	}
}
