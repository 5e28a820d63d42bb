// SPDX-License-Identifier: Apache-2.0

package serf

import (
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/contiv/cluster/monitor"
)

// hardware returns what this machine knows of its identity: the UUID of the system, where the process may read it, and
// the MACs of network ports, without virtual ones unless they have the address.
func hardware(addr string) monitor.Hardware {
	var h monitor.Hardware

	if id, err := os.ReadFile("/sys/class/dmi/id/product_uuid"); err == nil {
		h.UUID = strings.ToLower(strings.TrimSpace(string(id)))
	}

	ports, err := net.Interfaces()
	if err != nil {
		return h
	}

	for _, port := range ports {
		_, err := os.Stat(filepath.Join("/sys/class/net", port.Name, "device"))
		if len(port.HardwareAddr) == 6 && (err == nil || has(port, addr)) {
			h.MACs = append(h.MACs, port.HardwareAddr.String())
		}
	}

	return h
}

// has reports whether a network port has an IP address.
func has(port net.Interface, addr string) bool {
	addrs, err := port.Addrs()
	if err != nil {
		return false
	}

	ip := net.ParseIP(addr)
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && ip != nil && n.IP.Equal(ip) {
			return true
		}
	}

	return false
}
