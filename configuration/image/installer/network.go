// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
)

const (
	// linkRounds is for how many pauses a port may take to get a link: fast ones try several speeds.
	linkRounds = 120
	// cableLooks is how often a machine says that it waits for a link, and cableRounds the number of pauses between.
	cableLooks, cableRounds = 12, int(5 * time.Minute / round)
)

// port is a network port that is configured.
type port struct {
	net.Interface

	address netip.Prefix
}

// bringUp configures the port of an order.
func bringUp(order Interface, bootif net.HardwareAddr) (*port, error) {
	ports, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("cannot list the network ports: %w", err)
	}

	chosen, err := choose(ports, order.MAC, bootif)
	if err != nil {
		return nil, err
	}
	p := &port{chosen, order.Address}

	if err := configure(p.Index, order.Address, order.Gateway); err != nil {
		return nil, fmt.Errorf("cannot configure the network port %s: %w", p, err)
	}

	if err := writeResolver("/etc/resolv.conf", order.DNS); err != nil {
		return nil, fmt.Errorf("cannot write the name servers: %w", err)
	}

	return p, nil
}

// String implements fmt.Stringer.
func (p *port) String() string { return fmt.Sprintf("%s (%s)", p.Name, p.HardwareAddr) }

func (p *port) hasLink() bool {
	carrier, _ := os.ReadFile(filepath.Join("/sys/class/net", p.Name, "carrier"))
	return strings.TrimSpace(string(carrier)) == "1"
}

// state returns a sentence about the port, and what to do without a link.
func (p *port) state(linked bool) error {
	if linked {
		return fmt.Errorf("the network port %s has the address %s", p, p.address)
	}
	return inventory.Errorf(inventory.KindUnavailable, "the network port %s has no link", p).
		Do("check its cable, and the port of the switch")
}

// awaitLink waits for the link of a port, and reports whether it has one.
func awaitLink(linked func() bool, pause func()) bool {
	for range linkRounds {
		if linked() {
			return true
		}
		pause()
	}

	return linked()
}

// awaitCable waits an hour for somebody to give a port its link, and reports whether it has one. A restart would not.
func awaitCable(console io.Writer, p *port, linked func() bool, pause func()) bool {
	for range cableLooks {
		say(console, "%s The machine waits for the link.", sentence(p.state(false)))

		for range cableRounds {
			if linked() {
				say(console, "%s", sentence(p.state(true)))
				return true
			}
			pause()
		}
	}

	say(console, "The network port %s got no link in an hour.", p)

	return false
}

// choose returns the port with a MAC address, or else the one that the machine booted from.
func choose(ports []net.Interface, mac string, bootif net.HardwareAddr) (net.Interface, error) {
	want := bootif
	if mac != "" {
		want, _ = net.ParseMAC(mac) // Decode has checked it
	}

	if want == nil {
		return net.Interface{}, inventory.Errorf(inventory.KindInvalid,
			"neither the order nor BOOTIF on the command line of the kernel names a network port").
			Do("name one by interface.mac in %s", OrderFile)
	}

	var others []string
	for _, p := range ports {
		if bytes.Equal(p.HardwareAddr, want) {
			return p, nil
		}
		if len(p.HardwareAddr) > 0 {
			others = append(others, p.HardwareAddr.String())
		}
	}

	return net.Interface{}, inventory.Errorf(inventory.KindNotFound,
		"no network port has the address %s; there are: %s", want, cmp.Or(strings.Join(others, ", "), "none")).
		Do("correct the address, or add an image of a kernel that has the module of the port")
}

// writeResolver writes the name servers as programs of the machine read them.
func writeResolver(file string, servers []netip.Addr) error {
	if len(servers) == 0 {
		return nil
	}

	var text strings.Builder
	for _, s := range servers {
		fmt.Fprintf(&text, "nameserver %s\n", s)
	}

	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // as on every system
		return err
	}
	return os.WriteFile(file, []byte(text.String()), 0o644) //nolint:gosec // as on every system
}
