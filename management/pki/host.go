// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"net"
	"os"
)

// maxAddrs bounds the addresses of this host in its certificate: a host
// of many containers may have thousands.
const maxAddrs = 256

// HostNames returns the name and the addresses of this host.
func HostNames() (names []string) {
	if host, err := os.Hostname(); err == nil {
		names = append(names, host)
	}

	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return names
	}

	for i, a := range addrs {
		ip, ok := a.(*net.IPNet)
		if ok && i < maxAddrs && !ip.IP.IsLinkLocalUnicast() && !ip.IP.IsMulticast() {
			names = append(names, ip.IP.String())
		}
	}

	return names
}
