// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"syscall"

	"github.com/contiv/cluster/inventory"
)

// The bounds of the connections to a listener that other hosts reach. The second
// leaves room for others beside one address.
const (
	maxConns        = 2048
	maxConnsPerAddr = 256
)

// ListenTLS listens for HTTPS on ADDR:PORT. It closes connections beyond its
// bounds at once. A handshake has the time of a request's header.
func ListenTLS(addr string, config *tls.Config) (net.Listener, error) {
	l, err := listenPort(addr)
	if err != nil {
		return nil, err
	}

	return tls.NewListener(bounded(l, maxConns, maxConnsPerAddr), config), nil
}

// ListenMetrics listens on ADDR:PORT for the metrics and the health, over plain
// HTTP and without authentication. Serve serves nothing else on it.
func ListenMetrics(addr string) (net.Listener, error) {
	l, err := listenPort(addr)
	if err != nil {
		return nil, err
	}

	return metricsListener{bounded(l, maxConns, maxConnsPerAddr)}, nil
}

// metricsListener marks a listener for the metrics and the health.
type metricsListener struct{ net.Listener }

func listenPort(addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)

	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, inventory.Errorf(inventory.KindRefused, "another process listens on %s: %w", addr, err).
			Do("choose another port, or stop that process: ss -ltnp")
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, inventory.Errorf(inventory.KindInvalid, "cannot listen on %s: this host has no such address", addr).
			Do("write an address of this host (ip address), or 0.0.0.0:PORT for all of them")
	case err != nil:
		return nil, inventory.Errorf(inventory.KindUnavailable, "cannot listen on %s: %w", addr, err)
	}

	return l, nil
}

// boundedListener bounds its open connections, in total and for each address.
type boundedListener struct {
	net.Listener
	most, mostPerAddr int

	mu    sync.Mutex
	total int
	open  map[string]int // by address
}

func bounded(l net.Listener, most, mostPerAddr int) *boundedListener {
	return &boundedListener{Listener: l, most: most, mostPerAddr: mostPerAddr, open: map[string]int{}}
}

// Accept returns the next connection within the bounds.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}

		addr, _, err := net.SplitHostPort(c.RemoteAddr().String())
		if err == nil && l.enter(addr) {
			return &boundedConn{Conn: c, leave: sync.OnceFunc(func() { l.leave(addr) })}, nil
		}

		_ = c.Close()
	}
}

func (l *boundedListener) enter(addr string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.total >= l.most || l.open[addr] >= l.mostPerAddr {
		return false
	}

	l.total++
	l.open[addr]++

	return true
}

func (l *boundedListener) leave(addr string) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.total--

	if l.open[addr]--; l.open[addr] == 0 {
		delete(l.open, addr)
	}
}

// boundedConn leaves its listener when it is closed.
type boundedConn struct {
	net.Conn

	leave func()
}

// Close closes the connection.
func (c *boundedConn) Close() error {
	defer c.leave()

	return c.Conn.Close()
}
