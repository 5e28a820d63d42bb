// SPDX-License-Identifier: Apache-2.0

package serf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/contiv/cluster/inventory"
)

// DefaultPort is the gossip port of an address without one.
const DefaultPort = 7946

// lookupTimeout bounds the resolution of one name.
const lookupTimeout = 5 * time.Second

// splitAddr splits "host:port", "host", "[v6]:port" or "v6".
func splitAddr(s string) (host string, port int, err error) {
	if ip, err := netip.ParseAddr(s); err == nil {
		return ip.String(), DefaultPort, nil
	}

	h, p, err := net.SplitHostPort(s)
	if err != nil {
		if inventory.CheckAddr(s) == nil {
			return s, DefaultPort, nil
		}
		return "", 0, fmt.Errorf("%q is not an address; write HOST:PORT, and an IPv6 address as [ADDRESS]:PORT", s)
	}

	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%q is not an address: its port is not a number up to 65535", s)
	}
	return h, int(n), nil
}

// checkPeer refuses an address that cannot be the one of a member.
func checkPeer(s string) error {
	host, port, err := splitAddr(s)
	if err != nil {
		return err
	}
	if port == 0 {
		return fmt.Errorf("%q is not the address of a member: its port is 0", s)
	}

	if err := inventory.CheckAddr(host); err != nil {
		return fmt.Errorf("%q is not the address of a member: %w", s, err)
	}

	return nil
}

// parseBind parses the address to listen on. An empty host means all addresses.
func parseBind(s string) (host string, port int, err error) {
	host, port, err = splitAddr(s)
	if err != nil {
		return "", 0, err
	}
	if host == "" {
		return "", port, nil
	}

	if _, err := netip.ParseAddr(host); err != nil {
		return "", 0, fmt.Errorf(
			"cannot bind the gossip to %q: write an IP address of this host and a port, as in 192.0.2.1:%d",
			s,
			DefaultPort,
		)
	}

	return host, port, nil
}

// resolve looks up the addresses of a peer. It blocks for lookupTimeout at most.
func resolve(ctx context.Context, s string) ([]netip.AddrPort, error) {
	host, port, err := splitAddr(s)
	if err != nil {
		return nil, err
	}

	var ips []netip.Addr
	if ip, err := netip.ParseAddr(host); err == nil {
		ips = []netip.Addr{ip}
	} else {
		ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
		defer cancel()

		if ips, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host); err != nil {
			return nil, err
		}
	}

	all := make([]netip.AddrPort, 0, len(ips))
	for _, ip := range ips {
		//nolint:gosec // splitAddr bounds the port
		all = append(all, netip.AddrPortFrom(ip.Unmap(), uint16(port)))
	}

	return all, nil
}

// advertised selects the address under which the others reach this member. In
// order of preference it is the configured one, the bound one, the management
// address of the node, the source address towards a peer, or the most usual
// address of an interface. bound is the port of the listener.
func (o *Options) advertised(ctx context.Context, bind string, bound int) (netip.AddrPort, error) {
	if o.Advertise != "" {
		all, err := resolve(ctx, o.Advertise)
		if err != nil {
			return netip.AddrPort{}, fmt.Errorf("cannot resolve the address to advertise, %s: %w", o.Advertise, err)
		}
		if len(all) == 0 || all[0].Addr().IsUnspecified() {
			return netip.AddrPort{}, fmt.Errorf("the address to advertise, %s, does not name one host", o.Advertise)
		}

		ap := all[0]
		if ap.Port() == 0 {
			//nolint:gosec // the kernel chose the port
			ap = netip.AddrPortFrom(ap.Addr(), uint16(bound))
		}

		return ap, nil
	}

	at := func(ip netip.Addr) (netip.AddrPort, error) {
		//nolint:gosec // the kernel chose the port
		return netip.AddrPortFrom(ip.Unmap(), uint16(bound)), nil
	}

	ip, err := netip.ParseAddr(bind)
	if err == nil && !ip.IsUnspecified() {
		return at(ip)
	}

	// A socket that is bound to 0.0.0.0 receives IPv4 only.
	only4 := err == nil && ip.Is4()

	locals := localAddrs()
	if ip, err := netip.ParseAddr(o.Node.Addr); err == nil && slices.Contains(locals, ip) {
		return at(ip)
	}

	for _, peer := range o.Join {
		all, err := resolve(ctx, peer)
		if err != nil {
			continue
		}

		for _, p := range all {
			if ip, ok := sourceFor(p); ok && !(only4 && !ip.Is4()) {
				return at(ip)
			}
		}
	}

	if best, ok := usual(locals, only4); ok {
		return at(best)
	}

	return netip.AddrPort{}, errors.New("this host has no address that other hosts can reach; " +
		"bind the gossip to one, or set the address to advertise")
}

// sourceFor returns the local address of packets to a peer. It sends none.
func sourceFor(peer netip.AddrPort) (netip.Addr, bool) {
	// Connecting a UDP socket selects the route only.
	c, err := net.Dial("udp", peer.String())
	if err != nil {
		return netip.Addr{}, false
	}
	defer c.Close()

	ap, err := netip.ParseAddrPort(c.LocalAddr().String())
	if err != nil {
		return netip.Addr{}, false
	}
	return ap.Addr().Unmap().WithZone(""), !ap.Addr().IsUnspecified()
}

// localAddrs lists the addresses of this host's interfaces.
func localAddrs() []netip.Addr {
	ifs, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}

	var all []netip.Addr
	for _, a := range ifs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			all = append(all, p.Addr().Unmap())
		}
	}

	return all
}

// usual selects an address: private before public, IPv4 before IPv6, then the
// lowest.
func usual(locals []netip.Addr, only4 bool) (netip.Addr, bool) {
	var fit []netip.Addr
	for _, ip := range locals {
		if ip.IsGlobalUnicast() && !(only4 && !ip.Is4()) {
			fit = append(fit, ip)
		}
	}

	if len(fit) == 0 {
		return netip.Addr{}, false
	}

	rank := func(ip netip.Addr) int {
		r := 0
		if !ip.IsPrivate() {
			r++
		}
		if !ip.Is4() {
			r += 2
		}

		return r
	}

	return slices.MinFunc(fit, func(a, b netip.Addr) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), a.Compare(b))
	}), true
}
