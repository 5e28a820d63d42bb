// SPDX-License-Identifier: Apache-2.0

package tftp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// Port is where TFTP servers listen.
	Port = 69

	maxTransfers  = 200 // at once
	maxPerMachine = 8   // at once: a machine that starts again leaves a transfer behind
	maxDuration   = 10 * time.Minute

	attempts = 8           // to send a packet
	patience = time.Second // after each of them, where the machine asks for no other

	overhead = 20 + 8 + header // bytes of a packet besides its data, by IPv4 and UDP
)

var (
	errBusy   = errors.New("there are too many transfers")
	errSilent = errors.New("the machine has stopped to answer")
	errSlow   = fmt.Errorf("the transfer took longer than %s", maxDuration)
)

// Options describe a Server.
type Options struct {
	Interface string
	Addr      netip.AddrPort // on the interface, IPv4; port 0: any that is free

	// Open returns the content of a name for the machine with this address, and its size. After an error the machine
	// is told that there is no such file. The name is relative, with slashes, and has neither empty parts, dots for
	// parts, backslashes nor characters that cannot be printed. Open may be called at once; neither it nor reading
	// the content may block.
	Open func(from netip.Addr, name string) (io.ReadCloser, int64, error)

	// Note hears how each request went, and how many bytes of the content the machine has acknowledged. The name is
	// empty where it was not one for Open. It may be called at once, and must not block. Nil: nobody hears it.
	Note func(from netip.Addr, name string, sent int64, err error)
}

// Server gives files on one interface.
type Server struct {
	Options

	conn     *net.UDPConn
	block    int // the most bytes of a block that fit into a packet of the interface
	patience time.Duration

	mu        sync.Mutex
	transfers map[netip.Addr]int
	count     int // of all transfers
}

// Listen binds the address on the interface. The caller has to call Serve, or Close.
func Listen(ctx context.Context, o Options) (*Server, error) {
	on, err := net.InterfaceByName(o.Interface)
	if err != nil {
		return nil, fmt.Errorf("there is no network interface %s", o.Interface)
	}

	if o.Note == nil {
		o.Note = func(netip.Addr, string, int64, error) {}
	}

	s := &Server{
		Options: o, patience: patience, transfers: map[netip.Addr]int{},
		block: min(max(on.MTU-overhead, usualBlock), maxBlock),
	}

	listen := net.ListenConfig{Control: s.bind}

	conn, err := listen.ListenPacket(ctx, "udp4", o.Addr.String())
	if err != nil {
		return nil, err
	}

	s.conn = conn.(*net.UDPConn)

	return s, nil
}

// bind binds a socket to the interface: nothing goes out, or comes in, elsewhere.
func (s *Server) bind(_, _ string, raw syscall.RawConn) (err error) {
	failed := raw.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), s.Interface) })
	return errors.Join(failed, err)
}

// Addr returns where the server listens.
func (s *Server) Addr() netip.AddrPort { return s.conn.LocalAddr().(*net.UDPAddr).AddrPort() }

// Close ends a server that does not serve.
func (s *Server) Close() error { return s.conn.Close() }

// Serve answers until ctx ends, which closes the server and cuts all transfers, and returns why it ended before; nil:
// it did not. No transfer goes on after it.
func (s *Server) Serve(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()

	serving, cut := context.WithCancel(ctx)

	var tasks sync.WaitGroup

	err := s.receive(serving, &tasks)
	cut()
	tasks.Wait()

	if ctx.Err() != nil {
		return nil
	}

	return errors.Join(err, s.Close())
}

// receive begins transfers until the server is closed.
func (s *Server) receive(ctx context.Context, tasks *sync.WaitGroup) error {
	buffer := make([]byte, maxRequest+1)

	for {
		n, from, err := s.conn.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return err
		}

		switch r, err := parse(buffer[:n]); {
		case errors.Is(err, errMalformed):
		case err != nil:
			s.refuse(from, err)
			s.Note(from.Addr(), r.name, 0, err)
		case !s.take(from.Addr()):
			// A machine without an answer asks again, and finds room later.
			s.Note(from.Addr(), r.name, 0, errBusy)
		default:
			tasks.Go(func() {
				sent, err := s.transfer(ctx, from, r)
				s.leave(from.Addr())
				s.Note(from.Addr(), r.name, sent, err)
			})
		}
	}
}

// take takes a place for a transfer, if there is one.
func (s *Server) take(from netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.count >= maxTransfers || s.transfers[from] >= maxPerMachine {
		return false
	}

	s.count++
	s.transfers[from]++

	return true
}

func (s *Server) leave(from netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.count--
	s.transfers[from]--

	if s.transfers[from] == 0 {
		delete(s.transfers, from)
	}
}

// refuse answers a request that begins no transfer.
func (s *Server) refuse(from netip.AddrPort, err error) {
	if r, ok := errors.AsType[refusal](err); ok {
		_, _ = s.conn.WriteToUDPAddrPort(failure(r.code, r.told), from)
	}
}

// transfer sends what was asked for, from a port of its own. The end of ctx cuts it.
func (s *Server) transfer(ctx context.Context, to netip.AddrPort, r request) (int64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, maxDuration, errSlow)
	defer cancel()

	content, size, err := s.Open(to.Addr(), r.name)
	if err != nil {
		s.refuse(to, refusal{err, codeNotFound, "file not found"})
		return 0, err
	}
	defer content.Close()

	// The socket is connected: it hears this machine only, and when the machine does not listen any more.
	dial := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(s.Addr().Addr(), 0)), Control: s.bind}

	conn, err := dial.DialContext(ctx, "udp4", to.String())
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()

	r.block = min(r.block, s.block)
	t := transfer{conn: conn, block: usualBlock, patience: s.patience}

	if r.block > 0 {
		t.block = r.block
	}
	if r.timeout > 0 {
		t.patience = r.timeout
	}

	sent, err := t.send(content, size, r.accept(size))
	if ctx.Err() != nil && err != nil {
		err = context.Cause(ctx)
	}

	return sent, err
}
