// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/configuration/image/netboot"
)

const loopback = "lo"

var (
	server = netip.MustParsePrefix("127.0.0.1/8")
	given  = netip.MustParseAddr("127.9.1.100")
	site   = netboot.Site{
		Server: server, Gateway: netip.MustParseAddr("127.9.1.254"), Lease: time.Hour,
		DNS: []netip.Addr{netip.MustParseAddr("127.9.1.2"), netip.MustParseAddr("127.9.1.3")},
	}
)

// answers gives the address to everybody, and notes who asked.
type answers struct {
	mu   sync.Mutex
	macs []string
}

func (a *answers) answer(q netboot.Query) (netboot.Reply, netboot.Site) {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.macs = append(a.macs, q.MAC)
	r, _ := netboot.Answer(q, site, &netboot.Machine{Node: "r1", Addr: given})

	return r, site
}

// client is a machine that asks on the loopback interface.
type client struct {
	*testing.T
	conn net.PacketConn
	port int // of the server
	mac  net.HardwareAddr
}

// newClient takes a pair of ports, the second of which is the client's.
func newClient(t *testing.T) client {
	t.Helper()

	for range 50 {
		first, err := listenOn(t, loopback, 0)
		if err != nil {
			t.Fatal(err)
		}

		port := first.LocalAddr().(*net.UDPAddr).Port
		_ = first.Close()

		if conn, err := listenOn(t, loopback, port+1); err == nil {
			t.Cleanup(func() { _ = conn.Close() })
			return client{t, conn, port, net.HardwareAddr{0x52, 0x54, 0, 0, 0, 1}}
		}
	}

	t.Fatal("there is no pair of ports")

	return client{}
}

func listenOn(t *testing.T, device string, port int) (net.PacketConn, error) {
	t.Helper()

	listen := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		failed := raw.Control(func(fd uintptr) {
			err = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1),
				unix.BindToDevice(int(fd), device))
		})

		return errors.Join(failed, err)
	}}

	return listen.ListenPacket(t.Context(), "udp4", fmt.Sprintf("0.0.0.0:%d", port))
}

func (c client) send(m *dhcpv4.DHCPv4, err error) {
	c.Helper()
	if err == nil {
		_, err = c.conn.WriteTo(m.ToBytes(), &net.UDPAddr{IP: net.IPv4bcast, Port: c.port})
	}
	if err != nil {
		c.Fatal(err)
	}
}

func (c client) receive() *dhcpv4.DHCPv4 {
	c.Helper()
	_ = c.conn.SetReadDeadline(time.Now().Add(20 * time.Second))

	buffer := make([]byte, maxPacket)
	n, _, err := c.conn.ReadFrom(buffer)
	if err != nil {
		c.Fatal(err)
	}

	m, err := dhcpv4.FromBytes(buffer[:n])
	if err != nil {
		c.Fatal(err)
	}

	return m
}

// serve serves until stop, which returns who asked.
func (c client) serve() (stop func() []string) {
	c.Helper()

	a := &answers{}

	s, err := Listen(c.Context(), Options{Interface: loopback, Port: uint16(c.port), Answer: a.answer})
	if err != nil {
		c.Fatal(err)
	}

	ctx, cancel := context.WithCancel(c.Context())
	ended := make(chan error)
	go func() { ended <- s.Serve(ctx) }()

	return func() []string {
		cancel()
		if err := <-ended; err != nil {
			c.Error(err)
		}
		return a.macs
	}
}

// TestExchange asks for an address as a machine does.
func TestExchange(t *testing.T) {
	t.Parallel()

	c := newClient(t)
	stop := c.serve()

	c.send(dhcpv4.NewDiscovery(c.mac))
	offer := c.receive()

	if offer.MessageType() != dhcpv4.MessageTypeOffer || addrOf(offer.YourIPAddr) != given ||
		addrOf(offer.ServerIdentifier()) != server.Addr() || offer.IPAddressLeaseTime(0) != time.Hour {
		t.Errorf("offered %s", offer.Summary())
	}

	c.send(dhcpv4.NewRequestFromOffer(offer))
	ack := c.receive()

	if ack.MessageType() != dhcpv4.MessageTypeAck || addrOf(ack.YourIPAddr) != given ||
		ack.SubnetMask().String() != "ff000000" || len(ack.DNS()) != 2 || addrOf(ack.Router()[0]) != site.Gateway {
		t.Errorf("acknowledged %s", ack.Summary())
	}

	// It wants an address that it had elsewhere.
	c.send(dhcpv4.New(dhcpv4.WithHwAddr(c.mac), dhcpv4.WithMessageType(dhcpv4.MessageTypeRequest),
		dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(net.IPv4(192, 0, 2, 7)))))

	if nak := c.receive(); nak.MessageType() != dhcpv4.MessageTypeNak || addrOf(nak.YourIPAddr).IsValid() {
		t.Errorf("refused with %s", nak.Summary())
	}

	if asked := stop(); len(asked) != 3 {
		t.Errorf("%d queries were seen, not 3", len(asked))
	}
}

