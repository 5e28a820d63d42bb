// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	s := serve(t)
	const body = `{"verb":"commission","nodes":["a-1"]}`
	post := func(body, key string) (*http.Response, string) {
		return s.exchange(t, "POST", "/v1/jobs", body, api.HeaderIdempotencyKey, key)
	}
	first, text := post(body, "k1")
	// The digest is of the decoded body, so the spelling is of no consequence.
	again, same := post(" {\"nodes\": [\"a-1\"],\n \"verb\": \"commission\"} ", "k1")
	if first.StatusCode != 202 || again.StatusCode != 202 || text != same ||
		first.Header.Get(api.HeaderReplayed) != "" ||
		again.Header.Get(api.HeaderReplayed) != "true" ||
		again.Header.Get("Location") != "/v1/jobs/1" {
		t.Errorf("%d %s\n%d %s %v", first.StatusCode, text, again.StatusCode, same, again.Header)
	}

	if other, text := post(
		`{"verb":"commission","nodes":["bb-1"]}`,
		"k1",
	); other.StatusCode != 422 ||
		!strings.Contains(text, api.ProblemBase+"key-reused") {
		t.Errorf("another request: %d %s", other.StatusCode, text)
	}

	if other, _ := post(
		body,
		"k2",
	); other.Header.Get(api.HeaderReplayed) != "" ||
		other.Header.Get("Location") != "/v1/jobs/2" {
		t.Errorf("another key: %v", other.Header)
	}

	for _, bad := range []string{"", "a b", "é", strings.Repeat("x", 256)} {
		if res, text := post(body, bad); res.StatusCode != 400 || !strings.Contains(text, "e.g. a UUID") {
			t.Errorf("%q: %d %s", bad, res.StatusCode, text)
		}
	}

	if res, text := s.exchange(
		t,
		"POST",
		"/v1/config/reload",
		"",
		api.HeaderIdempotencyKey,
		"k1",
	); res.StatusCode != 400 ||
		!strings.Contains(text, "has no meaning") {
		t.Errorf("a change without a transaction: %d %s", res.StatusCode, text)
	}

	// Another client may use the same key.
	if ownAccount(t) != "" {
		res, _ := s.exchange(t, "POST", "/v1/jobs", body, api.HeaderIdempotencyKey, "k1")

		j := must[api.Job](
			t,
		)(
			s.client(t).
				IdempotencyKey("k1").
				Submit(testCtx(t), api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}}),
		)
		if res.Header.Get("Location") == "/v1/jobs/"+j.ID {
			t.Errorf("job %s belongs to another client", j.ID)
		}
	}
}

// lossyTransport loses the answers to the first few POSTs.
type lossyTransport struct {
	http.RoundTripper
	left atomic.Int32
}

func (b *lossyTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := b.RoundTripper.RoundTrip(r)
	if err == nil && r.Method == http.MethodPost && b.left.Add(-1) >= 0 {
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		return nil, io.ErrUnexpectedEOF
	}

	return res, err
}

// TestSubmitOverLossyConnection expects one job although the client retries.
func TestSubmitOverLossyConnection(t *testing.T) {
	t.Parallel()
	s := serve(t)
	way := &lossyTransport{RoundTripper: http.DefaultTransport}

	c, err := client.New(client.Options{URL: s.url, HTTPClient: &http.Client{Transport: way}})
	if err != nil {
		t.Fatal(err)
	}

	ask := api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}}
	way.left.Store(2)
	j := must[api.Job](t)(c.Submit(testCtx(t), ask))
	expect(t, "job", j.ID, "1")
	expect(t, "jobs", len(s.manager.View().Jobs()), 1)
	expect(t, "another", must[api.Job](t)(c.Submit(testCtx(t), ask)).ID, "2")
	expect(t, "with a key", must[api.Job](t)(c.IdempotencyKey("k").Submit(testCtx(t), ask)).ID, "3")
	expect(t, "with the same key", must[api.Job](t)(c.IdempotencyKey("k").Submit(testCtx(t), ask)).ID, "3")
	ask.Nodes = []string{"bb-1"}
	_, err = c.IdempotencyKey("k").Submit(testCtx(t), ask)
	expect(t, "for another", inventory.KindOf(err), inventory.KindKeyReused)

	way.left.Store(1 << 30)

	c, err = client.New(client.Options{URL: s.url, HTTPClient: &http.Client{Transport: way}, Patience: -1})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Submit(testCtx(t), ask)
	expect(t, "without patience", inventory.KindOf(err), inventory.KindUnavailable)

	if log := bytes.Count([]byte(err.Error()), []byte("closed the connection")); log != 1 {
		t.Error(err)
	}
}
