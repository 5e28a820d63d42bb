// SPDX-License-Identifier: Apache-2.0

package oidc

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/contiv/cluster/inventory"
)

const (
	// fetchTime bounds one request to the issuer.
	fetchTime = 5 * time.Second
	// maxAnswer bounds an answer of the issuer, in bytes.
	maxAnswer = 1 << 20
	// maxAnswers bounds the number of documents that are kept. An issuer has two.
	maxAnswers = 8
)

// ReadRoots reads the file with the CAs of an issuer.
func ReadRoots(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, inventory.Errorf(inventory.KindInvalid, "oidc.ca_file: %w", err).
			Do("write the path of the CA of the issuer, or leave it empty")
	}

	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, inventory.Errorf(inventory.KindInvalid, "oidc.ca_file: %s holds no certificate", path).
			Do("write the CA of the issuer into it, PEM")
	}

	return roots, nil
}

// fetchError is the failure to get a document of the issuer.
type fetchError struct{ err error }

func (e *fetchError) Error() string { return e.err.Error() }
func (e *fetchError) Unwrap() error { return e.err }

// fetcher gets the documents of an issuer, over HTTPS only. It answers a repeated
// request from memory until keep is over.
type fetcher struct {
	next http.RoundTripper
	keep time.Duration

	mu      sync.Mutex
	answers map[string]answer // by URL
}

// answer is a document, or the failure to get it.
type answer struct {
	at   time.Time
	kind string // content type
	body []byte
	err  error
}

// newClient returns a client of the issuer that trusts the roots; nil: those of the host.
func newClient(roots *x509.CertPool, keep time.Duration) *http.Client {
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: fetchTime,
		ForceAttemptHTTP2:   true,
		// The keys are needed rarely: an idle connection would be closed by then.
		DisableKeepAlives: true,
	}

	return &http.Client{
		Timeout:   fetchTime,
		Transport: &fetcher{next: transport, keep: keep, answers: map[string]answer{}},
		CheckRedirect: func(r *http.Request, _ []*http.Request) error {
			return fmt.Errorf("it redirects to %s", r.URL.Redacted())
		},
	}
}

// RoundTrip answers a request. Every error is a *fetchError.
func (f *fetcher) RoundTrip(r *http.Request) (*http.Response, error) {
	url := r.URL.String()

	f.mu.Lock()
	known, ok := f.answers[url]
	f.mu.Unlock()

	if !ok || time.Since(known.at) >= f.keep {
		known = f.get(r)

		f.mu.Lock()
		if len(f.answers) >= maxAnswers {
			clear(f.answers)
		}

		f.answers[url] = known
		f.mu.Unlock()
	}

	if known.err != nil {
		return nil, &fetchError{known.err}
	}

	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {known.kind}}, Request: r,
		Body: io.NopCloser(bytes.NewReader(known.body)), ContentLength: int64(len(known.body)),
	}, nil
}

// get asks the issuer.
func (f *fetcher) get(r *http.Request) answer {
	failed := func(format string, args ...any) answer {
		return answer{at: time.Now(), err: fmt.Errorf(format, args...)}
	}

	// The keys decide who gets in, so nobody may change them on their way.
	if r.URL.Scheme != "https" {
		return failed("its URL %s is not of HTTPS", r.URL.Redacted())
	}

	res, err := f.next.RoundTrip(r)
	if err != nil {
		return failed("%w", err)
	}
	defer res.Body.Close()

	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))

	switch {
	case err != nil:
		return failed("its answer breaks off: %w", err)
	case res.StatusCode != http.StatusOK:
		return failed("it answered %d at %s", res.StatusCode, r.URL.Redacted())
	case len(body) > maxAnswer:
		return failed("its answer at %s has more than %d bytes", r.URL.Redacted(), maxAnswer)
	case !json.Valid(body):
		return failed("its answer at %s is not JSON", r.URL.Redacted())
	}

	return answer{at: time.Now(), kind: res.Header.Get("Content-Type"), body: body}
}
