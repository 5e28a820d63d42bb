// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/inventory/localfile"
)

// clock is a clock that a test moves.
type clock struct{ offset atomic.Int64 }

func (c *clock) Now() time.Time          { return time.Now().Add(time.Duration(c.offset.Load())) }
func (c *clock) advance(d time.Duration) { c.offset.Add(int64(d)) }

func names(list ...string) func() []string { return func() []string { return list } }

func open(t *testing.T, o Options) *Keeper {
	t.Helper()
	k, err := Open(o)
	errtest.None(t, err)
	return k
}

func refresh(t *testing.T, k *Keeper) []string {
	t.Helper()
	changes, err := k.Refresh()
	errtest.None(t, err)
	return changes
}

func TestOpen(t *testing.T) {
	t.Parallel()

	o := Options{
		Dir: filepath.Join(t.TempDir(), "pki"), Names: names("Host1", "host1", "192.0.2.1", "2001:db8::1", "localhost"),
	}
	first := open(t, o)

	for path, mode := range map[string]os.FileMode{o.Dir: 0o700, caPath(o.Dir): 0o600, serverPath(o.Dir): 0o600} {
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v; want mode %o", path, st, err, mode)
		}
	}

	c := first.current.own.cert
	if !slices.Equal(c.DNSNames, []string{"host1", "localhost"}) || len(c.IPAddresses) != 2 {
		t.Errorf("the certificate is for %v and %v", c.DNSNames, c.IPAddresses)
	}
	if life := time.Until(c.NotAfter); life > 90*24*time.Hour || life < 89*24*time.Hour {
		t.Errorf("the certificate lasts %v", life)
	}

	// A crash leaves a temporary file of localfile.Replace.
	errtest.None(t, os.WriteFile(filepath.Join(o.Dir, ".new-1"), []byte("half"), 0o600))

	second := open(t, o)
	if second.Fingerprint() != first.Fingerprint() || !second.current.own.cert.Equal(c) {
		t.Error("a restart made new certificates")
	}

	left, err := os.ReadDir(o.Dir)
	if err != nil || len(left) != 2 {
		t.Errorf("the folder holds %v, %v", left, err)
	}

	if ca, err := ReadCA(o.Dir); err != nil || Fingerprint(ca) != first.Fingerprint() {
		t.Errorf("ReadCA: %v", err)
	}

	if _, err := ReadCA(t.TempDir()); inventory.KindOf(err) != inventory.KindNotFound {
		t.Errorf("ReadCA without a CA: %v", err)
	}
}

func TestDamage(t *testing.T) {
	t.Parallel()

	truncate := func(path string) error {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(path, content[:len(content)-20], 0o600)
	}
	ca, server := "ca.pem", "server.pem"

	for _, c := range []struct {
		name   string
		damage func(dir string) error
		want   string // in the error; empty: repaired
	}{
		{"truncated CA", func(dir string) error { return truncate(filepath.Join(dir, ca)) }, "is damaged"},
		{"empty CA", func(dir string) error { return os.Truncate(filepath.Join(dir, ca), 0) }, "is damaged"},
		{"no CA", func(dir string) error { return os.Remove(filepath.Join(dir, ca)) }, "is missing"},
		{"open CA", func(dir string) error { return os.Chmod(filepath.Join(dir, ca), 0o640) }, "chmod 600"},
		{"open folder", func(dir string) error { return os.Chmod(dir, 0o755) }, "chmod 700"},
		{"a leaf as CA", func(dir string) error {
			return os.Rename(filepath.Join(dir, server), filepath.Join(dir, ca))
		}, "holds no CA"},
		{"truncated certificate", func(dir string) error { return truncate(filepath.Join(dir, server)) }, ""},
		{"no certificate", func(dir string) error { return os.Remove(filepath.Join(dir, server)) }, ""},
		{"open certificate", func(dir string) error { return os.Chmod(filepath.Join(dir, server), 0o644) }, ""},
		{"key of the CA in the certificate", func(dir string) error {
			cert, _ := os.ReadFile(filepath.Join(dir, server))
			key, _ := os.ReadFile(filepath.Join(dir, ca))

			return os.WriteFile(filepath.Join(dir, server),
				slices.Concat(cert[:bytes.Index(cert, []byte("-----BEGIN P"))],
					key[bytes.Index(key, []byte("-----BEGIN P")):]), 0o600)
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			o := Options{Dir: filepath.Join(t.TempDir(), "pki"), Names: names("host1")}
			before := open(t, o)

			errtest.None(t, c.damage(o.Dir))

			after, err := Open(o)
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("%v; want %q", err, c.want)
				}
				return
			}

			errtest.None(t, err)

			if after.Fingerprint() != before.Fingerprint() || after.current.own.cert.Equal(before.current.own.cert) {
				t.Error("not only the server certificate was replaced")
			}

			if st, err := os.Stat(serverPath(o.Dir)); err != nil || st.Mode().Perm() != 0o600 {
				t.Errorf("%v, %v", st, err)
			}
		})
	}
}

