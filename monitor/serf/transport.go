// SPDX-License-Identifier: Apache-2.0

package serf

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/contiv/cluster/inventory"
)

// transport wraps memberlist's transport: its connections end with the agent, so
// that a stop never waits for a silent peer.
type transport struct {
	*memberlist.NetTransport
	ctx  context.Context // done when the agent that owns the transport stops
	dial time.Duration   // timeout of one connection

	// partition, if set, is true for addresses (ip:port) that packets do not
	// reach. Only tests set it.
	partition atomic.Pointer[func(addr string) bool]
}

// listen binds TCP and UDP to one port. host is an IP address, or "" for all
// addresses; port 0 takes a free one.
func listen(ctx context.Context, host string, port int, dial time.Duration, to *log.Logger) (*transport, error) {
	const attempts = 10

	var err error
	for i := range attempts {
		if i > 0 && port != 0 {
			break
		}

		// With port 0 the kernel selects a port that is free for TCP, but perhaps
		// not for UDP.
		var nt *memberlist.NetTransport

		nt, err = memberlist.NewNetTransport(&memberlist.NetTransportConfig{
			BindAddrs: []string{host}, BindPort: port, Logger: to,
		})
		if err == nil {
			return &transport{NetTransport: nt, ctx: ctx, dial: dial}, nil
		}
	}

	addr := net.JoinHostPort(host, fmt.Sprint(port))

	return nil, inventory.Errorf(inventory.KindUnavailable, "cannot listen on the gossip address %s: %w", addr, err).
		Do("stop the process that uses it (ss -lntup shows it; one agent per host is enough), " +
			"or choose another gossip.bind")
}

// WriteTo sends a packet.
func (t *transport) WriteTo(b []byte, addr string) (time.Time, error) {
	return t.WriteToAddress(b, memberlist.Address{Addr: addr})
}

// WriteToAddress sends a packet.
func (t *transport) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	if t.isUnreachable(a.Addr) {
		// A lost packet is no error.
		return time.Now(), nil
	}

	return t.NetTransport.WriteToAddress(b, a)
}

// DialTimeout opens a connection.
func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return t.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

// DialAddressTimeout opens a connection.
func (t *transport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	if t.isUnreachable(a.Addr) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.EHOSTUNREACH}
	}

	d := net.Dialer{Timeout: min(timeout, t.dial)}

	c, err := d.DialContext(t.ctx, "tcp", a.Addr)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, stop: context.AfterFunc(t.ctx, func() { c.Close() })}, nil
}

func (t *transport) isUnreachable(addr string) bool {
	f := t.partition.Load()
	return f != nil && (*f)(addr)
}

// discard shuts down a transport without a reader. It drains the channels, since
// a blocked sender would stop the shutdown.
func (t *transport) discard() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = t.Shutdown() // always nil
	}()

	for {
		select {
		case <-t.PacketCh():
		case c := <-t.StreamCh():
			c.Close()
		case <-done:
			return
		}
	}
}

// conn is closed when the transport's context is done.
type conn struct {
	net.Conn
	stop func() bool
}

// Close closes the connection. It may be closed already.
func (c *conn) Close() error {
	c.stop()

	err := c.Conn.Close()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
