// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/pki"
	"github.com/contiv/cluster/management/server"
)

// besieged is a server on a listener of each kind.
type besieged struct {
	*site
	tls   string // the address of HTTPS
	stats string // that of the metrics
	roots *x509.CertPool
	token string // for HTTPS
}

// besiege serves on a socket, on plain HTTP and on HTTPS.
func besiege(t *testing.T, adjust ...func(*server.Options)) *besieged {
	t.Helper()

	k, err := pki.Open(
		pki.Options{Dir: filepath.Join(t.TempDir(), "pki"), Names: func() []string { return []string{"127.0.0.1"} }},
	)
	errtest.None(t, err)
	l, err := server.ListenTLS("127.0.0.1:0", k.ServerConfig())
	errtest.None(t, err)

	stats, err := server.ListenMetrics("127.0.0.1:0")
	errtest.None(t, err)
	b := &besieged{
		site: serve(t, adjust...), tls: l.Addr().String(), stats: stats.Addr().String(), roots: x509.NewCertPool(),
	}
	b.roots.AddCert(k.CA())

	// Until Shutdown, which the site owns.
	go func() { _ = b.Serve(l) }()
	go func() { _ = b.Serve(stats) }()

	root := access.Identity{Principal: "root", Role: access.RoleAdmin, Credential: access.CredentialSocket}

	_, b.token, err = b.Server.Tokens.Create(testCtx(t), access.Caller{Principal: "root"}, root, access.TokenRequest{
		Name: "good", Role: access.RoleAdmin, Expires: time.Hour,
	})
	errtest.None(t, err)

	return b
}

// ways are the kinds of listeners of the API.
var ways = []string{"plain", "socket", "https"}

// dial opens a connection; over HTTPS with its handshake.
func (b *besieged) dial(way string) (net.Conn, error) {
	c, err := b.dialRaw(way)
	if err != nil || way != "https" {
		return c, err
	}
	over := tls.Client(c, b.config())
	if err := over.Handshake(); err != nil {
		_ = c.Close()
		return nil, err
	}

	return over, nil
}

func (b *besieged) config() *tls.Config {
	return &tls.Config{RootCAs: b.roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS13}
}

func (b *besieged) dialRaw(way string) (c net.Conn, err error) {
	switch way {
	case "socket":
		c, err = net.Dial("unix", b.socket)
	case "https":
		c, err = net.Dial("tcp", b.tls)
	case "metrics":
		c, err = net.Dial("tcp", b.stats)
	default:
		c, err = net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
	}

	if err == nil {
		err = c.SetDeadline(time.Now().Add(patience))
	}

	return c, err
}

// credentials returns the header of a request that is let in.
func (b *besieged) credentials(way string) string {
	if way == "https" {
		return "Host: 127.0.0.1\r\nAuthorization: Bearer " + b.token + "\r\n"
	}
	return "Host: 127.0.0.1\r\n"
}

// hasTimedOut reports whether the test gave up, and not the server.
func hasTimedOut(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout() || errors.Is(err, os.ErrDeadlineExceeded)
}

// slowRequest is the part of a request that arrives, and how the rest does.
type slowRequest struct {
	name, head string
	drip       string // a byte every few milliseconds, for ever; empty: nothing more comes
}

func slowRequests(request, headers string) []slowRequest {
	whole := request + " HTTP/1.1\r\n" + headers

	return []slowRequest{
		{"a header that stops", whole + "X-Slow: a", ""},
		{"a header that drips", whole + "X-Slow: ", "a"},
		{"header lines that drip", whole, "X-Slow: a\r\n"},
		{"a body that never comes", whole + "Content-Length: 4096\r\n\r\n", ""},
		{"a body that drips", whole + "Content-Length: 4096\r\n\r\n{", " "},
		{"chunks that drip", whole + "Transfer-Encoding: chunked\r\n\r\n", "1\r\n \r\n"},
	}
}

// dripTime is the time between two bytes of a slow client.
const dripTime = 10 * time.Millisecond

// endsSlow sends a slow request, and returns how long its connection lived.
func endsSlow(c net.Conn, r slowRequest) (time.Duration, error) {
	began := time.Now()

	// On a busy machine the deadline may be over by now, and the connection with it.
	if _, err := io.WriteString(c, r.head); err != nil {
		_ = c.Close()

		if hasTimedOut(err) {
			return 0, err
		}
		return time.Since(began), nil
	}

	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, c)
		ended <- err
	}()

	drip := time.NewTicker(dripTime)
	defer drip.Stop()

	for i := 0; ; i++ {
		select {
		case err := <-ended:
			_ = c.Close()

			if hasTimedOut(err) {
				return 0, err
			}
			return time.Since(began), nil
		case <-drip.C:
			// A write to the closed connection fails; the reader reports the end.
			if r.drip != "" {
				_, _ = io.WriteString(c, r.drip[i%len(r.drip):i%len(r.drip)+1])
			}
		}
	}
}

