// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
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

const testToken = "canary-token-0123456789"

// keeper returns certificates for the names, made at a time.
func keeper(t *testing.T, made time.Time, names ...string) *pki.Keeper {
	t.Helper()

	k, err := pki.Open(pki.Options{
		Dir: filepath.Join(t.TempDir(), "pki"), Names: func() []string { return names },
		Now: func() time.Time { return made },
	})
	errtest.None(t, err)
	return k
}

// secure serves h over TLS with the configuration, and returns the URL.
func secure(t *testing.T, config *tls.Config, h http.HandlerFunc) string {
	t.Helper()

	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	addr := s.Listener.Addr().String()
	s.Listener = tls.NewListener(s.Listener, config)
	s.Start()
	t.Cleanup(s.Close)

	return "https://" + addr
}

func answerVersion(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", api.TypeJSON)

	peer := ""
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		g, _ := pki.GrantOf(r.TLS.PeerCertificates[0], time.Now())
		peer = g.Name
	}

	fmt.Fprintf(w, `{"version":%q,"commit":%q}`, r.Header.Get("Authorization"), peer)
}

func TestTLS(t *testing.T) {
	t.Parallel()

	now := time.Now()
	k := keeper(t, now, "127.0.0.1")
	good := secure(t, k.ServerConfig(), answerVersion)
	plain := httptest.NewServer(http.HandlerFunc(answerVersion))
	t.Cleanup(plain.Close)

	old := k.ServerConfig()
	old.GetConfigForClient, old.MinVersion, old.MaxVersion = nil, tls.VersionTLS12, tls.VersionTLS12

	for _, c := range []struct {
		name string
		o    client.Options
		want []string // in the error; none: success
	}{
		{"pinned", client.Options{URL: good, Trust: client.Trust{Fingerprint: k.Fingerprint()}}, nil},
		{"pinned in capitals", client.Options{
			URL: good, Trust: client.Trust{Fingerprint: strings.ToUpper(k.Fingerprint()[len("sha256:"):])},
		}, nil},
		{"a CA file", client.Options{URL: good, Trust: client.Trust{CA: pki.EncodeCertificate(k.CA())}}, nil},
		{
			"another fingerprint",
			client.Options{URL: good, Trust: client.Trust{Fingerprint: "sha256:" + strings.Repeat("0", 64)}},
			[]string{"another CA than the pinned one", k.Fingerprint(), "intercepted", "clusterm ca fingerprint"},
		},
		{"no trust", client.Options{URL: good}, []string{"this host does not trust", "clusterctl login " + good}},
		{
			"another CA file",
			client.Options{URL: good, Trust: client.Trust{CA: pki.EncodeCertificate(keeper(t, now, "x").CA())}},
			[]string{"this host does not trust"},
		},
		{
			"plain HTTP", client.Options{URL: strings.Replace(plain.URL, "http", "https", 1)},
			[]string{"does not speak TLS", "the key listen"},
		},
		{
			"plain HTTP to TLS", client.Options{URL: strings.Replace(good, "https", "http", 1)},
			[]string{"speaks TLS", "https://"},
		},
		{"no route", client.Options{URL: "https://127.0.0.1:1"}, []string{"refused the connection"}},
		{"no name", client.Options{URL: "https://no-such-host.invalid"}, []string{"cannot be resolved"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			c.o.Token, c.o.Patience = testToken, -1

			m, err := client.New(c.o)
			if err == nil {
				var v api.Version
				if v, err = m.Version(t.Context()); err == nil && v.Version != "Bearer "+testToken {
					t.Errorf("the manager received %q", v.Version)
				}
			}

			checkFailure(t, err, c.want...)
		})
	}
}

