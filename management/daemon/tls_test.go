// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/pki"
)

// The places of the listeners in Addrs, with all of them configured.
const (
	addrSocket = iota
	addrPlain
	addrTLS
	addrMetrics
)

// secureSite begins a daemon with every listener.
func secureSite(t *testing.T, yaml ...string) *site {
	t.Helper()
	return begin(t, slices.Concat([]string{"listen: 127.0.0.1:0", "metrics_listen: 127.0.0.1:0"}, yaml)...)
}

func (s *site) secureURL() string { return "https://" + s.Addrs()[addrTLS].String() }

func (s *site) pkiDir() string { return filepath.Join(s.dir, "d", "pki") }

// remote returns a client over HTTPS, with a certificate of the role unless that is
// empty.
func (s *site) remote(role string) *client.Client {
	s.t.Helper()

	ca, err := pki.ReadCA(s.pkiDir())
	s.must(err)

	o := client.Options{URL: s.secureURL(), Trust: client.Trust{Fingerprint: client.Fingerprint(ca)}, Patience: -1}
	if role != "" {
		content, err := pki.IssueClient(s.pkiDir(), pki.Grant{Name: "rack1", Role: role}, time.Hour)
		s.must(err)
		o.Trust.CertFile = filepath.Join(s.t.TempDir(), "client.pem")
		s.must(os.WriteFile(o.Trust.CertFile, content, 0o600))
	}

	c, err := client.New(o)
	s.must(err)

	return c
}

// TestHTTPS: nothing without credentials, and the role of the certificate with one.
func TestHTTPS(t *testing.T) {
	t.Parallel()

	s := secureSite(t)
	report := api.Report{Observer: "rack1", Observations: []api.Observation{
		{Label: "web-1", Serial: "1", Addr: "192.0.2.1", Alive: true},
	}}

	for _, c := range []struct {
		role                      string
		version, nodes, observing inventory.Kind
	}{
		{"", inventory.KindUnauthenticated, inventory.KindUnauthenticated, inventory.KindUnauthenticated},
		{"monitor", "", inventory.KindForbidden, ""},
		{"viewer", "", "", inventory.KindForbidden},
		{"admin", "", "", ""},
		{"king", inventory.KindForbidden, inventory.KindForbidden, inventory.KindForbidden},
	} {
		m := s.remote(c.role)
		_, version := m.Version(s.ctx())
		_, nodes := m.Nodes(s.ctx(), client.NodeFilter{})
		_, observing := m.Observe(s.ctx(), report)

		for _, got := range []struct {
			call string
			err  error
			want inventory.Kind
		}{{"version", version, c.version}, {"nodes", nodes, c.nodes}, {"report", observing, c.observing}} {
			if inventory.KindOf(got.err) != got.want {
				t.Errorf("role %q, %s: %v; want %q", c.role, got.call, got.err, got.want)
			}
		}
	}

	// Other hosts find this instance by its record.
	instances, err := s.Instances(s.ctx())
	s.must(err)

	ca, err := pki.ReadCA(s.pkiDir())
	s.must(err)

	if i := instances.Items[0]; i.CA != client.Fingerprint(ca) || i.API[len(i.API)-1] != s.secureURL() ||
		!slices.Contains(i.API, s.url) {
		t.Errorf("the instance is at %q with the CA %s", i.API, i.CA)
	}

	if text := s.log.String(); !strings.Contains(text, "actor=\"certificate:rack1\"") {
		t.Error("the log does not name the certificate")
	}

	h, err := s.Health(s.ctx())
	if err != nil || h.Checks["certificate"] != "ok" {
		t.Errorf("health: %v, %v", h.Checks, err)
	}

	if _, text := s.get("/metrics"); !strings.Contains(
		text,
		`clusterm_certificate_expiry_timestamp_seconds{certificate="ca"}`,
	) {
		t.Error("no metric of the expiry")
	}
}

