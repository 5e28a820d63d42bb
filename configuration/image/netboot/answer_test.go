// SPDX-License-Identifier: Apache-2.0

package netboot_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/configuration/image/netboot"
)

var (
	own   = netip.MustParseAddr("10.9.1.100")
	other = netip.MustParseAddr("10.9.1.101")
	site  = netboot.Site{Server: netip.MustParsePrefix("10.9.1.1/24"), Lease: time.Hour}
)

// TestAnswer goes over the grid of machines, types, chosen servers and addresses, and counts what each gets.
func TestAnswer(t *testing.T) {
	t.Parallel()

	machines := map[string]*netboot.Machine{
		"unknown": nil,
		"known":   {Node: "r1", Addr: own},
		"none":    {Node: "r1"},
		"outside": {Node: "r1", Addr: netip.MustParseAddr("10.9.2.100")},
		"manager": {Node: "r1", Addr: site.Server.Addr()},
		"problem": {Node: "r1", Addr: own, Problem: "somebody else has it"},
	}
	types := []netboot.Type{netboot.Discover, netboot.Request, netboot.Decline, "inform", "release", ""}
	servers := []netip.Addr{{}, site.Server.Addr(), netip.MustParseAddr("10.9.1.2")}
	count := map[netboot.Type]int{}

	for name, m := range machines {
		for _, kind := range types {
			for _, server := range servers {
				for _, addr := range []netip.Addr{{}, own, other} {
					for _, relayed := range []bool{false, true} {
						q := netboot.Query{
							Type:    kind,
							MAC:     "52:54:00:00:00:01",
							Server:  server,
							Addr:    addr,
							Relayed: relayed,
						}

						got, why := netboot.Answer(q, site, m)
						count[got.Type]++

						if why == "" {
							t.Errorf("%s, %+v: no reason", name, q)
						}

						if got.Type != "" && (name != "known" || relayed) {
							t.Errorf("%s, %+v: got %+v", name, q, got)
						}

						if want := got.Type == netboot.Offer || got.Type == netboot.Ack; want != (got.Addr == own) {
							t.Errorf("%s, %+v: got %+v", name, q, got)
						}
					}
				}
			}
		}
	}

	// A discover is offered the address whatever it says: 3 servers, 3 addresses. A request without a server, or with
	// this one, is confirmed for its own address alone.
	for kind, want := range map[netboot.Type]int{netboot.Offer: 9, netboot.Ack: 2, netboot.Nak: 4} {
		if count[kind] != want {
			t.Errorf("%d answers of type %s, not %d", count[kind], kind, want)
		}
	}
}

// TestIsHost tells hosts from the network and its broadcast address.
func TestIsHost(t *testing.T) {
	t.Parallel()

	for network, hosts := range map[string]int{
		"10.9.1.9/24": 254, "10.9.1.9/29": 6, "10.9.1.9/30": 2, "10.9.1.9/31": 2, "10.9.1.9/32": 1,
	} {
		n, addr := 0, netip.MustParseAddr("10.9.0.0")
		for range 3 * 256 {
			if netboot.IsHost(netip.MustParsePrefix(network), addr) {
				n++
			}
			addr = addr.Next()
		}

		if n != hosts {
			t.Errorf("%s has %d hosts, want %d", network, n, hosts)
		}
	}

	for addr, want := range map[string]netboot.Type{"10.9.1.0": "", "10.9.1.255": "", "10.9.1.254": netboot.Offer} {
		m := &netboot.Machine{Node: "r1", Addr: netip.MustParseAddr(addr)}
		at := netboot.Site{Server: netip.MustParsePrefix("10.9.1.9/24")}

		if got, _ := netboot.Answer(netboot.Query{Type: netboot.Discover}, at, m); got.Type != want {
			t.Errorf("%s: %+v", addr, got)
		}
	}
}

// TestTwins gives nothing to a MAC of two nodes, and names both.
func TestTwins(t *testing.T) {
	t.Parallel()

	m := &netboot.Machine{Node: "r1", Twin: "r2", Addr: own}

	got, why := netboot.Answer(netboot.Query{Type: netboot.Discover}, site, m)
	if got != (netboot.Reply{}) || !strings.Contains(why, "r1") || !strings.Contains(why, "r2") {
		t.Errorf("got %+v, because %s", got, why)
	}
}

// TestBootFile counts what each loader gets: only a machine that is to boot gets a file, and an operating system none.
func TestBootFile(t *testing.T) {
	t.Parallel()

	s := site
	s.Web = 9480

	want := map[netboot.Loader]string{
		"":              "",
		netboot.IPXE:    "http://10.9.1.1:9480/boot/script?mac=52%3A54%3A00%3A00%3A00%3A01",
		netboot.BIOS:    "undionly.kpxe",
		netboot.UEFI:    "snponly.efi",
		netboot.UEFIArm: "snponly-arm64.efi",
		netboot.HTTP:    "http://10.9.1.1:9480/boot/files/snponly.efi",
		netboot.HTTPArm: "http://10.9.1.1:9480/boot/files/snponly-arm64.efi",
		netboot.Unknown: "",
	}

	for _, boots := range []bool{false, true} {
		m := &netboot.Machine{Node: "r1", Addr: own, Boots: boots}

		for loader, file := range want {
			if !boots {
				file = ""
			}

			for _, q := range []netboot.Query{
				{Type: netboot.Discover}, {Type: netboot.Request, Addr: own}, {Type: netboot.Request, Addr: other},
			} {
				q.MAC, q.Loader = "52:54:00:00:00:01", loader

				got, why := netboot.Answer(q, s, m)
				if got.Type == netboot.Nak {
					if got.File != "" {
						t.Errorf("a machine that is refused gets %s", got.File)
					}
					continue
				}

				if got.File != file || got.Addr != own {
					t.Errorf("%q, boots %t, %s: got %+v (%s), want %q", loader, boots, q.Type, got, why, file)
				}
			}
		}
	}
}
