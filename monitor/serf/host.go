// SPDX-License-Identifier: Apache-2.0

package serf

import (
	"net"
	"os"
	"regexp"
	"strings"

	"github.com/contiv/cluster/inventory"
)

// serialBytes is the length of a serial number taken from the machine id: unique
// in any fleet, and short enough to read. The Ansible role of the agent has the
// same rule.
const serialBytes = 12

// notInLabel matches characters that a label must not contain.
var notInLabel = regexp.MustCompile(`[^a-z0-9-]+`)

// Identify completes the identity of this host: the label from the host name, the
// serial number from the machine id, and, for a host that runs an agent, the
// address from the network interfaces.
func Identify(n Identity, runsAgent bool) (Identity, error) {
	if n.Label == "" {
		host, err := os.Hostname()
		if err != nil {
			return n, err
		}

		// The label is the host name without its domain.
		host, _, _ = strings.Cut(strings.ToLower(host), ".")
		n.Label = strings.Trim(notInLabel.ReplaceAllString(host, "-"), "-")
	}

	if n.Serial == "" {
		id, err := os.ReadFile("/etc/machine-id")
		if err != nil || len(id) < serialBytes {
			return n, inventory.Errorf(inventory.KindInvalid,
				"this host has no /etc/machine-id to take its serial number from").
				Do("run systemd-machine-id-setup, or configure node.serial")
		}

		n.Serial = string(id[:serialBytes])
	}

	if n.Addr == "" && runsAgent {
		addr, err := ownAddr()
		if err != nil {
			return n, err
		}
		n.Addr = addr
	}

	for _, err := range []error{inventory.CheckLabel(n.Label), inventory.CheckSerial(n.Serial)} {
		if err != nil {
			return n, inventory.Errorf(inventory.KindInvalid, "node: %w", err).
				Do("configure node.label and node.serial")
		}
	}

	return n, nil
}

// ownAddr returns the first global unicast address of this host: IPv4 before
// IPv6, in the order of the interfaces.
func ownAddr() (string, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return "", err
	}

	var ipv6 string
	for _, i := range interfaces {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagLoopback != 0 {
			continue
		}

		// An interface may disappear during the loop.
		addrs, err := i.Addrs()
		if err != nil {
			continue
		}

		for _, a := range addrs {
			ip, ok := a.(*net.IPNet)
			if !ok || !ip.IP.IsGlobalUnicast() {
				continue
			}
			if ip.IP.To4() != nil {
				return ip.IP.String(), nil
			}

			if ipv6 == "" {
				ipv6 = ip.IP.String()
			}
		}
	}

	if ipv6 == "" {
		return "", inventory.Errorf(inventory.KindInvalid, "this host has no address that other hosts can reach").
			Do("configure node.addr, or write gossip: off")
	}

	return ipv6, nil
}
