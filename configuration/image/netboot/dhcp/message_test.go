// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/contiv/cluster/configuration/image/netboot"
	"github.com/contiv/cluster/inventory/errtest"
)

// TestGateway sends a gateway only to machines of its network.
func TestGateway(t *testing.T) {
	t.Parallel()

	ask, err := dhcpv4.NewDiscovery(net.HardwareAddr{2, 0, 0, 0, 0, 1})
	errtest.None(t, err)

	for gateway, want := range map[string]int{"10.9.1.254": 1, "10.9.2.254": 0, "": 0} {
		s := netboot.Site{Server: netip.MustParsePrefix("10.9.1.1/24")}
		if gateway != "" {
			s.Gateway = netip.MustParseAddr(gateway)
		}

		packet, _, err := encode(ask, netboot.Reply{Type: netboot.Offer, Addr: netip.MustParseAddr("10.9.1.9")}, s)
		errtest.None(t, err)

		offer, err := dhcpv4.FromBytes(packet)
		errtest.None(t, err)

		if n := len(offer.Router()); n != want {
			t.Errorf("the gateway %q: %d routers", gateway, n)
		}
	}
}

// TestLoader reads the classes and architectures that firmware and iPXE send, and writes what they boot.
func TestLoader(t *testing.T) {
	t.Parallel()

	pxe := func(arch iana.Arch) []dhcpv4.Modifier {
		return []dhcpv4.Modifier{
			dhcpv4.WithOption(dhcpv4.OptClassIdentifier("PXEClient:Arch:00000:UNDI:002001")),
			dhcpv4.WithOption(dhcpv4.OptClientArch(arch)),
		}
	}
	web := []dhcpv4.Modifier{
		dhcpv4.WithOption(dhcpv4.OptClassIdentifier("HTTPClient:Arch:00016:UNDI:003001")),
		dhcpv4.WithOption(dhcpv4.OptClientArch(iana.EFI_X86_64_HTTP)),
	}

	for name, c := range map[string]struct {
		with []dhcpv4.Modifier
		want netboot.Loader
	}{
		"an operating system": {[]dhcpv4.Modifier{dhcpv4.WithOption(dhcpv4.OptClassIdentifier("udhcp 1.35"))}, ""},
		"nothing":             {nil, ""},
		"BIOS":                {pxe(iana.INTEL_X86PC), netboot.BIOS},
		"UEFI":                {pxe(iana.EFI_X86_64), netboot.UEFI},
		"UEFI byte code":      {pxe(iana.EFI_BC), netboot.UEFI},
		"arm64":               {pxe(iana.EFI_ARM64), netboot.UEFIArm},
		"Itanium":             {pxe(iana.EFI_ITANIUM), netboot.Unknown},
		"no architecture":     {pxe(iana.INTEL_X86PC)[:1], netboot.Unknown},
		"HTTP":                {web, netboot.HTTP},
		"iPXE": {append(pxe(iana.INTEL_X86PC),
			dhcpv4.WithGeneric(dhcpv4.OptionUserClassInformation, []byte("iPXE"))), netboot.IPXE},
		"a list of classes": {[]dhcpv4.Modifier{dhcpv4.WithUserClass("iPXE", true)}, netboot.IPXE},
	} {
		ask, err := dhcpv4.NewDiscovery(net.HardwareAddr{2, 0, 0, 0, 0, 1}, c.with...)
		errtest.None(t, err)

		q, m, err := parse(ask.ToBytes())
		errtest.None(t, err)

		if q.Loader != c.want {
			t.Errorf("%s: %q, want %q", name, q.Loader, c.want)
		}

		for _, file := range []string{"", "undionly.kpxe", "http://10.9.1.1:9480/" + strings.Repeat("x", 150)} {
			r := netboot.Reply{Type: netboot.Offer, Addr: netip.MustParseAddr("10.9.1.9"), File: file}

			packet, _, err := encode(m, r, netboot.Site{Server: netip.MustParsePrefix("10.9.1.1/24")})
			errtest.None(t, err)
			offer, err := dhcpv4.FromBytes(packet)
			errtest.None(t, err)

			next := ""
			if file != "" {
				next = "10.9.1.1"
			}
			if offer.BootFileNameOption() != file || offer.TFTPServerName() != next {
				t.Errorf("%s gets %s, want %q", name, offer.Summary(), file)
			}

			class := ""
			if file != "" && c.want == netboot.HTTP {
				class = "HTTPClient"
			}
			if offer.ClassIdentifier() != class {
				t.Errorf("%s: the answer has the class %q, want %q", name, offer.ClassIdentifier(), class)
			}
		}
	}
}