// TestSlowloris: a slow client is disconnected at the deadline of its header or body,
// on every listener and on every kind of path, and carries nothing out.
func TestSlowloris(t *testing.T) {
	t.Parallel()

	const (
		limit = time.Second
		most  = 20 * time.Second // a busy machine; a byte at a time would last for ever
	)

	b := besiege(t, func(o *server.Options) { o.HeaderTime, o.BodyTime, o.IdleTime = limit, limit, limit })

	var all sync.WaitGroup

	for _, way := range append(slices.Clone(ways), "metrics") {
		for _, request := range []struct{ line, headers string }{
			{"GET /metrics", b.credentials(way)},
			{"POST /v1/jobs", b.credentials(way)},
			{"PUT /v1/vars/global", b.credentials(way)},
			{"GET /v1/nodes", b.credentials(way)},
			{"POST /commission/nodes", b.credentials(way)},
			{"POST /v1/nosuch", b.credentials(way)},
			{"POST /nosuch", b.credentials(way)},
			{"DELETE /v1/jobs", b.credentials(way)},
			{"POST /v1/jobs", "Host: 127.0.0.1\r\nAuthorization: Bearer wrong\r\n"},
		} {
			for _, slow := range slowRequests(request.line, request.headers) {
				all.Go(func() {
					// On a busy machine a handshake may take too long.
					c, err := b.dial(way)
					for range 10 {
						if err == nil {
							break
						}

						c, err = b.dial(way)
					}

					if err != nil {
						t.Errorf("%s: %v", way, err)
						return
					}

					if lived, err := endsSlow(c, slow); err != nil || lived > most {
						t.Errorf("%s %s, %s: lived for %s, %v", way, request.line, slow.name, lived, err)
					}
				})
			}
		}
	}

	all.Wait()

	if b.manager.count() > 0 {
		t.Errorf("a request was carried out: %s", b.manager.last())
	}
}

// TestHalfHandshake: a client that stops in the middle of a handshake, at any byte,
// is disconnected.
func TestHalfHandshake(t *testing.T) {
	t.Parallel()

	b := besiege(t, func(o *server.Options) { o.HeaderTime = 100 * time.Millisecond })

	var hello recorded
	_ = tls.Client(&hello, b.config()).Handshake() // ends without an answer

	var all sync.WaitGroup
	for cut := 0; cut < len(hello.sent); cut += 16 {
		all.Go(func() {
			c, err := b.dialRaw("https")
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()

			if _, err := c.Write(hello.sent[:cut]); err != nil {
				t.Error(err)
			}

			if _, err := io.Copy(io.Discard, c); hasTimedOut(err) {
				t.Errorf("after %d bytes: %v", cut, err)
			}
		})
	}

	all.Wait()
}

// recorded keeps what is written, and has nothing to read.
type recorded struct {
	net.Conn
	sent []byte
}

func (r *recorded) Write(p []byte) (int, error) {
	r.sent = append(r.sent, p...)
	return len(p), nil
}

func (*recorded) Read([]byte) (int, error)         { return 0, io.EOF }
func (*recorded) Close() error                     { return nil }
func (*recorded) SetDeadline(time.Time) error      { return nil }
func (*recorded) SetWriteDeadline(time.Time) error { return nil }

// TestHugeBody sends a body of 10 GB. It is refused early: before it, if its length is
// announced, else at the limit.
func TestHugeBody(t *testing.T) {
	const (
		size = 10 << 30
		most = 32 << 20 // bytes that may be on the way before the refusal arrives
	)

	b := besiege(t)
	before := heap()

	var all sync.WaitGroup

	for _, way := range ways {
		for _, c := range []struct {
			line, headers string
			status        int
		}{
			{"POST /v1/jobs", b.credentials(way), 413},
			{"PUT /v1/vars/global", b.credentials(way), 413},
			{"POST /commission/nodes", b.credentials(way), 500},
			{"POST /v1/nosuch", b.credentials(way), 404},
			{"GET /v1/nodes", b.credentials(way), 200},
			{"POST /v1/jobs", "Host: 127.0.0.1\r\nAuthorization: Bearer wrong\r\n", 401},
		} {
			announced := fmt.Sprintf("Content-Length: %d\r\n\r\n", size)

			for _, header := range []string{announced, "Transfer-Encoding: chunked\r\n\r\n"} {
				all.Go(func() {
					conn, err := b.dial(way)
					if err != nil {
						t.Error(err)
						return
					}
					defer conn.Close()

					sent, status := pour(conn, c.line+" HTTP/1.1\r\n"+c.headers+header, size)
					if status != c.status || sent > most {
						t.Errorf("%s %s, %s: %d after %d bytes", way, c.line, strings.TrimSpace(header), status, sent)
					}
				})
			}
		}
	}

	all.Wait()

	if grown := heap() - before; grown > most {
		t.Errorf("the memory grew by %d bytes", grown)
	}

	if b.manager.count() > 0 {
		t.Errorf("a request was carried out: %s", b.manager.last())
	}
}