// TestInterface asks on the loopback interface, where one server answers. Another one is on another interface, with the
// same port, and hears nothing.
func TestInterface(t *testing.T) {
	t.Parallel()

	c := newClient(t)

	elsewhere, err := Listen(t.Context(), Options{Interface: otherInterface(t), Port: uint16(c.port)})
	if err != nil {
		t.Fatal(err)
	}
	defer elsewhere.Close()

	stop := c.serve()

	c.send(dhcpv4.NewDiscovery(c.mac))
	c.receive()

	if asked := stop(); !slices.Equal(asked, []string{c.mac.String()}) {
		t.Errorf("heard %v", asked)
	}

	raw, err := elsewhere.conn.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}

	if failed := raw.Control(func(fd uintptr) {
		_, _, err = unix.Recvfrom(int(fd), make([]byte, maxPacket), unix.MSG_DONTWAIT)
	}); failed != nil || !errors.Is(err, unix.EAGAIN) {
		t.Errorf("the server on another interface heard it: %v, %v", err, failed)
	}

	if s, err := Listen(t.Context(), Options{Interface: "none0"}); err == nil {
		_ = s.Close()
		t.Error("an interface that does not exist is served")
	}
}

// otherInterface returns an interface that is not the loopback.
func otherInterface(t *testing.T) string {
	t.Helper()

	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}

	for _, i := range all {
		if i.Flags&net.FlagLoopback == 0 {
			return i.Name
		}
	}

	t.Skip("there is no other interface")

	return ""
}

// TestFull fills the queue before anybody works on it: the rest is dropped, and counted.
func TestFull(t *testing.T) {
	t.Parallel()

	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	s := &Server{conn: &flood{PacketConn: conn, left: queueSize + 7}, queue: make(chan []byte, queueSize)}
	if err := s.receive(); err == nil || s.Dropped() != 7 || len(s.queue) != queueSize {
		t.Errorf("%d were dropped and %d wait: %v", s.Dropped(), len(s.queue), err)
	}

	_ = conn.Close()
}

// flood is a connection with many packets.
type flood struct {
	net.PacketConn

	left int
}

func (f *flood) ReadFrom(b []byte) (int, net.Addr, error) {
	if f.left == 0 {
		return 0, nil, net.ErrClosed
	}
	f.left--

	return len(b), nil, nil
}

// TestRenew sends the answer to the address that a machine has already, and broadcasts all others.
func TestRenew(t *testing.T) {
	t.Parallel()

	for has, want := range map[string]string{"": "255.255.255.255", given.String(): given.String()} {
		m, err := dhcpv4.New(
			dhcpv4.WithHwAddr(net.HardwareAddr{2, 0, 0, 0, 0, 1}),
			dhcpv4.WithClientIP(net.ParseIP(has)),
			dhcpv4.WithMessageType(dhcpv4.MessageTypeRequest),
		)
		if err != nil {
			t.Fatal(err)
		}

		_, to, err := encode(m, netboot.Reply{Type: netboot.Ack, Addr: given}, site)
		if err != nil || to.String() != want {
			t.Errorf("%q: to %s, %v", has, to, err)
		}
	}
}

// FuzzHandle takes packets of any content: each is either no query, or has an answer that can be read again.
func FuzzHandle(f *testing.F) {
	mac := net.HardwareAddr{0x52, 0x54, 0, 0, 0, 1}
	discover, err := dhcpv4.NewDiscovery(mac, dhcpv4.WithUserClass("iPXE", false))
	if err != nil {
		f.Fatal(err)
	}

	f.Add(discover.ToBytes())
	f.Add(discover.ToBytes()[:200])
	f.Add([]byte{1, 1, 6})

	f.Fuzz(func(t *testing.T, packet []byte) {
		q, m, err := parse(packet)
		if err != nil {
			return
		}

		if hw, err := net.ParseMAC(q.MAC); err != nil || len(hw) != 6 {
			t.Errorf("the MAC is %q", q.MAC)
		}

		for _, r := range []netboot.Reply{{Type: netboot.Offer, Addr: given}, {Type: netboot.Nak}} {
			out, _, err := encode(m, r, site)
			if err != nil {
				t.Fatal(err)
			}

			back, err := dhcpv4.FromBytes(out)
			if err != nil || types[back.MessageType()] != r.Type || back.TransactionID != m.TransactionID {
				t.Errorf("answered %x: %v", out, err)
			}
		}
	})
}