// TestWithoutCredentials: the answers to a stranger are the same for every path, and
// name no version.
func TestWithoutCredentials(t *testing.T) {
	t.Parallel()

	s := secureSite(t)
	h := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the stranger does not care
	}}

	for _, path := range []string{
		"/", "/v1/nodes", "/v1/version", "/v1/health", "/v1/docs", "/v1/openapi.yaml", "/metrics", "/info/nodes",
		"/debug/pprof/", "/nothing", "/v1/nothing",
	} {
		for name, authorization := range map[string]string{"none": "", "unknown": "Bearer x", "other": "Basic eDp5"} {
			req, err := http.NewRequestWithContext(s.ctx(), http.MethodGet, s.secureURL()+path, nil)
			s.must(err)

			if authorization != "" {
				req.Header.Set("Authorization", authorization)
			}

			res, err := h.Do(req)
			s.must(err)

			text, err := io.ReadAll(res.Body)
			s.must(err)
			_ = res.Body.Close()

			if res.StatusCode != http.StatusUnauthorized || res.Header.Get("Server") != "" ||
				strings.Contains(string(text), "\"test\"") || strings.Contains(string(text), "go1.") {
				t.Errorf("%s, %s: %s %s", path, name, res.Status, text)
			}
		}
	}

	// Without Origin a browser's page is refused with credentials, too.
	req, err := http.NewRequestWithContext(s.ctx(), http.MethodGet, s.secureURL()+"/v1/version", nil)
	s.must(err)
	req.Header.Set("Origin", "https://evil.example")

	res, err := h.Do(req)
	s.must(err)
	_ = res.Body.Close()

	if res.StatusCode != http.StatusForbidden {
		t.Errorf("a page of another site: %s", res.Status)
	}
}

// TestMetricsListen: metrics and health, and nothing else.
func TestMetricsListen(t *testing.T) {
	t.Parallel()

	s := secureSite(t)
	base := "http://" + s.Addrs()[addrMetrics].String()

	for _, c := range []struct {
		method, path string
		want         int
	}{
		{http.MethodGet, "/metrics", http.StatusOK},
		{http.MethodGet, "/v1/health", http.StatusOK},
		{http.MethodPost, "/v1/health", http.StatusMethodNotAllowed},
		{http.MethodGet, "/v1/version", http.StatusNotFound},
		{http.MethodGet, "/v1/nodes", http.StatusNotFound},
		{http.MethodPost, "/v1/jobs", http.StatusNotFound},
		{http.MethodGet, "/info/nodes", http.StatusNotFound},
		{http.MethodGet, "/v1/docs", http.StatusNotFound},
		{http.MethodGet, "/debug/pprof/", http.StatusNotFound},
	} {
		req, err := http.NewRequestWithContext(s.ctx(), c.method, base+c.path, nil)
		s.must(err)

		res, err := http.DefaultClient.Do(req)
		s.must(err)
		_ = res.Body.Close()

		if res.StatusCode != c.want {
			t.Errorf("%s %s: %s", c.method, c.path, res.Status)
		}
	}
}

// TestProfiles: only the Unix socket serves the profiles of the process.
func TestProfiles(t *testing.T) {
	t.Parallel()

	s := secureSite(t)
	admin := filepath.Join(t.TempDir(), "admin.pem")
	content, err := pki.IssueClient(s.pkiDir(), pki.Grant{Name: "root", Role: "admin"}, time.Hour)
	s.must(err)
	s.must(os.WriteFile(admin, content, 0o600))

	pair, err := tls.LoadX509KeyPair(admin, admin)
	s.must(err)

	dial := func(network, addr string) *http.Client {
		return &http.Client{Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, addr)
			},
			//nolint:gosec // the test looks at the status only
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}},
		}}
	}

	for i, l := range []struct{ name, scheme, network string }{
		{"socket", "http", "unix"}, {"plain", "http", "tcp"}, {"TLS", "https", "tcp"}, {"metrics", "http", "tcp"},
	} {
		addr := s.Addrs()[i].String()

		for _, name := range []string{"", "heap", "cmdline", "symbol"} {
			path := "/debug/pprof/" + name

			host := addr
			if i == addrSocket {
				host = "localhost"
			}
			req, err := http.NewRequestWithContext(s.ctx(), http.MethodGet, l.scheme+"://"+host+path, nil)
			s.must(err)

			res, err := dial(l.network, addr).Do(req)
			s.must(err)
			_ = res.Body.Close()

			if (res.StatusCode == http.StatusOK) != (i == addrSocket) {
				t.Errorf("%s on %s: %s", path, l.name, res.Status)
			}
		}
	}
}

