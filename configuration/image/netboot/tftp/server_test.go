// SPDX-License-Identifier: Apache-2.0

package tftp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	library "github.com/pin/tftp/v3"
	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/inventory/errtest"
)

const (
	loopback = "lo"
	local    = "127.0.0.1"
	never    = time.Hour // a patience that no test outlives
)

// note is how a request went.
type note struct {
	from netip.Addr
	name string
	sent int64
	err  error
}

// files are served by a server that runs until stop.
type files struct {
	*testing.T
	server *Server
	notes  chan note
	opened atomic.Int64
	closed atomic.Int64
	stop   func()
}

// file is a content that notes its end.
type file struct {
	io.Reader

	close func()
}

func (f file) Close() error { f.close(); return nil }

// content returns bytes of a size, which differ from block to block.
func content(size int) []byte {
	all := make([]byte, size)
	for i := range all {
		all[i] = byte(i ^ i>>8 ^ i>>16)
	}

	return all
}

// serve serves files whose names are their sizes: "512/any" has 512 bytes. Those of "short/" have too few.
func serve(t *testing.T, patience time.Duration) *files {
	t.Helper()
	return serveBlocks(t, patience, maxBlock)
}

// serveBlocks serves in blocks of at most so many bytes.
func serveBlocks(t *testing.T, patience time.Duration, block int) *files {
	t.Helper()

	f := &files{T: t, notes: make(chan note, 4*maxTransfers)}

	open := func(_ netip.Addr, name string) (io.ReadCloser, int64, error) {
		var size int
		if _, err := fmt.Sscanf(name, "%d/", &size); err != nil && !strings.HasPrefix(name, "short/") {
			return nil, 0, fs.ErrNotExist
		}

		f.opened.Add(1)
		is := file{bytes.NewReader(content(size)), func() { f.closed.Add(1) }}

		if strings.HasPrefix(name, "short/") {
			return is, 1000, nil
		}

		return is, int64(size), nil
	}

	s, err := Listen(t.Context(), Options{
		Interface: loopback, Addr: netip.MustParseAddrPort(local + ":0"), Open: open,
		Note: func(from netip.Addr, name string, sent int64, err error) { f.notes <- note{from, name, sent, err} },
	})
	errtest.None(t, err)

	s.patience, s.block = patience, block
	f.server = s

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()

	f.stop = func() {
		cancel()

		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
			ended <- nil
		case <-time.After(20 * time.Second):
			t.Error("the server does not end")
			ended <- nil
		}
	}
	t.Cleanup(f.stop)

	return f
}

// noted returns the next note.
func (f *files) noted() note {
	f.Helper()

	select {
	case n := <-f.notes:
		return n
	case <-time.After(20 * time.Second):
		f.Fatal("no request was noted")
		return note{}
	}
}

// machine is a client with packets made by hand.
type machine struct {
	*testing.T
	conn net.PacketConn
	peer net.Addr // who has sent the last packet
}

func (f *files) machine(addr string) *machine {
	f.Helper()

	conn, err := net.ListenPacket("udp4", addr+":0")
	errtest.None(f, err)
	f.Cleanup(func() { _ = conn.Close() })

	return &machine{f.T, conn, net.UDPAddrFromAddrPort(f.server.Addr())}
}

// send sends an operation with fields, each of which a NUL ends.
func (m *machine) send(op byte, fields ...string) {
	m.Helper()

	_, err := m.conn.WriteTo(packet(op, fields...), m.peer)
	errtest.None(m, err)
}

func packet(op byte, fields ...string) []byte {
	out := []byte{0, op}
	for _, s := range fields {
		out = append(append(out, s...), 0)
	}

	return out
}

func (m *machine) ack(block uint16) {
	m.Helper()

	_, err := m.conn.WriteTo(binary.BigEndian.AppendUint16([]byte{0, opAck}, block), m.peer)
	errtest.None(m, err)
}

