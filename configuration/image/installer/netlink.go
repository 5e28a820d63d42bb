// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// configure gives the port with an index an address and a default route, and brings it up; see rtnetlink(7). A zero
// address or gateway is none.
func configure(index int, address netip.Prefix, gateway netip.Addr) error {
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(socket)

	if err := request(socket, linkUp(index)); err != nil {
		return fmt.Errorf("bring it up: %w", err)
	}

	if address.IsValid() {
		if err := request(socket, newAddress(index, address)); err != nil {
			return fmt.Errorf("add the address %s: %w", address, err)
		}
	}

	if gateway.IsValid() {
		if err := request(socket, defaultRoute(index, gateway)); err != nil {
			return fmt.Errorf("add the route over %s: %w", gateway, err)
		}
	}

	return nil
}

// message is a request to the kernel: a header of its kind, and attributes.
type message struct {
	kind  uint16
	flags uint16
	body  []byte
}

func linkUp(index int) message {
	header := unix.IfInfomsg{
		Family: unix.AF_UNSPEC, Index: int32(index), //nolint:gosec // the kernel gave it as 32 bits
		Flags: unix.IFF_UP, Change: unix.IFF_UP,
	}
	return message{kind: unix.RTM_NEWLINK, body: encode(header)}
}

func newAddress(index int, address netip.Prefix) message {
	header := unix.IfAddrmsg{
		Family: family(address.Addr()), Prefixlen: uint8(address.Bits()), //nolint:gosec // at most 128
		Index: uint32(index), //nolint:gosec // the kernel gave it as 32 bits
	}
	if address.Addr().Is6() {
		// A tentative address cannot be used for a second.
		header.Flags = unix.IFA_F_NODAD
	}

	ip := address.Addr().AsSlice()
	body := append(encode(header), attribute(unix.IFA_LOCAL, ip)...)

	return message{
		kind: unix.RTM_NEWADDR, flags: unix.NLM_F_CREATE | unix.NLM_F_REPLACE,
		body: append(body, attribute(unix.IFA_ADDRESS, ip)...),
	}
}

func defaultRoute(index int, gateway netip.Addr) message {
	header := unix.RtMsg{
		Family: family(gateway), Table: unix.RT_TABLE_MAIN, Protocol: unix.RTPROT_BOOT,
		Scope: unix.RT_SCOPE_UNIVERSE, Type: unix.RTN_UNICAST,
	}
	body := append(encode(header), attribute(unix.RTA_GATEWAY, gateway.AsSlice())...)

	return message{
		kind: unix.RTM_NEWROUTE, flags: unix.NLM_F_CREATE | unix.NLM_F_REPLACE,
		body: append(body, attribute(unix.RTA_OIF, encode(uint32(index)))...), //nolint:gosec // 32 bits, as above
	}
}

func family(a netip.Addr) uint8 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// encode returns a value of a fixed size as the kernel has it in memory.
func encode(value any) []byte {
	b, err := binary.Append(nil, binary.NativeEndian, value)
	if err != nil {
		panic(err) // the value has no fixed size
	}
	return b
}

// attribute returns an attribute, which ends at a multiple of four bytes.
func attribute(kind uint16, value []byte) []byte {
	length := unix.SizeofRtAttr + len(value)
	b := append(encode(unix.RtAttr{Len: uint16(length), Type: kind}), value...) //nolint:gosec // a few bytes

	return append(b, make([]byte, -length&3)...)
}

// request sends a message and waits for the answer of the kernel.
func request(socket int, m message) error {
	header := unix.NlMsghdr{
		Len:  uint32(unix.SizeofNlMsghdr + len(m.body)), //nolint:gosec // a few bytes
		Type: m.kind, Flags: m.flags | unix.NLM_F_REQUEST | unix.NLM_F_ACK,
	}

	kernel := &unix.SockaddrNetlink{Family: unix.AF_NETLINK}
	if err := unix.Sendto(socket, append(encode(header), m.body...), 0, kernel); err != nil {
		return err
	}

	answer := make([]byte, unix.Getpagesize())

	n, _, err := unix.Recvfrom(socket, answer, 0)
	if err != nil {
		return err
	}

	return answerOf(answer[:n])
}

// answerOf returns the error in an acknowledgement: a message of the type NLMSG_ERROR with a negative number, or 0.
func answerOf(answer []byte) error {
	const length = unix.SizeofNlMsghdr + 4
	if len(answer) < length || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return errors.New("the kernel gave no answer that is understood")
	}

	number := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])) //nolint:gosec // it is signed
	if number != 0 {
		return unix.Errno(-number) //nolint:gosec // the kernel answers with a small one
	}

	return nil
}