// TestHostCAs lets the CAs of this host count beside a pinned one only if the options say so. Go reads them once in a
// process, so a second one connects.
func TestHostCAs(t *testing.T) {
	if at := os.Getenv("TEST_HOST_CAS"); at != "" {
		for host, want := range map[bool][]string{true: nil, false: {"another CA than the pinned one"}} {
			other := client.Trust{Fingerprint: "sha256:" + strings.Repeat("0", 64), Host: host}
			m, err := client.New(client.Options{URL: at, Patience: -1, Trust: other})
			errtest.None(t, err)

			_, err = m.Version(t.Context())
			checkFailure(t, err, want...)
		}

		return
	}

	k := keeper(t, time.Now(), "127.0.0.1")
	file := filepath.Join(t.TempDir(), "ca.pem")
	errtest.None(t, os.WriteFile(file, pki.EncodeCertificate(k.CA()), 0o600))

	again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHostCAs$", "-test.v")
	again.Env = append(os.Environ(), "SSL_CERT_FILE="+file, "SSL_CERT_DIR=/nowhere",
		"TEST_HOST_CAS="+secure(t, k.ServerConfig(), answerVersion))

	if out, err := again.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestHostCAs") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestSeveralCAs: instances may have CAs of their own, and each has to be pinned.
func TestSeveralCAs(t *testing.T) {
	t.Parallel()

	a, b := keeper(t, time.Now(), "127.0.0.1"), keeper(t, time.Now(), "127.0.0.1")

	var asked atomic.Int32

	second := secure(t, b.ServerConfig(), func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		answerVersion(w, r)
	})
	urls := "https://127.0.0.1:1," + second
	zeros := "sha256:" + strings.Repeat("0", 64)

	for _, tt := range []struct {
		pins string
		want []string
	}{
		{a.Fingerprint() + "," + b.Fingerprint(), nil},
		{strings.ToUpper(b.Fingerprint()[len("sha256:"):]) + ", " + a.Fingerprint(), nil},
		{a.Fingerprint(), []string{"127.0.0.1:1 refused", second + " has another CA than the pinned one:"}},
		{a.Fingerprint() + "," + zeros, []string{
			second + " has another CA than the pinned ones: expected " + a.Fingerprint() + " or " + zeros,
			"nothing was sent", "clusterctl login " + second,
		}},
		{a.Fingerprint() + ",x", []string{`"x" is not a fingerprint`}},
	} {
		asked.Store(0)

		m, err := client.New(client.Options{
			URL: urls, Trust: client.Trust{Fingerprint: tt.pins}, Token: testToken, Patience: -1,
		})
		if err == nil {
			_, err = m.Version(t.Context())
		}

		checkFailure(t, err, tt.want...)

		if served := asked.Load() > 0; served != (tt.want == nil) {
			t.Errorf("pinned %s: served %t", tt.pins, served)
		}
	}
}

func checkFailure(t *testing.T, err error, want ...string) {
	t.Helper()

	if (err == nil) != (len(want) == 0) {
		t.Fatalf("%v; want %q", err, want)
	}

	for _, part := range want {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v\nhas no %q", err, part)
		}
	}

	if err != nil && strings.Contains(fmt.Sprintf("%v %+v", err, err), testToken) {
		t.Errorf("the token is in the error: %v", err)
	}
}

// TestCertificateErrors serves certificates that a client has to refuse, although
// it pins their CA.
func TestCertificateErrors(t *testing.T) {
	t.Parallel()

	const year = 365 * 24 * time.Hour

	for _, c := range []struct {
		name  string
		made  time.Time
		names []string
		want  []string
	}{
		{"expired", time.Now().Add(-year), []string{"127.0.0.1"}, []string{"expired at", "timedatectl"}},
		{"of the future", time.Now().Add(year), []string{"127.0.0.1"}, []string{"is not valid before", "timedatectl"}},
		{
			"of another name", time.Now(), []string{"manager", "192.0.2.1"},
			[]string{"is for manager, 192.0.2.1, and not for 127.0.0.1", "tls.names"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			var requests atomic.Int64

			k := keeper(t, c.made, c.names...)
			url := secure(t, k.ServerConfig(), func(http.ResponseWriter, *http.Request) { requests.Add(1) })

			m, err := client.New(client.Options{URL: url, Trust: client.Trust{Fingerprint: k.Fingerprint()}})
			errtest.None(t, err)
			_, err = m.Version(t.Context())
			checkFailure(t, err, c.want...)

			_, _, err = client.Certificate(t.Context(), url)
			checkFailure(t, err, c.want...)

			if requests.Load() > 0 {
				t.Error("the request was sent")
			}
		})
	}
}