// listener serves HTTP with the certificates of k until the end of the test.
func listener(t *testing.T, k *Keeper) *httptest.Server {
	t.Helper()

	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) == 0 {
			fmt.Fprintf(w, "%d", r.TLS.Version)
			return
		}

		g, err := GrantOf(r.TLS.PeerCertificates[0], k.options.Now())
		fmt.Fprintf(w, "%s %s %v", g.Name, g.Role, err)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	inner := s.Listener
	s.Listener = tls.NewListener(inner, k.ServerConfig())
	s.Start()
	t.Cleanup(s.Close)

	s.URL = "https://" + inner.Addr().String()

	return s
}

// pinned returns a client that accepts a CA with the fingerprint, by the clock.
func pinned(c *clock, fingerprint string, certificates ...tls.Certificate) *http.Client {
	config := &tls.Config{
		InsecureSkipVerify: true, Certificates: certificates, //nolint:gosec // VerifyConnection verifies the chain
		VerifyConnection: func(s tls.ConnectionState) error {
			roots := x509.NewCertPool()
			for _, cert := range s.PeerCertificates {
				if Fingerprint(cert) == fingerprint {
					roots.AddCert(cert)
				}
			}

			_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{
				Roots: roots, DNSName: "127.0.0.1", CurrentTime: c.Now(),
			})

			return err
		},
		Time: c.Now,
	}

	return &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}}
}

func get(t *testing.T, c *http.Client, url string) (string, error) {
	t.Helper()

	res, err := c.Get(url)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()

	b, err := io.ReadAll(res.Body)

	return string(b), err
}

// TestExpiryDuringARun lets several CAs and many certificates expire under a
// listener: no handshake and no request on a kept connection fails.
func TestExpiryDuringARun(t *testing.T) {
	t.Parallel()

	const caLife, leafLife = 30 * time.Minute, 6 * time.Minute

	now := &clock{}
	k := open(t, Options{
		Dir: filepath.Join(t.TempDir(), "pki"), Names: names("127.0.0.1"), Now: now.Now,
		CALife: caLife, LeafLife: leafLife,
	})
	s, pin := listener(t, k), k.Fingerprint()
	kept := pinned(now, pin)
	authorities, certificates := map[string]bool{}, map[string]bool{}

	for elapsed := time.Duration(0); elapsed < 3*caLife; elapsed += 2 * time.Minute {
		refresh(t, k)

		for _, c := range []*http.Client{pinned(now, pin), kept} {
			if _, err := get(t, c, s.URL); err != nil {
				t.Fatalf("after %v: %v", elapsed, err)
			}

			if c != kept {
				c.CloseIdleConnections()
			}
		}

		authorities[string(k.current.ca.cert.Raw)], certificates[string(k.current.own.cert.Raw)] = true, true
		if _, problem := k.Check(); problem != nil {
			t.Fatal(problem)
		}

		now.advance(2 * time.Minute)
	}

	if len(authorities) < 4 || len(certificates) < 15 || k.Fingerprint() != pin {
		t.Errorf("%d CAs, %d certificates", len(authorities), len(certificates))
	}
}

