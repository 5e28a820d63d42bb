// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"fmt"
	"net/netip"
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

// nat64 has IPv4 addresses in its last four bytes.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// locality returns the kind of an address that a webhook may reach only where that is allowed;
// "" for any other address. Behind such an address are services that trust this host.
func locality(a netip.Addr) string {
	// With a zone, or in its IPv6 form, an address would not equal its entry in the list.
	a = a.WithZone("").Unmap()

	if nat64.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}

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

// refuseLocal is the Control of a dialer that connects to no such address. It judges the
// address itself and not the name, which may lead elsewhere by then.
func refuseLocal(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}

	if kind := locality(to.Addr()); kind != "" {
		return fmt.Errorf("its name leads to %s, %s; %s", to.Addr(), kind, allowRemedy)
	}

	return nil
}
