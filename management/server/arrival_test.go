// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/server"
)

// dialSite connects to the TCP port of the site and sends text.
func dialSite(t *testing.T, s *site, text string) net.Conn {
	t.Helper()

	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	errtest.None(t, err)
	t.Cleanup(func() { _ = c.Close() })

	errtest.None(t, c.SetDeadline(time.Now().Add(patience)))

	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}

	return c
}

// hasEnded reports whether a connection was closed. The kernel resets it if the
// server has not read everything.
func hasEnded(err error) bool { return err == nil || errors.Is(err, syscall.ECONNRESET) }

// answersAndCloses reads one answer, and expects the connection to end after it.
func answersAndCloses(t *testing.T, c net.Conn) (status int, body string) {
	t.Helper()

	r := bufio.NewReader(c)

	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatalf("the answer: %v", err)
	}
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("the body of the answer: %v", err)
	}

	if rest, err := io.ReadAll(r); !hasEnded(err) || len(rest) > 0 {
		t.Errorf("after the answer: %q, %v", rest, err)
	}

	if !res.Close {
		t.Errorf("the answer %d does not announce the end of the connection", res.StatusCode)
	}

	return res.StatusCode, string(text)
}

// TestBodyThatNeverComes expects a refused request to be answered at once, without
// its body, and each other request at the deadline. The connection then ends.
func TestBodyThatNeverComes(t *testing.T) {
	t.Parallel()

	patient := serve(t, func(o *server.Options) { o.BodyTime = time.Hour })
	short := serve(t, func(o *server.Options) { o.BodyTime = time.Millisecond })

	type sent struct {
		request string
		status  int
		conn    net.Conn
	}

	var all []sent

	// The connections linger before they end, so send everything first.
	for _, c := range []struct {
		site    *site
		request string
		headers string
		status  int
	}{
		{patient, "POST /globals", "Host: evil.example\r\n", 403},
		{patient, "POST /v1/jobs", "Host: localhost\r\nOrigin: http://evil.example\r\n", 403},
		{patient, "POST /nosuch", "Host: localhost\r\n", 404},
		{patient, "PUT /v1/nosuch", "Host: localhost\r\n", 404},
		{patient, "DELETE /v1/jobs", "Host: localhost\r\n", 405},
		{patient, "POST /v1/watch", "Host: localhost\r\n", 405},
		{patient, "PUT /v1/vars/global?x=1", "Host: localhost\r\n", 400},
		{patient, "POST /globals", "Host: localhost\r\nContent-Type: text/plain\r\n", 500},
		{patient, "GET /v1/nodes", "Host: localhost\r\n", 200},
		{short, "POST /commission/nodes", "Host: localhost\r\n", 408},
		{short, "POST /v1/jobs", "Host: localhost\r\n", 408},
		{short, "POST /v1/jobs/1/cancel", "Host: localhost\r\n", 408},
		{short, "PUT /v1/images/debian-13/files/image", "Host: localhost\r\n", 400},
	} {
		header := c.request + " HTTP/1.1\r\n" + c.headers
		for _, rest := range []string{
			"Content-Length: 4096\r\n\r\n", "Content-Length: 4096\r\n\r\n{\"nodes\":",
			"Transfer-Encoding: chunked\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n9\r\n{\"nodes\":\r\n",
		} {
			all = append(all, sent{header + rest, c.status, dialSite(t, c.site, header+rest)})
		}
	}

	for _, c := range all {
		if status, text := answersAndCloses(t, c.conn); status != c.status {
			t.Errorf("%q: answered %d %s, want %d", c.request, status, text, c.status)
		}
	}

	for _, s := range []*site{patient, short} {
		if s.manager.count() > 0 {
			t.Errorf("a request was carried out: %s", s.manager.last())
		}
	}
}

// TestRefusedLargeBody expects the answer to reach a client that still sends.
func TestRefusedLargeBody(t *testing.T) {
	t.Parallel()
	s := serve(t)

	const size = 200 << 10

	c := dialSite(t, s, fmt.Sprintf("POST /nosuch HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", size))
	if _, err := io.WriteString(c, strings.Repeat(" ", size)); err != nil {
		t.Fatal(err)
	}
	if status, text := answersAndCloses(t, c); status != 404 {
		t.Errorf("answered %d %s", status, text)
	}
}

// TestConnectionDeadlines expects connections without a request to end.
func TestConnectionDeadlines(t *testing.T) {
	t.Parallel()

	ends := func(c net.Conn) {
		t.Helper()

		// A header that is cut off may be answered with 400 or 408.
		if text, err := io.ReadAll(c); !hasEnded(err) || strings.Contains(string(text), " 200 ") {
			t.Errorf("the connection: %q, %v", text, err)
		}
	}

	s := serve(t, func(o *server.Options) { o.HeaderTime = 10 * time.Millisecond })
	ends(dialSite(t, s, ""))
	ends(dialSite(t, s, "POST /v1/jobs HTTP/1.1\r\nHost: local"))

	s = serve(t, func(o *server.Options) { o.IdleTime = 10 * time.Millisecond })
	c := dialSite(t, s, "GET "+api.PathVersion+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
	r := bufio.NewReader(c)

	res, err := http.ReadResponse(r, nil)
	if err != nil || res.StatusCode != 200 || res.Close {
		t.Fatalf("the first answer: %+v, %v", res, err)
	}
	if rest, err := io.ReadAll(res.Body); err != nil || len(rest) == 0 {
		t.Fatalf("the first answer: %q, %v", rest, err)
	}

	if rest, err := io.ReadAll(r); !hasEnded(err) || len(rest) > 0 {
		t.Errorf("the idle connection: %q, %v", rest, err)
	}
}

// TestConnectionIsKept expects a connection to serve more requests after a body,
// also after the deadline of that body.
func TestConnectionIsKept(t *testing.T) {
	t.Parallel()

	const bodyTime = 20 * time.Millisecond

	s := serve(t, func(o *server.Options) { o.BodyTime = bodyTime })
	c := dialSite(t, s, "")
	r := bufio.NewReader(c)

	request := func(text string) {
		t.Helper()

		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}

		res, err := http.ReadResponse(r, nil)
		if err != nil || res.StatusCode != 200 || res.Close {
			t.Fatalf("%q: %+v, %v", text, res, err)
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			t.Fatal(err)
		}
	}

	request("POST /info/nodes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 12\r\n\r\n{\"nodes\":[]}")
	// A long poll lasts longer than the deadline of the body before it.
	s.request(t, "POST", "/commission/nodes", `{"nodes":["a-1"]}`)
	request("GET /v1/jobs/1?wait=60ms HTTP/1.1\r\nHost: localhost\r\n\r\n")
	request("POST /info/nodes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 12\r\n\r\n{\"nodes\":[]}")
}
