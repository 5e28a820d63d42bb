// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/boot"
)

// portPair takes two UDP ports on the loopback, of which the second is that of machines.
func portPair(t *testing.T) (server uint16, machines net.PacketConn) {
	t.Helper()

	listen := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		failed := raw.Control(func(fd uintptr) {
			err = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1),
				unix.BindToDevice(int(fd), "lo"))
		})

		return errors.Join(failed, err)
	}}

	for range 50 {
		first, err := listen.ListenPacket(t.Context(), "udp4", "0.0.0.0:0")
		if err != nil {
			t.Fatal(err)
		}

		port := first.LocalAddr().(*net.UDPAddr).Port
		_ = first.Close()

		if conn, err := listen.ListenPacket(t.Context(), "udp4", fmt.Sprintf("0.0.0.0:%d", port+1)); err == nil {
			t.Cleanup(func() { _ = conn.Close() })
			return uint16(port), conn
		}
	}

	t.Fatal("there is no pair of ports")

	return 0, nil
}

// TestBootAddresses: a registered machine asks on an interface of the manager, and gets its address. One that is not
// registered gets no answer, and is listed.
func TestBootAddresses(t *testing.T) {
	t.Parallel()

	port, conn := portPair(t)

	s := prepare(t, "boot: {interfaces: [lo, none0], pool: [127.9.1.100-127.9.1.101], dns: [127.9.1.1]}")
	s.tune = func(o *Options) { o.BootPorts = boot.Ports{DHCP: port, TFTP: freePort(t), Web: freePort(t)} }
	s.up()
	t.Cleanup(s.down)

	status := func() api.BootStatus {
		b, err := s.Boot(s.ctx())
		s.must(err)
		return b
	}
	s.eventually("its interfaces", func() bool { return len(status().Interfaces) == 2 })

	if on := status().Interfaces; on[0].Addr != "127.0.0.1/8" || on[0].Problem != "" ||
		!strings.Contains(on[1].Problem, "no network interface none0") {
		t.Errorf("interfaces: %+v", on)
	}

	known, unknown := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	s.register("r1", machine.BMC{Driver: machine.Manual}, known.String())

	addresses := func() []api.Address {
		all, err := s.Addresses(s.ctx())
		s.must(err)
		return all.Items
	}
	s.eventually("an address of the pool", func() bool { return len(addresses()) == 1 })

	send := func(m *dhcpv4.DHCPv4, err error) {
		t.Helper()
		s.must(err)
		_, err = conn.WriteTo(m.ToBytes(), &net.UDPAddr{IP: net.IPv4bcast, Port: int(port)})
		s.must(err)
	}
	receive := func() *dhcpv4.DHCPv4 {
		t.Helper()
		s.must(conn.SetReadDeadline(time.Now().Add(patience)))

		buffer := make([]byte, 1500)
		n, _, err := conn.ReadFrom(buffer)
		s.must(err)
		m, err := dhcpv4.FromBytes(buffer[:n])
		s.must(err)

		return m
	}

	send(dhcpv4.NewDiscovery(unknown))
	send(dhcpv4.NewDiscovery(known))
	offer := receive()
	send(dhcpv4.NewRequestFromOffer(offer))
	ack := receive()

	for _, m := range []*dhcpv4.DHCPv4{offer, ack} {
		if m.ClientHWAddr.String() != known.String() || m.YourIPAddr.String() != "127.9.1.100" {
			t.Errorf("got %s", m.Summary())
		}
	}

	var asked, answered []string
	for _, q := range status().Queries {
		asked = append(asked, q.MAC)
		if q.Answer != "" {
			answered = append(answered, q.MAC)
		}
	}
	if len(asked) != 2 || len(answered) != 1 || answered[0] != known.String() {
		t.Errorf("asked %v, answered %v", asked, answered)
	}

	// An operator moves it, and what is reserved cannot be had by another.
	if _, err := s.ReserveAddress(s.ctx(), api.AddressRequest{Addr: "127.9.1.7", Node: "r1"}); err != nil {
		t.Error(err)
	}

	s.eventually("the probe of the reservation", func() bool {
		all := addresses()
		return !slices.ContainsFunc(all, func(a api.Address) bool { return a.Unprobed })
	})

	_, err := s.ReserveAddress(s.ctx(), api.AddressRequest{Addr: "127.9.1.8", Node: "r2"})
	if inventory.KindOf(err) != inventory.KindRefused {
		t.Errorf("a machine that is not registered: %v", err)
	}

	send(dhcpv4.NewDiscovery(known))
	if m := receive(); m.YourIPAddr.String() != "127.9.1.7" {
		t.Errorf("after the reservation it got %s", m.Summary())
	}
}
