// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"net"
	"strings"
)

// params are the parameters on the command line of the kernel that are for this program. None is secret: every user
// of a machine can read them.
type params struct {
	off    bool             // clusterm.off: power off after the facts
	bootif net.HardwareAddr // BOOTIF: the port that the machine booted from; nil: unknown
}

// parseParams reads /proc/cmdline.
func parseParams(cmdline string) params {
	var p params

	for _, word := range strings.Fields(cmdline) {
		switch name, value, _ := strings.Cut(word, "="); name {
		case "clusterm.off":
			p.off = true
		case "BOOTIF":
			// PXELINUX puts the type of the hardware before the address: 01 is Ethernet.
			mac, err := net.ParseMAC(strings.TrimPrefix(value, "01-"))
			if err == nil && len(mac) == 6 {
				p.bootif = mac
			}
		}
	}

	return p
}