// receive returns the next packet, of which it expects this begin.
func (m *machine) receive(begin ...byte) []byte {
	m.Helper()
	_ = m.conn.SetReadDeadline(time.Now().Add(20 * time.Second))

	buffer := make([]byte, 1<<16)

	n, from, err := m.conn.ReadFrom(buffer)
	errtest.None(m, err)

	if !bytes.HasPrefix(buffer[:n], begin) {
		m.Fatalf("received %q, which does not begin with %q", buffer[:n], begin)
	}

	m.peer = from

	return buffer[:n]
}

// refused expects an error with a code.
func (m *machine) refused(code byte) {
	m.Helper()
	m.receive(0, opError, 0, code)
}

// get asks the server with the library.
func (f *files) get(name string, block int) ([]byte, error) {
	f.Helper()

	c, err := library.NewClient(f.server.Addr().String())
	errtest.None(f, err)

	c.SetTimeout(20 * time.Second)
	c.RequestTSize(block > 0)

	if block > 0 {
		c.SetBlockSize(block)
	}

	r, err := c.Receive(name, "octet")
	if err != nil {
		return nil, err
	}

	var out bytes.Buffer

	size, ok := r.(library.IncomingTransfer).Size()

	_, err = r.WriteTo(&out)
	if block > 0 && (!ok || size != int64(out.Len())) {
		f.Errorf("%s: the size is %d, %t", name, size, ok)
	}

	return out.Bytes(), err
}

// TestGet takes files of sizes around a block, with the client of the library.
func TestGet(t *testing.T) {
	t.Parallel()

	f := serve(t, never)

	for _, block := range []int{0, 512, 1468, 65464} {
		for _, size := range []int{1, 511, 512, 513, 1024, 1468, 70000} {
			name := fmt.Sprintf("%d/efi", size)

			if got, err := f.get("/"+name, block); err != nil || !bytes.Equal(got, content(size)) {
				t.Errorf("%s in blocks of %d: %d bytes, %v", name, block, len(got), err)
			}

			want := note{netip.MustParseAddr(local), name, int64(size), nil}
			if n := f.noted(); n != want {
				t.Errorf("noted %v, not %v", n, want)
			}
		}
	}

	f.stop()

	if f.opened.Load() == 0 || f.opened.Load() != f.closed.Load() {
		t.Errorf("%d files were opened, and %d closed", f.opened.Load(), f.closed.Load())
	}
}

// TestOptions looks at the bytes of the answers to options.
func TestOptions(t *testing.T) {
	t.Parallel()

	f := serve(t, never)

	for _, c := range []struct{ asked, accepted string }{
		{"", ""},
		{"blksize 8", "blksize 8"},
		{"blksize 65464", "blksize 65464"},
		{"BlkSize 1000 TSIZE 0 timeout 3", "blksize 1000 tsize 700 timeout 3"},
		{"blksize 7", ""},
		{"blksize 65465", ""},
		{"blksize many", ""},
		{"timeout 0 tsize 0", "tsize 700"},
		{"timeout 255", ""},
		{"timeout 9223372036854775807", ""},
		{"windowsize 16 blksize 600 multicast", "blksize 600"},
	} {
		m := f.machine(local)
		m.send(opRead, append([]string{"700/x", "octet"}, strings.Fields(c.asked)...)...)

		if c.accepted == "" {
			if got := m.receive(0, opData, 0, 1); len(got) != header+usualBlock {
				t.Errorf("%q: the first block has %d bytes", c.asked, len(got)-header)
			}
		} else {
			want := packet(opOptions, strings.Fields(c.accepted)...)
			if got := m.receive(0, opOptions); !bytes.Equal(got, want) {
				t.Errorf("%q is answered with %q", c.asked, got)
			}
		}

		m.send(opError, "\x00\x08enough")

		if n := f.noted(); n.sent != 0 || n.err == nil || !strings.Contains(n.err.Error(), `error 8, "enough"`) {
			t.Errorf("noted %v", n)
		}
	}
}

