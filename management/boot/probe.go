// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"
)

const (
	// probeTime is how long a host has to answer.
	probeTime = time.Second
	// settleTime is how long the kernel has to ask again for an address of which it knows a host from before. By
	// default, it waits for five seconds, and asks three times.
	settleTime = 15 * time.Second
)

// Probe returns the MACs of the hosts that have some of the addresses, as far as this host can see: it sends each of
// them a datagram, and reads whom the kernel found by ARP. It takes a second, and up to ten if the kernel knows a host
// from before.
func Probe(ctx context.Context, addrs []netip.Addr) (map[netip.Addr]string, error) {
	conn, err := net.ListenUDP("udp4", nil)
	if err != nil {
		return nil, err
	}
	defer conn.Close()

	const discard = 9
	for _, addr := range addrs {
		// An address that cannot be reached has no answer.
		_, _ = conn.WriteToUDPAddrPort(nil, netip.AddrPortFrom(addr, discard))
	}

	return settled(ctx, addrs, neighbours)
}

// settled returns who has the addresses, once the kernel knows it.
func settled(
	ctx context.Context, addrs []netip.Addr, read func() ([]neighbour, error),
) (map[netip.Addr]string, error) {
	asked := map[netip.Addr]bool{}
	for _, a := range addrs {
		asked[a] = true
	}

	for waited := probeTime; waited <= settleTime; waited += probeTime {
		select {
		case <-time.After(probeTime):
		case <-ctx.Done():
			return nil, ctx.Err()
		}

		table, err := read()
		if err != nil {
			return nil, err
		}

		answers, open := map[netip.Addr]string{}, false
		for _, n := range table {
			switch {
			case !asked[n.addr]:
			case n.state == reachable:
				answers[n.addr] = n.mac
			case n.state == delay || n.state == probing:
				open = true
			}
		}

		if !open {
			return answers, nil
		}
	}

	return nil, errors.New("the kernel does not end its ARP requests")
}

// neighbour is an entry of the ARP table of the kernel.
type neighbour struct {
	addr  netip.Addr
	mac   string
	state uint16
}

// The states that matter of linux/neighbour.h. In any other one, nobody has answered: an entry that is stale may be of
// a host that is gone.
const (
	reachable = 0x02 // it has answered within some seconds
	delay     = 0x08 // it was there before, and will be asked soon
	probing   = 0x10 // it was there before, and is asked
)

// neighbours reads the table. /proc/net/arp has no states.
func neighbours() ([]neighbour, error) {
	table, err := syscall.NetlinkRIB(syscall.RTM_GETNEIGH, syscall.AF_INET)
	if err != nil {
		return nil, err
	}

	messages, err := syscall.ParseNetlinkMessage(table)
	if err != nil {
		return nil, err
	}

	var all []neighbour
	for _, m := range messages {
		if m.Header.Type != syscall.RTM_NEWNEIGH {
			continue
		}
		if n := parseNeighbour(m.Data); n.addr.IsValid() {
			all = append(all, n)
		}
	}

	return all, nil
}

// parseNeighbour returns the entry in a struct ndmsg with its attributes. The address is zero if there is none.
func parseNeighbour(data []byte) (n neighbour) {
	const (
		header      = 12
		stateAt     = 8
		attribute   = 4 // the length and the type, before the value
		destination = 1
		linkAddress = 2
		alignment   = 4
	)

	if len(data) < header {
		return neighbour{}
	}
	n.state = binary.NativeEndian.Uint16(data[stateAt:])

	for rest := data[header:]; len(rest) >= attribute; {
		size := int(binary.NativeEndian.Uint16(rest))
		if size < attribute || size > len(rest) {
			return n
		}

		switch value := rest[attribute:size]; binary.NativeEndian.Uint16(rest[2:]) {
		case destination:
			n.addr, _ = netip.AddrFromSlice(value)
		case linkAddress:
			n.mac = net.HardwareAddr(value).String()
		}

		// Each begins at a multiple of its alignment.
		rest = rest[min(len(rest), (size+alignment-1)/alignment*alignment):]
	}

	return n
}
