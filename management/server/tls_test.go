// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/pki"
)

// TestBoundedListener opens more connections than a listener takes: at a bound, a new
// one replaces the longest idle one of the same address, or is closed.
func TestBoundedListener(t *testing.T) {
	t.Parallel()

	inner, err := net.Listen("tcp", "127.0.0.1:0")
	errtest.None(t, err)
	defer inner.Close()

	for _, c := range []struct{ most, mostPerAddr int }{{3, 9}, {9, 3}} {
		l := bounded(inner, c.most, c.mostPerAddr)

		dial := func() net.Conn {
			t.Helper()

			conn, err := net.Dial("tcp", inner.Addr().String())
			errtest.None(t, err)
			t.Cleanup(func() { _ = conn.Close() })
			_ = conn.SetDeadline(time.Now().Add(time.Minute))

			return conn
		}

		accept := func() net.Conn {
			t.Helper()
			conn, err := l.Accept()
			errtest.None(t, err)
			return conn
		}

		ended := func(what string, conn net.Conn) {
			t.Helper()

			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("%+v: %s: %v", c, what, err)
			}
		}

		var ours, theirs []net.Conn
		for range 3 {
			theirs = append(theirs, dial())
			ours = append(ours, accept())
		}

		// The first one serves a request, so the second one is idle the longest.
		noteState(ours[0], http.StateActive)

		dial()

		ours = append(ours, accept())
		ended("the longest idle one", theirs[1])

		for _, busy := range ours {
			noteState(tls.Server(busy, nil), http.StateActive)
		}

		// Without an idle one, the new one is closed, and the next departure makes room.
		refused := dial()
		next := make(chan net.Conn, 1)

		go func() { next <- accept() }()

		ended("the one beyond the bound", refused)

		_ = ours[0].Close()
		_ = ours[0].Close() // counts once

		dial()

		for _, conn := range append(ours, <-next) {
			_ = conn.Close()
		}

		if len(l.conns) != 0 || len(l.open) != 0 {
			t.Errorf("%+v: %d connections are counted at the end", c, len(l.conns))
		}
	}
}

// TestDeadlinesOfConnections: by default, no connection without progress lives for a
// minute, whatever it waits for.
func TestDeadlinesOfConnections(t *testing.T) {
	t.Parallel()

	var s Server
	s.setDefaults()

	const most = time.Minute
	if s.HeaderTime+s.BodyTime >= most || s.IdleTime >= most || s.Stall >= most {
		t.Errorf("header %s, body %s, idle %s, stall %s", s.HeaderTime, s.BodyTime, s.IdleTime, s.Stall)
	}
}

// TestHandshakeDeadline: a client that does not finish its handshake is
// disconnected, and the listener goes on.
func TestHandshakeDeadline(t *testing.T) {
	t.Parallel()

	k, err := pki.Open(pki.Options{Dir: filepath.Join(t.TempDir(), "pki")})
	errtest.None(t, err)
	l, err := ListenTLS("127.0.0.1:0", k.ServerConfig())
	errtest.None(t, err)

	s := &http.Server{ReadHeaderTimeout: 20 * time.Millisecond}
	defer s.Close()

	go func() { _ = s.Serve(l) }()

	for _, sent := range []string{"", "\x16\x03\x01\x02\x00\x01"} {
		conn, err := net.Dial("tcp", l.Addr().String())
		errtest.None(t, err)
		defer conn.Close()

		if _, err := io.WriteString(conn, sent); err != nil {
			t.Fatal(err)
		}

		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.ReadAll(conn); errors.Is(err, net.ErrClosed) || isTimeout(err) {
			t.Errorf("after %q: %v", sent, err)
		}
	}
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

func TestListenTLS(t *testing.T) {
	t.Parallel()

	l, err := ListenMetrics("127.0.0.1:0")
	errtest.None(t, err)
	defer l.Close()

	for addr, kind := range map[string]inventory.Kind{
		l.Addr().String(): inventory.KindRefused, "192.0.2.77:1": inventory.KindInvalid,
	} {
		if _, err := ListenTLS(addr, nil); inventory.KindOf(err) != kind {
			t.Errorf("%s: %v", addr, err)
		}
	}
}
