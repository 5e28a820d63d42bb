// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/configuration/image/netboot"
)

const (
	// Port is where DHCP servers listen. Machines listen on the next one.
	Port = 67

	workers   = 4
	queueSize = 1024 // packets that wait for a worker; more are dropped, and the machines ask again
	maxPacket = 1500 // bytes
)

// Options describe a Server.
type Options struct {
	Interface string
	Port      uint16 // 0: Port
	// Answer decides on a query. It may be called at once, and must not block.
	Answer func(netboot.Query) (netboot.Reply, netboot.Site)
}

// Server answers on one interface.
type Server struct {
	answer  func(netboot.Query) (netboot.Reply, netboot.Site)
	conn    net.PacketConn
	clients uint16
	queue   chan []byte
	dropped atomic.Uint64
}

// Listen binds the port on the interface. The caller has to call Serve, or Close.
func Listen(ctx context.Context, o Options) (*Server, error) {
	if o.Port == 0 {
		o.Port = Port
	}

	listen := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		failed := raw.Control(func(fd uintptr) { err = setOptions(int(fd), o.Interface) })
		return errors.Join(failed, err)
	}}

	conn, err := listen.ListenPacket(ctx, "udp4", fmt.Sprintf("0.0.0.0:%d", o.Port))
	if err != nil {
		return nil, err
	}

	return &Server{answer: o.Answer, conn: conn, clients: o.Port + 1, queue: make(chan []byte, queueSize)}, nil
}

// setOptions binds a socket to the interface, and lets it broadcast. Sockets on other interfaces may have the port too.
func setOptions(fd int, on string) error {
	return errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1),
		unix.BindToDevice(fd, on),
	)
}

// Close ends a server.
func (s *Server) Close() error { return s.conn.Close() }

// Dropped returns how many packets found the queue full.
func (s *Server) Dropped() uint64 { return s.dropped.Load() }

// Serve answers until ctx ends, which closes the server, and returns why it ended before; nil: it did not.
func (s *Server) Serve(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()

	var tasks sync.WaitGroup
	for range workers {
		tasks.Go(func() {
			for packet := range s.queue {
				s.handle(packet)
			}
		})
	}

	err := s.receive()
	close(s.queue)
	tasks.Wait()

	if ctx.Err() != nil {
		return nil
	}

	return errors.Join(err, s.Close())
}

// receive fills the queue until the server is closed.
func (s *Server) receive() error {
	buffer := make([]byte, maxPacket)

	for {
		n, _, err := s.conn.ReadFrom(buffer)
		if err != nil {
			return err
		}

		select {
		case s.queue <- append([]byte(nil), buffer[:n]...):
		default:
			s.dropped.Add(1)
		}
	}
}

// handle answers a packet. What is malformed, and what cannot be sent, is dropped: the machine asks again.
func (s *Server) handle(packet []byte) {
	q, m, err := parse(packet)
	if err != nil {
		return
	}

	reply, site := s.answer(q)
	if reply.Type == "" {
		return
	}

	out, to, err := encode(m, reply, site)
	if err != nil {
		return
	}

	_, _ = s.conn.WriteTo(out, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, s.clients)))
}
