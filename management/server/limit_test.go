// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/server"
)

// callers is a server with limits for each caller, and two callers with a token.
type callers struct {
	*site

	greedy, other string // the tokens
	health        chan struct{}
	asked         chan struct{}
}

func newCallers(t *testing.T) *callers {
	t.Helper()

	store := newTokens()
	tokens := access.NewTokens(store, noAudit{}, inventory.DefaultGroups)
	c := &callers{health: make(chan struct{}), asked: make(chan struct{}, 100)}

	// A health that waits stands for every slow request.
	c.site = serve(t, func(o *server.Options) {
		o.Tokens = tokens
		o.Health = func(ctx context.Context) api.Health {
			c.asked <- struct{}{}

			select {
			case <-c.health:
			case <-ctx.Done():
			}

			return api.Health{Status: api.HealthOK}
		}
	})
	given := issue(t, tokens, store)
	c.greedy, c.other = given.valid[access.RoleOperator], given.valid[access.RoleViewer]
	c.SetCallerLimits(2, 3)

	return c
}

// send answers one request of a caller. A watch or log goes on until ctx ends.
func (c *callers) send(ctx context.Context, w http.ResponseWriter, token, method, path string) {
	r := httptest.NewRequestWithContext(server.OnTLS(ctx), method, path, strings.NewReader(""))
	r.Host = "localhost"
	r.Header.Set("Authorization", "Bearer "+token)
	c.ServeHTTP(w, r)
}

// get returns the answer to a request of a caller.
func (c *callers) get(t *testing.T, token, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	c.send(testCtx(t), w, token, http.MethodGet, path)
	return w
}

// wantBusy expects a refusal that names the limit, and the time to wait.
func (c *callers) wantBusy(t *testing.T, path, words string) {
	t.Helper()

	w := c.get(t, c.greedy, path)
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" ||
		!strings.Contains(w.Body.String(), words) {
		t.Errorf("%s beyond the limit: %d %v %s, want %s", path, w.Code, w.Header(), w.Body, words)
	}
}

// TestRequestsAtOnce expects a caller at its limit to be refused at once, another one to
// be served meanwhile, and the first again when a request has ended.
func TestRequestsAtOnce(t *testing.T) {
	t.Parallel()

	c := newCallers(t)

	var slow sync.WaitGroup
	for range 2 {
		slow.Go(func() { c.get(t, c.greedy, api.PathHealth) })
		<-c.asked
	}

	c.wantBusy(t, api.PathNodes, api.ProblemBase+string(inventory.KindBusy))
	c.wantBusy(t, api.PathNodes, "token:operator has 2 requests open already")
	c.wantBusy(t, api.LegacyNodes, "raise max_requests in the configuration")
	c.wantBusy(t, api.PathHealth, "max_requests")

	// The other caller is served while the greedy one goes on.
	var flood sync.WaitGroup
	for range 4 {
		flood.Go(func() {
			for range 50 {
				c.wantBusy(t, api.PathNodes, "max_requests")
			}
		})
	}

	for range 50 {
		if w := c.get(t, c.other, api.PathNodes); w.Code != http.StatusOK {
			t.Errorf("another caller: %d %s", w.Code, w.Body)
		}
	}

	flood.Wait()

	// Streams have a limit of their own.
	if w := c.get(t, c.greedy, api.PathJob[:len("/v1/jobs/")]+"7?wait=1s"); w.Code != http.StatusNotFound {
		t.Errorf("a wait: %d %s", w.Code, w.Body)
	}

	close(c.health)
	slow.Wait()

	if w := c.get(t, c.greedy, api.PathNodes); w.Code != http.StatusOK {
		t.Errorf("after their end: %d %s", w.Code, w.Body)
	}
}

// began reports the first flush of a stream.
type began struct {
	*httptest.ResponseRecorder

	once *sync.Once
	done chan struct{}
}

func (w began) Flush() { w.once.Do(func() { close(w.done) }) }

// TestStreamsAtOnce expects watches, followed logs and waits to share a limit for each
// caller, and a stream that has ended to count no more.
func TestStreamsAtOnce(t *testing.T) {
	t.Parallel()

	c := newCallers(t)

	_, err := c.manager.Submit(t.Context(), access.Caller{}, job.Request{
		Verb: inventory.VerbCommission, Nodes: []string{"a-1"},
	})
	errtest.None(t, err)

	open := func(token, path string) (end func()) {
		t.Helper()

		ctx, cancel := context.WithCancel(testCtx(t))
		w := began{httptest.NewRecorder(), &sync.Once{}, make(chan struct{})}
		ended := make(chan struct{})

		go func() {
			defer close(ended)
			// net/http ends the connection of a stream that breaks off.
			defer func() {
				if p := recover(); p != nil && p != http.ErrAbortHandler { //nolint:errorlint // as net/http does
					panic(p)
				}
			}()

			c.send(ctx, w, token, http.MethodGet, path)
		}()

		select {
		case <-w.done:
		case <-ended:
			t.Errorf("%s ended: %d %s", path, w.Code, w.Body)
		}

		return func() { cancel(); <-ended }
	}

	const log, events = "/v1/jobs/1/log?follow=true", "/v1/jobs/1/events?follow=true"

	ends := []func(){open(c.greedy, api.PathWatch), open(c.greedy, log), open(c.greedy, events)}

	for _, path := range []string{api.PathWatch, log, events, "/v1/jobs/1?wait=1m", "/info/logs/1"} {
		c.wantBusy(t, path, "token:operator has 3 watches, followed logs and waits open already")
	}

	// Short requests are not streams, and another caller has a limit of its own.
	for _, path := range []string{api.PathNodes, "/v1/jobs/1"} {
		if w := c.get(t, c.greedy, path); w.Code != http.StatusOK {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}

	open(c.other, api.PathWatch)()

	ends[0]()
	open(c.greedy, log)()

	for _, end := range ends[1:] {
		end()
	}
}