func TestExpiredWhileStopped(t *testing.T) {
	t.Parallel()

	now := &clock{}
	o := Options{Dir: filepath.Join(t.TempDir(), "pki"), Names: names("127.0.0.1"), Now: now.Now}
	pin := open(t, o).Fingerprint()

	now.advance(20 * 365 * 24 * time.Hour)

	s := listener(t, open(t, o))
	if _, err := get(t, pinned(now, pin), s.URL); err != nil {
		t.Error(err)
	}

	// A clock that was wrong at the first start is right now.
	now.advance(-20 * 365 * 24 * time.Hour)

	s = listener(t, open(t, o))
	if _, err := get(t, pinned(now, pin), s.URL); err != nil {
		t.Error(err)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()

	var current atomic.Value

	current.Store([]string{"host1", "192.0.2.1"})

	k := open(t, Options{
		Dir: filepath.Join(t.TempDir(), "pki"), Names: func() []string { return current.Load().([]string) },
	})

	for _, c := range []struct {
		names []string
		made  bool
	}{
		{[]string{"host1", "192.0.2.1"}, false},
		{[]string{"host1", "192.0.2.1", "192.0.2.2"}, true},
		{[]string{"host1"}, false},
		{[]string{"host2"}, true},
	} {
		current.Store(c.names)

		if changes := refresh(t, k); len(changes) > 0 != c.made {
			t.Errorf("%v: %v", c.names, changes)
		}
	}

	if k.current.own.cert.VerifyHostname("host2") != nil || k.current.own.cert.VerifyHostname("192.0.2.1") == nil {
		t.Errorf("the certificate is for %v, %v", k.current.own.cert.DNSNames, k.current.own.cert.IPAddresses)
	}
}

// TestRenewalFails removes the folder, so that nothing can be stored.
func TestRenewalFails(t *testing.T) {
	t.Parallel()

	now := &clock{}
	o := Options{Dir: filepath.Join(t.TempDir(), "pki"), Names: names("127.0.0.1"), Now: now.Now}
	k := open(t, o)
	s := listener(t, k)

	errtest.None(t, os.Rename(o.Dir, o.Dir+".away"))

	now.advance(80 * 24 * time.Hour)

	if _, err := k.Refresh(); err == nil || !strings.Contains(err.Error(), "cannot be renewed, and expires at") {
		t.Errorf("Refresh: %v", err)
	}

	if _, err := get(t, pinned(now, k.Fingerprint()), s.URL); err != nil {
		t.Error(err)
	}

	now.advance(20 * 24 * time.Hour)

	if _, problem := k.Check(); problem == nil || !strings.Contains(problem.Error(), "certificate expired at") {
		t.Errorf("Check: %v", problem)
	}

	errtest.None(t, os.Rename(o.Dir+".away", o.Dir))

	if changes := refresh(t, k); len(changes) != 1 {
		t.Errorf("changes: %q", changes)
	}

	if _, problem := k.Check(); problem != nil {
		t.Error(problem)
	}
}

// foreign returns a CA of a site, and a certificate of it for 127.0.0.1.
func foreign(t *testing.T, life time.Duration) (ca, server *pair) {
	t.Helper()

	ca, err := newCA(nil, time.Now(), 100*life)
	errtest.None(t, err)
	if server, err = newServer(ca, []string{"127.0.0.1"}, time.Now(), life); err != nil {
		t.Fatal(err)
	}
	return ca, server
}

// writeSite writes the files of a site.
func writeSite(t *testing.T, dir string, ca, server *pair) Site {
	t.Helper()

	s := Site{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "ca.pem")}

	content, err := server.encode(nil)
	errtest.None(t, err)
	cut := bytes.Index(content, []byte("-----BEGIN P"))
	if err := errors.Join(
		localfile.Replace(s.CertFile, content[:cut]), localfile.Replace(s.KeyFile, content[cut:]),
		localfile.Replace(s.ClientCAFile, EncodeCertificate(ca.cert)),
	); err != nil {
		t.Fatal(err)
	}

	return s
}