// TestBlockFits gives no block that a packet of the interface cannot hold.
func TestBlockFits(t *testing.T) {
	t.Parallel()

	f := serveBlocks(t, never, 1468)
	m := f.machine(local)
	m.send(opRead, "5000/x", "octet", "blksize", "1469")
	m.receive(packet(opOptions, "blksize", "1468")...)
	m.ack(0)

	if got := m.receive(0, opData, 0, 1); len(got) != header+1468 {
		t.Errorf("the first block has %d bytes", len(got)-header)
	}
}

// TestRefused asks for what is not served. No name with a trick gets to Open.
func TestRefused(t *testing.T) {
	t.Parallel()

	f := serve(t, never)

	for _, c := range []struct {
		op         byte
		name, mode string
		code       byte
		noted      string
	}{
		{opRead, "none", "octet", codeNotFound, "none"},
		{opRead, "1/../../etc/passwd", "octet", codeNotFound, ""},
		{opRead, "//1/x", "octet", codeNotFound, ""},
		{opRead, "", "octet", codeNotFound, ""},
		{opRead, "1/" + strings.Repeat("x", maxName), "octet", codeNotFound, ""},
		{opRead, "1/x", "netascii", codeOther, "1/x"},
		{opRead, "1/x", "", codeOther, "1/x"},
		{opWrite, "1/x", "octet", codeDenied, "1/x"},
		{opWrite, "../x", "octet", codeNotFound, ""},
	} {
		m := f.machine(local)
		m.send(c.op, c.name, c.mode)
		m.refused(c.code)

		if n := f.noted(); n.name != c.noted || n.sent != 0 || n.err == nil {
			t.Errorf("%d %q: noted %v", c.op, c.name, n)
		}
	}

	if n := f.opened.Load(); n != 0 {
		t.Errorf("%d files were opened", n)
	}

	c, err := library.NewClient(f.server.Addr().String())
	errtest.None(t, err)

	if _, err := c.Send("1/x", "octet"); err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("the library may write: %v", err)
	}
}

// TestDamaged sends packets that are no requests: they get no answer, and the next request gets one.
func TestDamaged(t *testing.T) {
	t.Parallel()

	f := serve(t, never)
	m := f.machine(local)

	for _, damaged := range []string{
		"", "\x00", "\x00\x01", "\x00\x01\x00", "\x00\x01x", "\x00\x01x\x00octet", "\x00\x05\x00\x01x\x00",
		"\x00\x04\x00\x01", "\x01\x01x\x00octet\x00", "\xff\xff\xff\xff",
		"\x00\x011/x\x00octet\x00" + strings.Repeat("x", maxRequest),
	} {
		_, err := m.conn.WriteTo([]byte(damaged), m.peer)
		errtest.None(t, err)
	}

	m.send(opRead, "3/x", "octet")
	m.receive(append([]byte{0, opData, 0, 1}, content(3)...)...)
	m.ack(1)

	if n := f.noted(); n.err != nil || len(f.notes) != 0 {
		t.Errorf("noted %v and %d more", n, len(f.notes))
	}
}

// TestStalled has a machine that stops to answer: it gets the packet again, a few times, and its transfer ends.
func TestStalled(t *testing.T) {
	t.Parallel()

	f := serve(t, 20*time.Millisecond)

	for _, options := range [][]string{nil, {"tsize", "0"}} {
		m := f.machine(local)
		m.send(opRead, append([]string{"2000/x", "octet"}, options...)...)

		first := m.receive()
		for range attempts - 1 {
			m.receive(first...)
		}
		m.refused(codeOther)

		if n := f.noted(); n.sent != 0 || !errors.Is(n.err, errSilent) {
			t.Errorf("noted %v", n)
		}
	}
}

