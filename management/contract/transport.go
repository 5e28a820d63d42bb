// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
)

// Transport reports every exchange that the document does not allow: an
// accepted request that it would not have made, and any answer that it does
// not describe.
type Transport struct {
	Base   http.RoundTripper // nil: http.DefaultTransport
	Report func(format string, args ...any)
}

// RoundTrip makes the exchange. What streams is checked when it has ended, or is
// closed.
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	c, err := Load()
	if err != nil {
		return nil, err
	}

	var sent []byte
	if r.Body != nil {
		if sent, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}

		_ = r.Body.Close()

		r = r.Clone(r.Context())
		if r.Body = http.NoBody; len(sent) > 0 {
			r.Body = io.NopCloser(bytes.NewReader(sent))
		}
	}

	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}

	res, err := base.RoundTrip(r)
	if err != nil {
		return res, err
	}

	where := fmt.Sprintf("%s %s: %d", r.Method, r.URL.RequestURI(), res.StatusCode)
	if res.StatusCode < 400 {
		if err := c.Request(r, sent); err != nil {
			t.Report("%s, although the request was not as in openapi.yaml: %v\n%s", where, err, sent)
		}
	}

	check := func(body []byte) {
		if err := c.Response(res, body); err != nil {
			t.Report("%s: the answer is not as in openapi.yaml: %v\n%s", where, err, body)
		}
	}

	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if !strings.HasSuffix(kind, "json") && kind != "" {
		check(nil)
		res.Body = &tee{ReadCloser: res.Body, check: check}

		return res, nil
	}

	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}

	_ = res.Body.Close()
	check(append([]byte{}, body...))
	res.Body = io.NopCloser(bytes.NewReader(body))

	return res, nil
}

// tee keeps what passes, up to a size, for the check at the end.
type tee struct {
	io.ReadCloser
	kept  []byte
	check func([]byte)
}

// keep is how much of a stream is checked, in bytes.
const keep = 1 << 20

func (t *tee) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	if len(t.kept) < keep {
		t.kept = append(t.kept, p[:n]...)
	}

	if errors.Is(err, io.EOF) {
		t.end()
	}

	return n, err
}

// Close is the end of what nobody reads to its end.
func (t *tee) Close() error {
	t.end()
	return t.ReadCloser.Close()
}

func (t *tee) end() {
	if len(t.kept) > 0 && len(t.kept) < keep {
		t.check(t.kept)
	}

	t.kept = nil
}
