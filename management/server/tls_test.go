// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/pki"
)

// TestBoundedListener opens more connections than a listener takes.
func TestBoundedListener(t *testing.T) {
	t.Parallel()

	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()

	for _, c := range []struct{ most, mostPerAddr int }{{2, 9}, {9, 2}} {
		l := bounded(inner, c.most, c.mostPerAddr)
		accepted := make(chan net.Conn, 9)

		dial := func() net.Conn {
			t.Helper()

			conn, err := net.Dial("tcp", inner.Addr().String())
			if err != nil {
				t.Fatal(err)
			}

			t.Cleanup(func() { _ = conn.Close() })

			return conn
		}
		next := func() {
			if conn, err := l.Accept(); err == nil {
				accepted <- conn
			}
		}

		dial()
		next()
		dial()
		next()

		// The third one is closed, and Accept returns the fourth one after a departure.
		third := dial()

		go next()

		if _, err := third.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("%+v: the connection beyond the bound: %v", c, err)
		}

		first := <-accepted
		_ = first.Close()
		_ = first.Close() // counts once

		dial()

		for range 2 {
			_ = (<-accepted).Close()
		}

		if l.total != 0 || len(l.open) != 0 {
			t.Errorf("%+v: %d connections are counted at the end", c, l.total)
		}
	}
}

// TestHandshakeDeadline: a client that does not finish its handshake is
// disconnected, and the listener goes on.
func TestHandshakeDeadline(t *testing.T) {
	t.Parallel()

	k, err := pki.Open(pki.Options{Dir: filepath.Join(t.TempDir(), "pki")})
	if err != nil {
		t.Fatal(err)
	}

	l, err := ListenTLS("127.0.0.1:0", k.ServerConfig())
	if err != nil {
		t.Fatal(err)
	}

	s := &http.Server{ReadHeaderTimeout: 20 * time.Millisecond}
	defer s.Close()

	go func() { _ = s.Serve(l) }()

	for _, sent := range []string{"", "\x16\x03\x01\x02\x00\x01"} {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
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
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	for addr, kind := range map[string]inventory.Kind{
		l.Addr().String(): inventory.KindRefused, "192.0.2.77:1": inventory.KindInvalid,
	} {
		if _, err := ListenTLS(addr, nil); inventory.KindOf(err) != kind {
			t.Errorf("%s: %v", addr, err)
		}
	}
}