// TestCertificateRenewal moves the clock of a daemon behind the end of its
// certificates: it renews them, and goes on.
func TestCertificateRenewal(t *testing.T) {
	t.Parallel()

	var offset atomic.Int64

	s := prepare(t, "listen: 127.0.0.1:0")
	s.tune = func(o *Options) {
		o.CertificatesEvery = time.Millisecond
		o.Certificates.Now = func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
	}
	s.up()
	t.Cleanup(s.down)

	// The clients trust the chain by the key of the CA, whatever the time.
	before, err := pki.ReadCA(s.pkiDir())
	s.must(err)

	addr := s.Addrs()[addrTLS].String()
	kept := s.remote("")

	if _, err := kept.Version(s.ctx()); inventory.KindOf(err) != inventory.KindUnauthenticated {
		t.Fatal(err)
	}

	shown := func() (leaf, ca *x509.Certificate) {
		//nolint:gosec // the test compares the certificates itself
		conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
		s.must(err)
		defer conn.Close()

		chain := conn.ConnectionState().PeerCertificates
		return chain[0], chain[1]
	}
	first, _ := shown()

	for _, ahead := range []time.Duration{80 * 24 * time.Hour, 9 * 365 * 24 * time.Hour} {
		offset.Store(int64(ahead))

		leaf, ca := shown()
		for ; leaf.Equal(first); leaf, ca = shown() {
			s.must(s.ctx().Err())
		}

		if pki.Fingerprint(ca) != pki.Fingerprint(before) || leaf.CheckSignatureFrom(ca) != nil {
			t.Errorf("%v ahead: another key of the CA", ahead)
		}

		if _, err := kept.Version(s.ctx()); inventory.KindOf(err) != inventory.KindUnauthenticated {
			t.Errorf("%v ahead, on a kept connection: %v", ahead, err)
		}

		first = leaf
	}
}

// TestSiteCertificate: the files of a site are in force after a reload, and a broken
// one shows in health.
func TestSiteCertificate(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()

	other, err := pki.Open(
		pki.Options{Dir: filepath.Join(dir, "pki"), Names: func() []string { return []string{"127.0.0.1"} }},
	)
	errtest.None(t, err)

	content, err := os.ReadFile(filepath.Join(dir, "pki", "server.pem"))
	errtest.None(t, err)

	file := filepath.Join(dir, "site.pem")
	errtest.None(t, os.WriteFile(file, content, 0o600))
	s := secureSite(t, "tls: {cert_file: "+file+", key_file: "+file+"}")

	m, err := client.New(client.Options{URL: s.secureURL(), Trust: client.Trust{Fingerprint: other.Fingerprint()}})
	s.must(err)

	if _, err := m.Version(s.ctx()); inventory.KindOf(err) != inventory.KindUnauthenticated {
		t.Errorf("the site's certificate: %v", err)
	}

	s.must(os.WriteFile(file, []byte("broken"), 0o600))
	s.must(s.Reload())

	h, err := s.Health(s.ctx())
	if err != nil || !strings.Contains(h.Checks["certificate"], "tls.cert_file") {
		t.Errorf("health: %v, %v", h.Checks, err)
	}
	if all := strings.Join(s.troubles.During(time.Now(), time.Now()), "; "); !strings.Contains(all, "tls.cert_file") {
		t.Errorf("a run that fails would tell of %q", all)
	}

	if _, err := m.Version(s.ctx()); inventory.KindOf(err) != inventory.KindUnauthenticated {
		t.Errorf("with the former certificate: %v", err)
	}

	// At the start there is none to go on with.
	s.down()

	if err := s.try(patience); inventory.KindOf(err) != inventory.KindInvalid {
		t.Errorf("a start with a broken file: %v", err)
	}
}