// TestOthers serves machines while the transfer of another one waits for it.
func TestOthers(t *testing.T) {
	t.Parallel()

	f := serve(t, never)

	stalled := f.machine(local)
	stalled.send(opRead, "2000/x", "octet")
	stalled.receive(0, opData, 0, 1)

	if got, err := f.get("3000/y", 0); err != nil || !bytes.Equal(got, content(3000)) {
		t.Errorf("%d bytes, %v", len(got), err)
	}

	// A stranger cannot end the transfer, nor go on with it.
	stranger := f.machine(local)
	stranger.peer = stalled.peer
	stranger.send(opError, "\x00\x00no")
	stranger.ack(1)

	for block := range uint16(4) {
		stalled.ack(block)
		if block > 0 && block < 4 {
			stalled.receive(0, opData, 0, byte(block)+1)
		}
	}
	stalled.ack(4)

	if other, n := f.noted(), f.noted(); other.name != "3000/y" || n.err != nil || n.sent != 2000 {
		t.Errorf("noted %v and %v", other, n)
	}
}

// TestLossy has a machine that loses packets, and acknowledges what it has twice. It gets each block.
func TestLossy(t *testing.T) {
	t.Parallel()

	f := serve(t, 20*time.Millisecond)
	m := f.machine(local)
	m.send(opRead, "5000/x", "octet")

	var got []byte

	lost := map[uint16]bool{}

	for block := uint16(1); len(got) < 5000; {
		p := m.receive(0, opData)

		switch number := binary.BigEndian.Uint16(p[2:]); {
		case number > block:
			t.Fatalf("block %d comes before %d", number, block)
		case number%3 == 0 && !lost[number]:
			lost[number] = true
		case number < block:
			m.ack(number)
		default:
			got = append(got, p[header:]...)
			block++

			// The acknowledgement of some is lost.
			if number%3 != 1 {
				m.ack(number)
				m.ack(number)
			}
		}
	}

	m.ack(10)

	if n := f.noted(); !bytes.Equal(got, content(5000)) || n.err != nil || n.sent != 5000 {
		t.Errorf("received %d bytes, noted %v", len(got), n)
	}
}

// TestChanged has a file with fewer bytes than were said: a machine must not take it for the whole.
func TestChanged(t *testing.T) {
	t.Parallel()

	f := serve(t, never)
	m := f.machine(local)
	m.send(opRead, "short/x", "octet")
	m.refused(codeOther)

	if n := f.noted(); n.err == nil || !strings.Contains(n.err.Error(), "1000 bytes") {
		t.Errorf("noted %v", n)
	}
}

// TestBound begins as many transfers as there may be, of one machine and of all. More get no answer until one ends.
func TestBound(t *testing.T) {
	t.Parallel()

	f := serve(t, never)

	var all []*machine

	for i := range maxTransfers {
		m := f.machine(fmt.Sprintf("127.0.1.%d", 1+i/maxPerMachine))
		m.send(opRead, "2000/x", "octet")
		m.receive(0, opData, 0, 1)
		all = append(all, m)

		// One more of the machine that has all its transfers, and at the end one of another machine.
		if i == maxPerMachine-1 || i == maxTransfers-1 {
			more := f.machine(fmt.Sprintf("127.0.1.%d", 1+i/(maxTransfers-1)*100))
			more.send(opRead, "1/more", "octet")

			if n := f.noted(); n.name != "1/more" || !errors.Is(n.err, errBusy) {
				t.Fatalf("noted %v after %d transfers", n, len(all))
			}
		}
	}

	all[0].send(opError, "\x00\x00enough")

	if n := f.noted(); n.err == nil || errors.Is(n.err, errBusy) {
		t.Fatalf("noted %v", n)
	}

	again := f.machine("127.0.1.101")
	again.send(opRead, "1/again", "octet")
	again.receive(0, opData, 0, 1)

	f.stop()

	if f.opened.Load() != maxTransfers+1 || f.closed.Load() != maxTransfers+1 || f.server.count != 0 ||
		len(f.server.transfers) != 0 {
		t.Errorf("%d files were opened, %d closed, and %d transfers are left", f.opened.Load(), f.closed.Load(),
			f.server.count)
	}
}

