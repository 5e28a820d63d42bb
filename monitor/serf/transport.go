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

// transport is memberlist's own transport, with connections that end when the
// agent does: a stop never waits for a peer that does not answer.
type transport struct {
	*memberlist.NetTransport
	ctx  context.Context // ends with the agent that owns the transport
	dial time.Duration   // for one connection

	// cut, where it is set, tells to which addresses (ip:port) nothing gets
	// through. Only tests set it.
	cut atomic.Pointer[func(addr string) bool]
}

// listen binds TCP and UDP to one port. host is an IP address, or "" for all of
// them; port 0 takes a free one.
func listen(ctx context.Context, host string, port int, dial time.Duration, to *log.Logger) (*transport, error) {
	const tries = 10

	var err error
	for i := range tries {
		if i > 0 && port != 0 {
			break
		}

		// With port 0 the kernel picks one that is free for TCP; UDP may not
		// have it.
		var nt *memberlist.NetTransport

		nt, err = memberlist.NewNetTransport(&memberlist.NetTransportConfig{
			BindAddrs: []string{host}, BindPort: port, Logger: to,
		})
		if err == nil {
			return &transport{NetTransport: nt, ctx: ctx, dial: dial}, nil
		}
	}

	return nil, inventory.Errorf(inventory.KindUnavailable, "the gossip address %s cannot be used: %w", net.JoinHostPort(host, fmt.Sprint(port)), err).
		Do("stop what has it (ss -lntup shows what; one agent a host is enough), or choose another gossip.bind")
}

// WriteTo sends a packet.
func (t *transport) WriteTo(b []byte, addr string) (time.Time, error) {
	return t.WriteToAddress(b, memberlist.Address{Addr: addr})
}

// WriteToAddress sends a packet.
func (t *transport) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	if t.isCut(a.Addr) {
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
	if t.isCut(a.Addr) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.EHOSTUNREACH}
	}

	d := net.Dialer{Timeout: min(timeout, t.dial)}

	c, err := d.DialContext(t.ctx, "tcp", a.Addr)
	if err != nil {
		return nil, err
	}

	return &conn{Conn: c, stop: context.AfterFunc(t.ctx, func() { c.Close() })}, nil
}

func (t *transport) isCut(addr string) bool {
	f := t.cut.Load()
	return f != nil && (*f)(addr)
}

// discard shuts down a transport that nobody reads from.
func (t *transport) discard() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		t.Shutdown()
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

// conn ends when the transport's context does.
type conn struct {
	net.Conn
	stop func() bool
}

// Close ends the connection.
func (c *conn) Close() error {
	c.stop()

	err := c.Conn.Close()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}

	return err
}
