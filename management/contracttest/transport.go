// SPDX-License-Identifier: Apache-2.0

package contracttest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Transport reports every exchange that openapi.yaml does not allow: a request
// that the server accepts and the document forbids, and any undocumented answer.
type Transport struct {
	Base   http.RoundTripper // nil: http.DefaultTransport
	Report func(format string, args ...any)
}

// RoundTrip performs the exchange. It validates a stream when the stream ends or
// the caller closes it.
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	c, err := Load()
	if err != nil {
		return nil, err
	}

	r, sent, err := readBody(r)
	if err != nil {
		return nil, err
	}

	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	res, err := base.RoundTrip(r)
	if err != nil {
		return res, err
	}
	exchange := fmt.Sprintf("%s %s: %d", r.Method, r.URL.RequestURI(), res.StatusCode)

	// The server may refuse any request, but must not accept an undocumented one.
	if res.StatusCode < 400 {
		if err := c.Request(r, sent); err != nil {
			t.Report("%s: accepted, but not allowed by openapi.yaml: %v\n%s", exchange, err, sent)
		}
	}

	check := func(body []byte) {
		if err := c.Response(res, body); err != nil {
			t.Report("%s: the answer differs from openapi.yaml: %v\n%s", exchange, err, body)
		}
	}

	// Text may be an endless stream, so it is validated while the caller reads it.
	if res.Header.Get("Content-Type") != "" && !isJSON(res.Header) {
		check(nil)
		res.Body = &tee{ReadCloser: res.Body, check: check}
		return res, nil
	}

	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}

	_ = res.Body.Close()

	check(bytes.Clone(body))
	res.Body = io.NopCloser(bytes.NewReader(body))

	return res, nil
}

// readBody returns the body of a request, and a copy of the request to send.
func readBody(r *http.Request) (*http.Request, []byte, error) {
	if r.Body == nil {
		return r, nil, nil
	}

	sent, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, nil, err
	}

	_ = r.Body.Close()

	r = r.Clone(r.Context())

	r.Body = http.NoBody
	if len(sent) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(sent))
	}

	return r, sent, nil
}

// tee collects the bytes read from a stream and validates them at its end.
type tee struct {
	io.ReadCloser
	collected []byte
	check     func([]byte)
}

// maxCollected is the longest stream to validate, in bytes.
const maxCollected = 1 << 20

func (t *tee) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	if len(t.collected) < maxCollected {
		t.collected = append(t.collected, p[:n]...)
	}

	// The caller may never close a stream that has ended.
	if errors.Is(err, io.EOF) {
		t.end()
	}

	return n, err
}

// Close validates a stream that the caller leaves before its end.
func (t *tee) Close() error {
	t.end()
	return t.ReadCloser.Close()
}

func (t *tee) end() {
	if len(t.collected) > 0 && len(t.collected) < maxCollected {
		t.check(t.collected)
	}

	t.collected = nil
}