func TestCertificate(t *testing.T) {
	t.Parallel()

	k := keeper(t, time.Now(), "127.0.0.1")

	ca, trusted, err := client.Certificate(t.Context(), secure(t, k.ServerConfig(), answerVersion))
	if err != nil || trusted || client.Fingerprint(ca) != k.Fingerprint() {
		t.Errorf("trusted %v, %v", trusted, err)
	}

	if _, _, err := client.Certificate(t.Context(), "http://127.0.0.1:1"); inventory.KindOf(
		err,
	) != inventory.KindInvalid {
		t.Errorf("an http URL: %v", err)
	}

	plain := httptest.NewServer(http.HandlerFunc(answerVersion))
	t.Cleanup(plain.Close)

	_, _, err = client.Certificate(t.Context(), strings.Replace(plain.URL, "http", "https", 1))
	checkFailure(t, err, "does not speak TLS")

	// A certificate without the CA in its chain cannot be pinned.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	errtest.None(t, err)

	full, err := k.ServerConfig().GetConfigForClient(nil)
	errtest.None(t, err)
	leaf := full.Certificates[0]
	leaf.Certificate = leaf.Certificate[:1]
	bare := httptest.NewUnstartedServer(http.HandlerFunc(answerVersion))
	bare.Listener = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{leaf}, MinVersion: tls.VersionTLS13})
	bare.Start()
	t.Cleanup(bare.Close)

	_, _, err = client.Certificate(t.Context(), "https://"+l.Addr().String())
	checkFailure(t, err, "presents no CA to pin", "--ca-file")

	// A server that does not answer has a deadline.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	errtest.None(t, err)
	defer silent.Close()

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()

	_, _, err = client.Certificate(ctx, "https://"+silent.Addr().String())
	checkFailure(t, err, "did not answer in time")
}

func TestToken(t *testing.T) {
	t.Parallel()

	for _, url := range []string{"http://192.0.2.1:9007", "http://manager:9007", "192.0.2.1:9007"} {
		_, err := client.New(client.Options{URL: url, Token: testToken})
		checkFailure(t, err, "a token is not sent to http://", "https://")
	}

	for _, url := range []string{"http://127.0.0.1:9007", "http://localhost:9007", "https://192.0.2.1", ""} {
		if _, err := client.New(client.Options{URL: url, Token: testToken}); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}

	for _, token := range []string{testToken + "\n", testToken + " x", "é" + testToken} {
		_, err := client.New(client.Options{URL: "https://192.0.2.1", Token: token})
		checkFailure(t, err, "the token is malformed")
	}
}

// TestRedirect: the token stays with the manager, also with a client of the caller.
func TestRedirect(t *testing.T) {
	t.Parallel()

	var leaked atomic.Int64

	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { leaked.Add(1) }))
	t.Cleanup(other.Close)

	redirecting := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	t.Cleanup(redirecting.Close)

	for _, h := range []*http.Client{nil, {}} {
		m, err := client.New(client.Options{URL: redirecting.URL, Token: testToken, HTTPClient: h})
		errtest.None(t, err)
		if _, err := m.Version(t.Context()); err == nil {
			t.Error("a redirect is an answer")
		}
	}

	if leaked.Load() > 0 {
		t.Error("a redirect was followed")
	}
}

func TestClientCertificate(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()

	k, err := pki.Open(
		pki.Options{Dir: filepath.Join(dir, "pki"), Names: func() []string { return []string{"127.0.0.1"} }},
	)
	errtest.None(t, err)
	url, file := secure(t, k.ServerConfig(), answerVersion), filepath.Join(dir, "client.pem")
	issue := func(ca string) {
		t.Helper()
		content, err := pki.IssueClient(ca, pki.Grant{Name: "rack1", Role: "monitor"}, time.Hour)
		errtest.None(t, err)
		errtest.None(t, os.WriteFile(file, content, 0o600))
	}
	options := client.Options{URL: url, Trust: client.Trust{Fingerprint: k.Fingerprint(), CertFile: file}, Patience: -1}

	_, err = client.New(options)
	checkFailure(t, err, "the client certificate cannot be used", "no such file")
	issue(filepath.Join(dir, "pki"))

	m, err := client.New(options)
	errtest.None(t, err)
	if v, err := m.Version(t.Context()); err != nil || v.Commit != "rack1" {
		t.Errorf("%+v, %v", v, err)
	}

	errtest.None(t, os.Chmod(file, 0o644))

	_, err = client.New(options)
	checkFailure(t, err, "others than the owner", "chmod 600")
}

func TestParseFingerprint(t *testing.T) {
	t.Parallel()

	want := "sha256:" + strings.Repeat("0a", 32)
	for _, s := range []string{want, strings.Repeat("0A", 32), " SHA256:" + strings.Repeat("0A:", 31) + "0A\n"} {
		if got, err := client.ParseFingerprint(s); err != nil || got != want {
			t.Errorf("%q: %q, %v", s, got, err)
		}
	}

	for _, s := range []string{"", "sha256:", "sha256:00", strings.Repeat("0g", 32), "sha1:" + want[7:47]} {
		if _, err := client.ParseFingerprint(s); inventory.KindOf(err) != inventory.KindInvalid {
			t.Errorf("%q: %v", s, err)
		}
	}
}
