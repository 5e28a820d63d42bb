// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"net/netip"
	"strconv"
	"strings"
)

// MaxRange limits the addresses of the ranges of one request.
const MaxRange = 1024

// IsRange reports whether s is written as a range of IP addresses, not as one
// address or as a host name. A host name may contain a hyphen, too.
func IsRange(s string) bool {
	if strings.Contains(s, "/") {
		return true
	}

	first, _, ok := strings.Cut(s, "-")
	_, err := netip.ParseAddr(first)

	return ok && err == nil
}

// ParseRange returns the addresses of a range in order, at most MaxRange: the
// network NETWORK/BITS, FIRST-LAST, FIRST-N with the last number of an IPv4
// address, or a single address. Of a network it leaves out the addresses that no
// host has. Errors are of kind invalid.
func ParseRange(s string) ([]string, error) {
	first, last, err := parseEnds(s)
	if err != nil {
		return nil, err
	}
	if last.Less(first) {
		return nil, invalidRange(s, "its last address is before its first").Do("swap them")
	}

	var addrs []string
	for a := first; ; a = a.Next() {
		if len(addrs) == MaxRange {
			return nil, invalidRange(s, "it has more than "+strconv.Itoa(MaxRange)+" addresses").
				Do("split it into several requests")
		}

		addrs = append(addrs, a.String())

		if a == last {
			return addrs, nil
		}
	}
}

func invalidRange(s, why string) *Error {
	return Errorf(KindInvalid, "%q is not a range of addresses: %s", s, why)
}

// parseEnds returns the first and the last address of a range.
func parseEnds(s string) (first, last netip.Addr, err error) {
	const forms = "write NETWORK/BITS, FIRST-LAST or one address, such as 10.0.0.0/24 or 10.0.0.5-10.0.0.20"

	if strings.Contains(s, "/") {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return first, last, invalidRange(s, "it is no network").Do(forms)
		}
		return networkEnds(s, p)
	}

	from, to, ranged := strings.Cut(s, "-")
	if !ranged {
		to = from
	}
	if first, err = parseIP(from); err != nil {
		return first, last, invalidRange(s, from+" is no IP address").Do(forms)
	}

	// 10.0.0.5-20 is short for 10.0.0.5-10.0.0.20.
	if _, err := strconv.ParseUint(to, 10, 8); err == nil && first.Is4() {
		to = from[:strings.LastIndexByte(from, '.')+1] + to
	}

	if last, err = parseIP(to); err != nil {
		return first, last, invalidRange(s, to+" is no IP address").Do(forms)
	}

	if first.Is4() != last.Is4() {
		return first, last, invalidRange(s, "it mixes IPv4 and IPv6").Do(forms)
	}

	return first, last, nil
}

// networkEnds returns the first and the last address of a network that a host may
// have: IPv4 without the addresses of network and broadcast, IPv6 without that of
// the routers. Networks of one or two addresses have none of these.
func networkEnds(s string, p netip.Prefix) (first, last netip.Addr, err error) {
	if p.Addr() != p.Masked().Addr() {
		return first, last, invalidRange(s, "it is an address within the network "+p.Masked().String()).
			Do("write the network, or the address without /%d", p.Bits())
	}

	// A larger network does not fit MaxRange, whatever it leaves out.
	const maxHostBits = 11

	hostBits := p.Addr().BitLen() - p.Bits()
	if hostBits > maxHostBits {
		return first, last, invalidRange(s, "it has more than "+strconv.Itoa(MaxRange)+" addresses").
			Do("split it into several requests")
	}

	first, last = p.Addr(), p.Addr()
	for range 1<<hostBits - 1 {
		last = last.Next()
	}

	if hostBits > 1 {
		first = first.Next()

		if last.Is4() {
			last = last.Prev()
		}
	}

	return first, last, nil
}

// parseIP parses an IP address in its plain form.
func parseIP(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err == nil && (a.Zone() != "" || a.Is4In6()) {
		err = invalidRange(s, "zones and IPv4 within IPv6 are not supported")
	}
	return a, err
}
