// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/server"
)

// TestNoRoom: without room, changes are refused with the reason, and change nothing. Reads, and what ends or removes
// something, go on.
func TestNoRoom(t *testing.T) {
	t.Parallel()

	s := serve(t, func(o *server.Options) {
		o.Room = func() error { return inventory.Errorf(inventory.KindUnavailable, "the disk is full").Do("free some") }
	})

	_, before := s.ask(t, http.MethodGet, "/v1/vars/global", "")

	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{http.MethodPatch, "/v1/vars/global", `{"a":1}`, http.StatusServiceUnavailable},
		{http.MethodPost, "/v1/jobs", `{"verb":"apply","nodes":["n"]}`, http.StatusServiceUnavailable},
		{http.MethodPost, "/globals", `{"extra_vars":{"a":1}}`, http.StatusInternalServerError},
		{http.MethodGet, "/v1/nodes", "", http.StatusOK},
		{http.MethodPost, "/v1/jobs/77/cancel", "", http.StatusNotFound},
		{http.MethodPost, "/v1/rollouts/77/abort", `{}`, http.StatusNotFound},
		{http.MethodPost, "/v1/rollouts/77/pause", `{}`, http.StatusServiceUnavailable},
		{http.MethodPost, "/v1/ssh-key/cancel", "", http.StatusAccepted},
		{http.MethodDelete, "/v1/alerts/none", "", http.StatusNotFound},
	} {
		res, text := s.ask(t, c.method, c.path, c.body, "Content-Type", "application/json")
		if res.StatusCode != c.want {
			t.Errorf("%s %s: %d, want %d: %s", c.method, c.path, res.StatusCode, c.want, text)
		}

		if refused := c.want >= 500; refused != strings.Contains(text, "the disk is full") {
			t.Errorf("%s %s: %s", c.method, c.path, text)
		}
	}

	if _, after := s.ask(t, http.MethodGet, "/v1/vars/global", ""); after != before {
		t.Errorf("the variables were %s, and are %s", before, after)
	}
}
