// SPDX-License-Identifier: Apache-2.0

package notify_test

import (
	"context"
	"encoding/binary"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/notify"
)

// names returns a resolver for which every name leads to the address.
func names(t *testing.T, to netip.Addr) *net.Resolver {
	t.Helper()

	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	errtest.None(t, err)

	ended := make(chan struct{})

	t.Cleanup(func() { server.Close(); <-ended })

	go func() {
		defer close(ended)

		for buf := make([]byte, 1500); ; {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = server.WriteTo(answer(buf[:n], to), from)
		}
	}()

	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", server.LocalAddr().String())
	}}
}

// answer returns the answer of a name server to a query with one question.
func answer(query []byte, to netip.Addr) []byte {
	const (
		header = 12
		typeA  = 1
		typeV6 = 28
	)

	// The question is a name of labels, a type and a class.
	end := header
	for query[end] != 0 {
		end += int(query[end]) + 1
	}

	kind := binary.BigEndian.Uint16(query[end+1:])
	question := query[header : end+5]

	out := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, question...)
	if to.Is4() && kind != typeA || to.Is6() && kind != typeV6 {
		return out
	}

	// One record, of the name in the question.
	out[7] = 1
	out = append(out, 0xc0, header)
	out = binary.BigEndian.AppendUint16(out, kind)
	out = append(out, 0, 1, 0, 0, 0, 60, 0, byte(len(to.AsSlice())))

	return append(out, to.AsSlice()...)
}

// refusedHosts are hosts to which no webhook is sent unless that is allowed.
var refusedHosts = []string{
	"127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::7f00:1", "0.0.0.0", "::",
	"169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "fe80::1", "100.100.100.200", "168.63.129.16",
	"192.0.0.192", "fd00:ec2::254", "fd20:ce::254", "224.0.0.1", "ff02::1", "255.255.255.255",
}

// TestRefusedHosts: a URL with the address of this host or of a cloud's metadata is
// refused, unless it is allowed.
func TestRefusedHosts(t *testing.T) {
	t.Parallel()

	for _, host := range append(refusedHosts, "localhost", "LocalHost.", "a.localhost", "fe80::1%25lo",
		"fd00:ec2::254%25eth0", "::ffff:100.100.100.200") {
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}

		o := notify.WebhookOptions{URL: "https://" + host + ":8443/secret-path", Format: notify.FormatJSON}

		_, err := notify.NewWebhook(o)
		if inventory.KindOf(err) != inventory.KindInvalid || strings.Contains(err.Error(), "secret-path") {
			t.Errorf("%s gives %v", host, err)
		}

		o.AllowLocal = true
		if _, err := notify.NewWebhook(o); err != nil {
			t.Errorf("%s is allowed, and gives %v", host, err)
		}
	}

	for _, host := range []string{
		"10.0.0.1", "192.168.1.1", "172.16.0.1", "203.0.113.5", "[fd12::1]", "chat", "localhost.org",
	} {
		if _, err := notify.NewWebhook(
			notify.WebhookOptions{URL: "http://" + host, Format: notify.FormatJSON},
		); err != nil {
			t.Errorf("%s gives %v", host, err)
		}
	}
}

// TestNameOfRefusedHost: the address that a name leads to counts, at the connection.
func TestNameOfRefusedHost(t *testing.T) {
	t.Parallel()

	for _, addr := range refusedHosts {
		w, err := notify.NewWebhook(notify.WebhookOptions{
			URL: "http://chat.example.com:9/secret-path", Format: notify.FormatJSON,
			Resolver: names(t, netip.MustParseAddr(addr)),
		})
		errtest.None(t, err)

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err = w.Send(ctx, notify.Event{ID: "1"}, time.Now())

		cancel()

		if err == nil || !strings.Contains(err.Error(), "allow_local") || strings.Contains(err.Error(), "secret-path") {
			t.Errorf("a name that leads to %s gives %v", addr, err)
		}
	}
}

// TestNameOfThisHost: a name that leads to this host gets no request, unless it is
// allowed.
func TestNameOfThisHost(t *testing.T) {
	t.Parallel()

	var requests atomic.Int64

	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	defer receiver.Close()

	u, err := url.Parse(receiver.URL)
	errtest.None(t, err)

	o := notify.WebhookOptions{
		URL: "http://chat.example.com:" + u.Port(), Format: notify.FormatJSON,
		Resolver: names(t, netip.MustParseAddr("127.0.0.1")),
	}

	for _, allowed := range []bool{false, true} {
		o.AllowLocal = allowed

		w, err := notify.NewWebhook(o)
		errtest.None(t, err)
		if err := w.Send(t.Context(), notify.Event{ID: "1"}, time.Now()); (err == nil) != allowed {
			t.Errorf("allowed %t: %v", allowed, err)
		}
	}

	if n := requests.Load(); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// TestOwnAddresses: an address of this host is refused at the connection, unless that is allowed.
func TestOwnAddresses(t *testing.T) {
	t.Parallel()

	addrs, err := net.InterfaceAddrs()
	errtest.None(t, err)

	for _, a := range addrs {
		ip, ok := a.(*net.IPNet)
		if !ok || !ip.IP.IsGlobalUnicast() {
			continue
		}

		if v4 := ip.IP.To4(); v4 != nil {
			translated := netip.AddrPortFrom(netip.MustParseAddr("64:ff9b::"+v4.String()), 9)
			if err := notify.RefuseLocal("")("tcp", translated.String(), nil); err == nil {
				t.Errorf("%s is reached", translated)
			}
		}

		to := net.JoinHostPort(ip.IP.String(), "9")
		if err := notify.RefuseLocal("")("tcp", to, nil); err == nil || !strings.Contains(err.Error(), "of this host") {
			t.Errorf("%s gives %v", to, err)
		}
		if err := notify.RefuseLocal("", ip.IP.String())("tcp", to, nil); err != nil {
			t.Errorf("%s is allowed, and gives %v", to, err)
		}
	}

	if err := notify.RefuseLocal("")("tcp", "203.0.113.5:443", nil); err != nil {
		t.Error(err)
	}
}