func TestSite(t *testing.T) {
	t.Parallel()

	now, files := &clock{}, t.TempDir()
	ca, server := foreign(t, 30*24*time.Hour)
	site := writeSite(t, files, ca, server)
	k := open(t, Options{Dir: filepath.Join(t.TempDir(), "pki"), Names: names("h"), Site: site, Now: now.Now})
	s := listener(t, k)

	expect := func(want *pair) {
		t.Helper()

		var served *x509.Certificate

		c := pinned(now, "")
		c.Transport.(*http.Transport).TLSClientConfig.VerifyConnection = func(s tls.ConnectionState) error {
			served = s.PeerCertificates[0]
			return nil
		}

		if _, err := get(t, c, s.URL); err != nil || !served.Equal(want.cert) {
			t.Errorf("the served certificate is not the expected one: %v", err)
		}
	}
	expect(server)

	if k.Fingerprint() != "" {
		t.Error("a site's own certificate has a fingerprint to pin")
	}

	if changes := refresh(t, k); len(changes) > 0 {
		t.Errorf("unchanged files: %q", changes)
	}

	// Each of these keeps the former certificate, and shows in health.
	key, _ := os.ReadFile(site.KeyFile)

	for _, broken := range []struct {
		damage func() error
		want   string
	}{
		{func() error { return os.WriteFile(site.CertFile, []byte("-----BEGIN CERT"), 0o644) }, "do not fit"},
		{func() error { return os.Remove(site.CertFile) }, "tls.cert_file"},
		{func() error { return os.Chmod(site.KeyFile, 0o644) }, "tls.key_file"},
		{func() error { return os.WriteFile(site.KeyFile, slices.Repeat([]byte("x"), maxFile+1), 0o600) }, "larger"},
		{func() error { return os.WriteFile(site.ClientCAFile, []byte("none"), 0o600) }, "holds no certificate"},
	} {
		errtest.None(t, broken.damage())

		if _, err := k.Refresh(); err == nil || !strings.Contains(err.Error(), broken.want) {
			t.Errorf("%v; want %q", err, broken.want)
		}

		if _, problem := k.Check(); problem == nil || !strings.Contains(problem.Error(), broken.want) {
			t.Errorf("health: %v; want %q", problem, broken.want)
		}

		expect(server)

		_ = os.Remove(site.KeyFile)
		errtest.None(t, localfile.Replace(site.KeyFile, key))

		writeSite(t, files, ca, server)
	}

	refresh(t, k)

	// The site renews its certificate.
	_, renewed := foreign(t, 60*24*time.Hour)
	writeSite(t, files, ca, renewed)

	if changes := refresh(t, k); len(changes) != 1 {
		t.Errorf("changes: %q", changes)
	}

	expect(renewed)
	now.advance(50 * 24 * time.Hour)

	if warning, problem := k.Check(); problem != nil || !strings.Contains(warning, "expires at") {
		t.Errorf("a certificate that ends soon: %q, %v", warning, problem)
	}
	if trouble := k.Trouble(); !strings.Contains(trouble, "expires at") {
		t.Errorf("what troubles the manager: %q", trouble)
	}
}

func TestSiteAtStart(t *testing.T) {
	t.Parallel()

	ca, server := foreign(t, time.Hour)
	site := writeSite(t, t.TempDir(), ca, server)

	errtest.None(t, os.Chmod(site.KeyFile, 0o640))

	_, err := Open(Options{Dir: filepath.Join(t.TempDir(), "pki"), Site: site})
	if inventory.KindOf(err) != inventory.KindInvalid || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("an open key: %v", err)
	}
}

