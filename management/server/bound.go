// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// The bounds of the connections to a listener. Of one that other hosts reach, the bound
// for each address leaves room for others.
const (
	maxConns        = 2048
	maxConnsPerAddr = 256
	maxLocalConns   = 1024 // of a listener for this host
)

// boundedListener bounds its open connections, in total and for each address. At a
// bound, a new connection replaces the one that has been idle for the longest time: so
// many idle ones keep nobody out.
type boundedListener struct {
	net.Listener
	most, mostPerAddr int

	mu    sync.Mutex
	conns map[*boundedConn]struct{}
	open  map[string]int // by address
}

func bounded(l net.Listener, most, mostPerAddr int) *boundedListener {
	return &boundedListener{
		Listener: l, most: most, mostPerAddr: mostPerAddr, conns: map[*boundedConn]struct{}{}, open: map[string]int{},
	}
}

// Accept returns the next connection within the bounds. It closes one for which no
// idle one makes room.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}

		// A Unix socket has no addresses: all its clients are on this host.
		addr, _, _ := net.SplitHostPort(c.RemoteAddr().String())
		next := &boundedConn{Conn: c, listener: l, addr: addr, idle: time.Now()}

		replaced, ok := l.enter(next)
		if replaced != nil {
			_ = replaced.Close()
		}
		if ok {
			return next, nil
		}

		_ = c.Close()
	}
}

// enter counts a connection. At a bound it returns the idle connection that has to
// make room, or reports that there is none.
func (l *boundedListener) enter(next *boundedConn) (replaced *boundedConn, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()

	ofAddr := l.open[next.addr] >= l.mostPerAddr

	if ofAddr || len(l.conns) >= l.most {
		for c := range l.conns {
			if c.idle.IsZero() || ofAddr && c.addr != next.addr {
				continue
			}

			if replaced == nil || c.idle.Before(replaced.idle) {
				replaced = c
			}
		}

		if replaced == nil {
			return nil, false
		}

		l.forget(replaced)
	}

	l.conns[next] = struct{}{}
	l.open[next.addr]++

	return replaced, true
}

// forget ends the count of a connection, once. The caller holds the lock.
func (l *boundedListener) forget(c *boundedConn) {
	if _, counted := l.conns[c]; !counted {
		return
	}

	delete(l.conns, c)

	if l.open[c.addr]--; l.open[c.addr] == 0 {
		delete(l.open, c.addr)
	}
}

// boundedConn is a counted connection.
type boundedConn struct {
	net.Conn
	listener *boundedListener
	addr     string
	idle     time.Time // since when it waits for a request; zero: it serves one
}

// Close closes the connection, and makes room for another one.
func (c *boundedConn) Close() error {
	c.listener.mu.Lock()
	c.listener.forget(c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// noteState keeps the time since when a connection is idle. One whose request has not
// arrived yet counts as idle.
func noteState(conn net.Conn, state http.ConnState) {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}

	c, ok := conn.(*boundedConn)
	if !ok {
		return
	}
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()

	c.idle = time.Time{}
	if state == http.StateNew || state == http.StateIdle {
		c.idle = time.Now()
	}
}
