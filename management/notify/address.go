// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"github.com/contiv/cluster/inventory"
)

// metadata are the addresses at which clouds serve the secrets of a host, as far as they
// are not link-local.
var metadata = []netip.Addr{
	netip.MustParseAddr("100.100.100.200"),
	netip.MustParseAddr("168.63.129.16"),
	netip.MustParseAddr("192.0.0.192"),
	netip.MustParseAddr("fd00:ec2::254"),
	netip.MustParseAddr("fd20:ce::254"),
}

// nat64 have IPv4 addresses in their last four bytes.
var nat64 = []netip.Prefix{netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48")}

// plain returns an address without its zone, and an IPv4 address in place of its form in IPv6. Otherwise it would not
// equal its entry in a list.
func plain(a netip.Addr) netip.Addr {
	a = a.WithZone("").Unmap()

	if slices.ContainsFunc(nat64, func(p netip.Prefix) bool { return p.Contains(a) }) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}

	return a
}

// locality returns the kind of an address that a webhook may reach only where that is allowed;
// "" for any other address. Behind such an address are services that trust this host.
func locality(a netip.Addr) string {
	a = plain(a)

	for _, m := range metadata {
		if a == m {
			return "the address of a cloud's metadata"
		}
	}

	switch {
	case a.IsLoopback():
		return "a loopback address"
	case a.IsUnspecified():
		return "an unspecified address"
	case a.IsLinkLocalUnicast():
		return "a link-local address, as that of a cloud's metadata"
	case a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "an address of a group"
	}

	return ""
}

// allowRemedy is how such an address is allowed.
const allowRemedy = "set allow_local: true for the target, if that is meant"

// checkHost refuses a host that is such an address already by its name. A name that leads
// to one is refused at the connection.
func checkHost(host string) error {
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	kind := ""

	if a, err := netip.ParseAddr(name); err == nil {
		kind = locality(a)
	} else if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		kind = "this host itself"
	}

	if kind == "" {
		return nil
	}

	return inventory.Errorf(inventory.KindInvalid, "%s is %s", host, kind).Do("%s", allowRemedy)
}

// RefuseLocal returns the Control of a dialer that connects to no address behind which services
// trust this host. It judges the address itself and not the name, which may lead elsewhere by then. Addresses of this
// host are refused as well, unless they are among own. remedy ends the error.
func RefuseLocal(remedy string, own ...string) func(network, address string, _ syscall.RawConn) error {
	return func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		kind := locality(to.Addr())

		if a := plain(to.Addr()); kind == "" && !slices.Contains(own, a.String()) {
			kind, err = ofThisHost(a)
		}

		if err == nil && kind != "" {
			err = fmt.Errorf("%s is %s; %s", to.Addr(), kind, remedy)
		}

		return err
	}
}

// ofThisHost returns the kind of an address of this host, or "".
func ofThisHost(a netip.Addr) (string, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "", fmt.Errorf("the addresses of this host are unknown: %w", err)
	}

	for _, own := range addrs {
		if p, err := netip.ParsePrefix(own.String()); err == nil && plain(p.Addr()) == a {
			return "an address of this host", nil
		}
	}

	return "", nil
}
