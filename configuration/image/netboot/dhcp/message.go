// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/contiv/cluster/configuration/image/netboot"
)

var types = map[dhcpv4.MessageType]netboot.Type{
	dhcpv4.MessageTypeDiscover: netboot.Discover,
	dhcpv4.MessageTypeRequest:  netboot.Request,
	dhcpv4.MessageTypeDecline:  netboot.Decline,
	dhcpv4.MessageTypeOffer:    netboot.Offer,
	dhcpv4.MessageTypeAck:      netboot.Ack,
	dhcpv4.MessageTypeNak:      netboot.Nak,
}

// messageType returns the code of a type of reply.
func messageType(t netboot.Type) dhcpv4.MessageType {
	for code, known := range types {
		if known == t {
			return code
		}
	}
	return dhcpv4.MessageTypeNone
}

// parse returns the query in a packet.
func parse(packet []byte) (netboot.Query, *dhcpv4.DHCPv4, error) {
	m, err := dhcpv4.FromBytes(packet)
	if err != nil {
		return netboot.Query{}, nil, err
	}

	if m.OpCode != dhcpv4.OpcodeBootRequest || m.HWType != iana.HWTypeEthernet || len(m.ClientHWAddr) != 6 {
		return netboot.Query{}, nil, errors.New("it is no request of an Ethernet card")
	}

	q := netboot.Query{
		Type: types[m.MessageType()], MAC: m.ClientHWAddr.String(), Server: addrOf(m.ServerIdentifier()),
		Addr: addrOf(m.RequestedIPAddress()), Relayed: addrOf(m.GatewayIPAddr).IsValid(), Loader: loader(m),
	}
	if !q.Addr.IsValid() {
		q.Addr = addrOf(m.ClientIPAddr)
	}

	return q, m, nil
}

// The classes of vendors with which firmware begins its own, and that of iPXE's user.
const (
	pxeClass  = "PXEClient"
	httpClass = "HTTPClient"
	ipxeClass = "iPXE"
)

// loaders are the loaders by the architectures of RFC 4578 and its registry.
var loaders = map[iana.Arch]netboot.Loader{
	iana.INTEL_X86PC:     netboot.BIOS,
	iana.EFI_X86_64:      netboot.UEFI,
	iana.EFI_BC:          netboot.UEFI, // what much firmware for x86-64 says
	iana.EFI_ARM64:       netboot.UEFIArm,
	iana.EFI_X86_64_HTTP: netboot.HTTP,
	iana.EFI_ARM64_HTTP:  netboot.HTTPArm,
}

// loader returns what asks for a program to boot; empty: nothing does.
func loader(m *dhcpv4.DHCPv4) netboot.Loader {
	class := m.ClassIdentifier()

	switch {
	// iPXE sends the bare word, and not the list of RFC 3004.
	case bytes.Contains(m.Options.Get(dhcpv4.OptionUserClassInformation), []byte(ipxeClass)):
		return netboot.IPXE
	case !strings.HasPrefix(class, pxeClass) && !strings.HasPrefix(class, httpClass):
		return ""
	}

	for _, arch := range m.ClientArch() {
		if l := loaders[arch]; l != "" {
			return l
		}
	}

	return netboot.Unknown
}

// addrOf returns an IPv4 address; zero: there is none.
func addrOf(ip net.IP) netip.Addr {
	addr, _ := netip.AddrFromSlice(ip)
	if addr = addr.Unmap(); !addr.Is4() || addr.IsUnspecified() {
		return netip.Addr{}
	}
	return addr
}

// encode returns the packet of a reply, and where it goes. A machine that has its address already gets it there; all
// others have none yet, so that it is broadcast.
func encode(m *dhcpv4.DHCPv4, r netboot.Reply, s netboot.Site) ([]byte, netip.Addr, error) {
	to := netip.AddrFrom4([4]byte{255, 255, 255, 255})
	with := []dhcpv4.Modifier{
		dhcpv4.WithMessageType(messageType(r.Type)),
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(s.Server.Addr().AsSlice())),
	}

	if r.Type != netboot.Nak {
		with = append(with,
			dhcpv4.WithYourIP(r.Addr.AsSlice()),
			dhcpv4.WithOption(dhcpv4.OptIPAddressLeaseTime(s.Lease)),
			dhcpv4.WithNetmask(net.CIDRMask(s.Server.Bits(), 32)),
		)
		// A router of another network is of no use to the machine.
		if s.Server.Contains(s.Gateway) {
			with = append(with, dhcpv4.WithOption(dhcpv4.OptRouter(s.Gateway.AsSlice())))
		}
		if len(s.DNS) > 0 {
			with = append(with, dhcpv4.WithOption(dhcpv4.OptDNS(slices.Collect(func(yield func(net.IP) bool) {
				for _, addr := range s.DNS {
					if !yield(addr.AsSlice()) {
						return
					}
				}
			})...)))
		}

		with = append(with, bootOptions(m, r, s)...)

		if has := addrOf(m.ClientIPAddr); has == r.Addr {
			to = has
			with = append(with, dhcpv4.WithClientIP(m.ClientIPAddr))
		}
	}

	reply, err := dhcpv4.NewReplyFromRequest(m, with...)
	if err != nil {
		return nil, to, err
	}

	return reply.ToBytes(), to, nil
}

// bootOptions say what a machine boots.
func bootOptions(m *dhcpv4.DHCPv4, r netboot.Reply, s netboot.Site) []dhcpv4.Modifier {
	if r.File == "" {
		return nil
	}

	with := []dhcpv4.Modifier{func(d *dhcpv4.DHCPv4) {
		d.ServerIPAddr = s.Server.Addr().AsSlice()
		// Old firmware reads the field only.
		if len(r.File) < maxFile {
			d.BootFileName = r.File
		}
	}}

	// The firmware takes an URL only from an answer with its class. With that of PXE, it would look for more servers.
	if strings.HasPrefix(m.ClassIdentifier(), httpClass) {
		with = append(with, dhcpv4.WithOption(dhcpv4.OptClassIdentifier(httpClass)))
	}

	return append(with,
		dhcpv4.WithOption(dhcpv4.OptBootFileName(r.File)),
		dhcpv4.WithOption(dhcpv4.OptTFTPServerName(s.Server.Addr().String())),
	)
}

// maxFile is the length of the field for the file in a message, with the zero byte at its end.
const maxFile = 128