// certificate returns the pair for a client.
func (p *pair) certificate() tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{p.cert.Raw}, PrivateKey: p.key}
}

func TestClientCertificates(t *testing.T) {
	t.Parallel()

	now := &clock{}
	o := Options{Dir: filepath.Join(t.TempDir(), "pki"), Names: names("127.0.0.1"), Now: now.Now}
	k := open(t, o)
	s := listener(t, k)

	issued, err := IssueClient(o.Dir, Grant{Name: "rack1", Role: "monitor"}, 24*time.Hour)
	errtest.None(t, err)
	own, err := tls.X509KeyPair(issued, issued)
	errtest.None(t, err)

	ask := func(c tls.Certificate) (string, error) {
		return get(t, pinned(now, k.Fingerprint(), c), s.URL)
	}
	if answer, err := ask(own); err != nil || answer != "rack1 monitor <nil>" {
		t.Errorf("%q, %v", answer, err)
	}

	otherCA, _ := foreign(t, time.Hour)

	other, err := newClient(otherCA, Grant{Name: "rack1", Role: "admin"}, time.Now(), time.Hour)
	errtest.None(t, err)

	// A client sends no certificate of a CA that the server does not name: insist.
	insist := pinned(now, k.Fingerprint())
	insist.Transport.(*http.Transport).TLSClientConfig.GetClientCertificate =
		func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			c := other.certificate()
			return &c, nil
		}

	// The alert of the server may come after the request: the client then sees a broken connection.
	if answer, err := get(t, insist, s.URL); err == nil {
		t.Errorf("a certificate of another CA: %q", answer)
	}

	// A server certificate is none of a client.
	if answer, err := ask(k.current.own.certificate()); err == nil {
		t.Errorf("a server certificate: %q", answer)
	}

	// It expires on a kept connection.
	kept := pinned(now, k.Fingerprint(), own)
	for i, want := range []string{"rack1 monitor <nil>", "the client certificate is valid from"} {
		if answer, err := get(t, kept, s.URL); err != nil || !strings.Contains(answer, want) {
			t.Errorf("%d: %q, %v", i, answer, err)
		}

		now.advance(25 * time.Hour)
	}

	if answer, err := ask(own); err == nil {
		t.Errorf("an expired certificate: %q", answer)
	}

	_, err = IssueClient(o.Dir, Grant{Name: "not a name", Role: "monitor"}, time.Hour)
	if inventory.KindOf(err) != inventory.KindInvalid {
		t.Errorf("an invalid name: %v", err)
	}

	known, _, err := Issued(o.Dir)
	if err != nil || len(known) != 1 || !bytes.Equal(known[0].Raw, own.Certificate[0]) {
		t.Errorf("issued: %v, %v", known, err)
	}
}

