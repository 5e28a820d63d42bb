// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
)

// MaxPool bounds the addresses of a pool.
const MaxPool = 1 << 14

// Config says where machines are served, and what they get.
type Config struct {
	Interfaces []string // none: nobody is served
	Pool       []Range
	Gateway    netip.Addr // zero: none
	DNS        []netip.Addr
	Lease      time.Duration
	IPXE       string // the folder with the programs of iPXE
}

// Range is a range of addresses, both ends included.
type Range struct{ From, To netip.Addr }

func invalid(format string, args ...any) *inventory.Error {
	return inventory.Errorf(inventory.KindInvalid, format, args...)
}

// ParseAddr returns the IPv4 address in a text.
func ParseAddr(text string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(text)
	if err != nil || !addr.Is4() || addr.IsUnspecified() || addr.IsMulticast() || addr == broadcast {
		return netip.Addr{}, invalid("%q is no IPv4 address of a host", inventory.Shorten(text, 60)).
			Do("write it as 10.9.1.100")
	}
	return addr, nil
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// ParseRange returns the range of a text such as 10.9.1.100-10.9.1.199, or 10.9.1.7.
func ParseRange(text string) (Range, error) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}

	from, err := ParseAddr(first)
	if err != nil {
		return Range{}, err
	}
	to, err := ParseAddr(last)
	if err != nil {
		return Range{}, err
	}

	if to.Less(from) {
		return Range{}, invalid("%q ends before it begins", text).Do("write the lower address first")
	}

	return Range{from, to}, nil
}

func (r Range) contains(a netip.Addr) bool { return !a.Less(r.From) && !r.To.Less(a) }

// size is the number of addresses of a range.
func (r Range) size() int { return int(number(r.To)-number(r.From)) + 1 }

func number(a netip.Addr) uint32 {
	b := a.As4()
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

// Check refuses a pool that is too large, counts an address twice, or has one of the gateway or a name server.
func (c Config) Check() error {
	pool := slices.SortedFunc(slices.Values(c.Pool), func(a, b Range) int { return a.From.Compare(b.From) })

	for i, r := range pool {
		if i > 0 && !pool[i-1].To.Less(r.From) {
			return invalid("two ranges have the address %s", r.From).Do("write ranges that do not overlap")
		}

		for _, a := range append([]netip.Addr{c.Gateway}, c.DNS...) {
			if a.IsValid() && r.contains(a) {
				return invalid("%s is the gateway or a name server", a).Do("leave it out of the ranges")
			}
		}
	}

	if n := c.size(); n > MaxPool {
		return invalid("the ranges have %d addresses, and may have %d", n, MaxPool).Do("write smaller ranges")
	}

	return nil
}

// size is the number of addresses of the pool.
func (c Config) size() (n int) {
	for _, r := range c.Pool {
		n += r.size()
	}
	return n
}

// addrs are the addresses of the pool, in its order.
func (c Config) addrs() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for _, r := range c.Pool {
			for a := r.From; ; a = a.Next() {
				if !yield(a) {
					return
				}
				if a == r.To {
					break
				}
			}
		}
	}
}