// TestStop ends a server while a machine is silent: the transfer ends too, and nothing is left open.
func TestStop(t *testing.T) {
	t.Parallel()

	f := serve(t, never)
	m := f.machine(local)
	m.send(opRead, "2000/x", "octet")
	m.receive(0, opData, 0, 1)

	f.stop()

	select {
	case n := <-f.notes:
		if n.sent != 0 || !errors.Is(n.err, context.Canceled) {
			t.Errorf("noted %v", n)
		}
	default:
		t.Error("the transfer goes on")
	}

	if f.closed.Load() != 1 {
		t.Error("the file is open")
	}

	if err := f.server.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the server listens: %v", err)
	}
}

// TestInterface has two servers of one address on two interfaces: a request on the loopback interface is answered by
// the one that is there, from a socket that is bound to it.
func TestInterface(t *testing.T) {
	t.Parallel()

	f := serve(t, never)

	elsewhere, err := Listen(t.Context(), Options{Interface: otherInterface(t), Addr: f.server.Addr()})
	errtest.None(t, err)
	defer elsewhere.Close()

	if got, err := f.get("700/x", 0); err != nil || len(got) != 700 {
		t.Errorf("%d bytes, %v", len(got), err)
	}

	raw, err := elsewhere.conn.SyscallConn()
	errtest.None(t, err)

	if failed := raw.Control(func(fd uintptr) {
		_, _, err = unix.Recvfrom(int(fd), make([]byte, maxRequest), unix.MSG_DONTWAIT)
	}); failed != nil || !errors.Is(err, unix.EAGAIN) {
		t.Errorf("the server on another interface heard it: %v, %v", err, failed)
	}

	// Another server cannot answer from its interface to a machine on the loopback interface.
	r := request{name: "700/x"}
	elsewhere.Open = func(netip.Addr, string) (io.ReadCloser, int64, error) {
		return io.NopCloser(bytes.NewReader(content(700))), 700, nil
	}
	elsewhere.patience = time.Millisecond

	m := f.machine(local)
	to := m.conn.LocalAddr().(*net.UDPAddr).AddrPort()

	if sent, err := elsewhere.transfer(t.Context(), to, r); err == nil || sent != 0 {
		t.Errorf("sent %d bytes from another interface: %v", sent, err)
	}

	m.send(opRead, "3/x", "octet")

	if got := m.receive(0, opData, 0, 1); len(got) != header+3 {
		t.Errorf("received %d bytes, which are those from another interface", len(got))
	}
}

// TestListen refuses what cannot be served.
func TestListen(t *testing.T) {
	t.Parallel()

	f := serve(t, never)

	if _, err := Listen(t.Context(), Options{Interface: loopback, Addr: f.server.Addr()}); !errors.Is(err,
		syscall.EADDRINUSE) {
		t.Errorf("the address is taken twice: %v", err)
	}

	for _, o := range []Options{
		{Interface: "none0", Addr: netip.MustParseAddrPort(local + ":0")},
		{Interface: loopback, Addr: netip.MustParseAddrPort("[::1]:0")},
		{Interface: loopback, Addr: netip.MustParseAddrPort("192.0.2.1:0")},
		{Interface: loopback},
	} {
		if s, err := Listen(t.Context(), o); err == nil {
			t.Errorf("%v is served", o.Addr)
			_ = s.Close()
		}
	}
}

// otherInterface returns an interface that is not the loopback.
func otherInterface(t *testing.T) string {
	t.Helper()

	all, err := net.Interfaces()
	errtest.None(t, err)

	for _, i := range all {
		if i.Flags&net.FlagLoopback == 0 {
			return i.Name
		}
	}

	t.Skip("there is no other interface")

	return ""
}