func TestGrantOf(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		uris []string
		want string // role, groups and selector, or part of the error
	}{
		{[]string{"clusterm:role:monitor"}, "monitor [] "},
		{[]string{"spiffe://site/host", "clusterm:role:viewer"}, "viewer [] "},
		{nil, "has no role"},
		{[]string{"other:role:admin", "CLUSTERMX:role:admin"}, "has no role"},
		{[]string{"clusterm:role:"}, "malformed URI"},
		{[]string{"clusterm:role:viewer", "clusterm:role:admin"}, "has several roles"},
		{[]string{"clusterm:role:viewer", "clusterm:group:a", "clusterm:group:b"}, "viewer [a b] "},
		{[]string{"clusterm:role:viewer", "clusterm:selector:rack%20in%20(r1,r2)"}, "viewer [] rack in (r1,r2)"},
		{[]string{"clusterm:role:viewer", "clusterm:selector:a", "clusterm:selector:b"}, "several selectors"},

		// What is not understood may be a limit.
		{[]string{"clusterm:roles:admin", "clusterm:role:admin"}, "has an unknown URI"},
		{[]string{"clusterm:role:viewer", "clusterm:scope:a"}, "has an unknown URI"},
		{[]string{"clusterm:role:viewer", "clusterm://group/a"}, "malformed URI"},
		{[]string{"clusterm:role:viewer", "clusterm:selector:rack?=r1"}, "malformed URI"},
		{[]string{"clusterm:role:viewer", "clusterm:selector:rack#r1"}, "malformed URI"},
		{[]string{"clusterm:role:viewer", "clusterm:group:"}, "malformed URI"},
		{[]string{"clusterm:role:viewer", "clusterm"}, "viewer [] "},
	} {
		cert := &x509.Certificate{NotAfter: time.Now().Add(time.Hour)}
		cert.Subject.CommonName = "rack1"

		for _, s := range c.uris {
			u, err := url.Parse(s)
			errtest.None(t, err)
			cert.URIs = append(cert.URIs, u)
		}

		g, err := GrantOf(cert, time.Now())

		got := fmt.Sprint(g.Role, " ", g.Groups, " ", g.Selector)
		if err != nil {
			got = err.Error()
		}
		if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
			t.Errorf("%q: %q, want %q", c.uris, got, c.want)
		}

		if again := (Grant{Role: g.Role, Groups: g.Groups, Selector: g.Selector}); err == nil {
			cert.URIs = again.uris()
			if back, err := GrantOf(cert, time.Now()); err != nil || fmt.Sprint(back) != fmt.Sprint(g) {
				t.Errorf("%q: written again it is %+v, %v", c.uris, back, err)
			}
		}
	}

	unnamed := &x509.Certificate{
		NotAfter: time.Now().Add(time.Hour),
		URIs:     []*url.URL{{Scheme: "clusterm", Opaque: "role:viewer"}},
	}
	if _, err := GrantOf(unnamed, time.Now()); inventory.KindOf(err) != inventory.KindForbidden {
		t.Errorf("without a name: %v", err)
	}
}

func TestProtocol(t *testing.T) {
	t.Parallel()

	now := &clock{}
	k := open(t, Options{Dir: filepath.Join(t.TempDir(), "pki"), Names: names("127.0.0.1")})
	s := listener(t, k)

	if answer, err := get(t, pinned(now, k.Fingerprint()), s.URL); err != nil ||
		answer != fmt.Sprint(tls.VersionTLS13) {
		t.Errorf("%q, %v", answer, err)
	}

	old := pinned(now, k.Fingerprint())
	old.Transport.(*http.Transport).TLSClientConfig.MaxVersion = tls.VersionTLS12

	if _, err := get(t, old, s.URL); err == nil || !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("TLS 1.2: %v", err)
	}

	for _, protocol := range []string{"h2", "http/1.1"} {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(s.URL, "https://"), &tls.Config{
			InsecureSkipVerify: true, NextProtos: []string{protocol}, //nolint:gosec // a test of the protocol only
		})
		errtest.None(t, err)
		if got := conn.ConnectionState().NegotiatedProtocol; got != protocol {
			t.Errorf("%s: %q", protocol, got)
		}

		_ = conn.Close()
	}

	var wrong net.Error
	if _, err := get(t, pinned(now, "sha256:00"), s.URL); err == nil || errors.As(err, &wrong) && wrong.Timeout() {
		t.Errorf("another fingerprint: %v", err)
	}
}

// TestEncode reads the files by the standard library, as other programs do.
func TestEncode(t *testing.T) {
	t.Parallel()

	dir := filepath.Join(t.TempDir(), "pki")
	k := open(t, Options{Dir: dir, Names: names("h")})

	if _, err := tls.LoadX509KeyPair(serverPath(dir), serverPath(dir)); err != nil {
		t.Error(err)
	}

	block, _ := pem.Decode(EncodeCertificate(k.CA()))
	if c, err := x509.ParseCertificate(block.Bytes); err != nil || Fingerprint(c) != k.Fingerprint() {
		t.Error(err)
	}
}