// pour sends a header and a body of spaces until the connection ends. It returns the
// bytes of the body that were sent, and the status of the answer.
func pour(c net.Conn, header string, size int) (sent, status int) {
	answered := make(chan int, 1)
	go func() {
		status := 0
		if res, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil {
			status = res.StatusCode
			_, _ = io.Copy(io.Discard, res.Body)
		}

		answered <- status
	}()

	_, err := io.WriteString(c, header)

	piece := bytes.Repeat([]byte(" "), 64<<10)
	if strings.Contains(header, "chunked") {
		piece = fmt.Appendf(nil, "%x\r\n%s\r\n", len(piece), piece)
	}
	for n := 0; err == nil && sent < size; sent += n {
		n, err = c.Write(piece)
	}

	return sent, <-answered
}

// heap returns the memory in use, in bytes.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// idleConns is how many idle connections the test opens: 10 000, or as many as the
// limit on open files allows beside the server's and those of other tests.
func idleConns(t *testing.T) int {
	t.Helper()

	const most, others = 10_000, 9_000

	if testing.Short() {
		return 1000
	}

	var limit syscall.Rlimit
	errtest.None(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))

	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Logf("the limit on open files stays: %v", err)
	}

	if limit.Cur < 2*others {
		t.Skipf("only %d files may be open", limit.Cur)
	}

	return int(min(most, limit.Cur-others))
}

// TestIdleConnections opens very many connections that send nothing, or nothing after
// a request. The memory stays bounded, a good client gets its answers as before, over
// a kept connection and over new ones, and every connection ends by itself.
func TestIdleConnections(t *testing.T) {
	n := idleConns(t)

	const (
		mostMemory = 100 << 20
		// The good client's median may double; the rest is for a machine that does
		// other things as well.
		mostTimes, slack = 2, 10 * time.Millisecond
	)

	b := besiege(t, func(o *server.Options) { o.HeaderTime, o.IdleTime = 3*time.Second, 3*time.Second })
	quiet, before := b.medians(t), heap()

	conns := make([]net.Conn, 0, n)
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()

	for i := range n {
		// Handshakes cost processor time, which is not what this is about.
		way := ways[i%2]
		if i%20 == 0 {
			way = "https"
		}
		c, err := b.dial(way)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		conns = append(conns, c)

		if i%3 == 0 {
			_, _ = io.WriteString(c, "GET "+api.PathVersion+" HTTP/1.1\r\n"+b.credentials(way)+"\r\n")
		}
	}

	for way, busy := range b.medians(t) {
		t.Logf("%s: the median of a good client was %s, and is %s", way, quiet[way], busy)

		if busy > mostTimes*quiet[way]+slack {
			t.Errorf("%s: the median of a good client grew from %s to %s", way, quiet[way], busy)
		}
	}

	if grown := heap() - before; grown > mostMemory {
		t.Errorf("%d connections take %d MiB", n, grown>>20)
	} else {
		t.Logf("%d connections take %d MiB", n, grown>>20)
	}

	for i, c := range conns {
		if _, err := io.Copy(io.Discard, c); hasTimedOut(err) {
			t.Fatalf("connection %d lives on: %v", i, err)
		}
	}
}

// medians returns the median time of a request over each listener, over a kept
// connection and over new ones.
func (b *besieged) medians(t *testing.T) map[string]time.Duration {
	t.Helper()

	const requests = 60

	all := map[string]time.Duration{}

	for _, way := range ways {
		for _, kept := range []bool{true, false} {
			transport := &http.Transport{
				DisableKeepAlives: !kept,
				DialContext:       func(context.Context, string, string) (net.Conn, error) { return b.dialRaw(way) },
				TLSClientConfig:   b.config(),
			}
			good := &http.Client{Transport: transport, Timeout: patience}

			url := "http://127.0.0.1" + api.PathVersion
			if way == "https" {
				url = "https://127.0.0.1" + api.PathVersion
			}

			var took []time.Duration

			for range requests {
				req, err := http.NewRequestWithContext(testCtx(t), http.MethodGet, url, nil)
				errtest.None(t, err)
				if way == "https" {
					req.Header.Set("Authorization", "Bearer "+b.token)
				}

				began := time.Now()

				res, err := good.Do(req)
				if err != nil {
					t.Fatalf("%s: a good client: %v", way, err)
				}
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()

				if took = append(took, time.Since(began)); res.StatusCode != http.StatusOK {
					t.Fatalf("%s: a good client got %s", way, res.Status)
				}
			}

			transport.CloseIdleConnections()
			slices.Sort(took)
			all[fmt.Sprintf("%s, kept %t", way, kept)] = took[requests/2]
		}
	}

	return all
}
