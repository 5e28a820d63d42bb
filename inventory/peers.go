// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"strconv"
)

// minPeers is the number of nodes of a product, the compared one among them, that are compared with each other.
const minPeers = 5

// peerFields are what nodes of one product are compared by. Zero and "" are unknown, unless zero tells.
var peerFields = []struct {
	what  string // after the value
	zero  bool
	value func(*Hardware) string
}{
	{"processors", false, func(h *Hardware) string { return strconv.Itoa(h.Sockets) }},
	{"cores", false, func(h *Hardware) string { return strconv.Itoa(h.Cores) }},
	{"threads", false, func(h *Hardware) string { return strconv.Itoa(h.Threads) }},
	{"DIMMs", false, func(h *Hardware) string { return strconv.Itoa(h.DIMMs) }},
	{"MiB of memory", false, func(h *Hardware) string {
		// Without the modules, it is what the kernel has, which differs a little.
		if h.DIMMs == 0 {
			return ""
		}
		return strconv.Itoa(h.MemoryMB)
	}},
	{"disks", true, func(h *Hardware) string { return strconv.Itoa(h.Disks) }},
	{"GB of disks", true, func(h *Hardware) string { return strconv.Itoa(h.DiskGB) }},
	{"network ports", true, func(h *Hardware) string { return strconv.Itoa(h.Interfaces) }},
	{"PCI devices", false, func(h *Hardware) string { return strconv.Itoa(h.PCI) }},
	{"as firmware", false, func(h *Hardware) string { return h.Firmware }},
	{"as boot mode", false, func(h *Hardware) string { return h.BootMode }},
}

// Peers returns what the hardware of a node has otherwise than at least three quarters of the nodes of the same vendor
// and product, itself among them, as sentences. With less than five such nodes there is nothing to compare.
func Peers(n Node, all []*Node) []string {
	own := n.Hardware
	if own == nil || own.Vendor == "" || own.Product == "" {
		return nil
	}

	peers := []*Hardware{own}
	for _, m := range all {
		if h := m.Hardware; h != nil && m.Name != n.Name && h.Vendor == own.Vendor && h.Product == own.Product {
			peers = append(peers, h)
		}
	}

	if len(peers) < minPeers {
		return nil
	}

	var out []string

	for _, f := range peerFields {
		known := func(h *Hardware) (string, bool) {
			v := f.value(h)
			return v, v != "" && (f.zero || v != "0")
		}

		mine, ok := known(own)
		if !ok {
			continue
		}

		counts, total, usual := map[string]int{}, 0, ""
		for _, h := range peers {
			if v, ok := known(h); ok {
				total++
				if counts[v]++; counts[v] > counts[usual] {
					usual = v
				}
			}
		}

		if most := counts[usual]; usual != mine && total >= minPeers && 4*most >= 3*total {
			out = append(out, fmt.Sprintf("%d of %d have %s %s, this one %s", most, total, usual, f.what, mine))
		}
	}

	return out
}
