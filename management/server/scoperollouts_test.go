// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/state"
)

// TestScopeOfMixedRollout: a rollout with a node outside the scope is not there, and what it did
// to a node within is in the jobs of that, and in their explanations.
func TestScopeOfMixedRollout(t *testing.T) {
	t.Parallel()

	s, send := scopedServer(t, access.Scope{Groups: []string{inventory.GroupWorker}})
	own, mixed := rolloutID("1"), rolloutID("2")

	s.manager.change(func(v *state.View) {
		for i := range v.Jobs {
			if v.Jobs[i].ID == "4" {
				v.Jobs[i].Rollout = mixed
			}
		}
	})

	for _, c := range []struct {
		method, path, body string
		status             int
		with, without      string
	}{
		{http.MethodGet, "/v1/rollouts", "", http.StatusOK, own, mixed},
		{http.MethodGet, "/v1/rollouts/" + own, "", http.StatusOK, inside, outside},
		{http.MethodGet, "/v1/rollouts/" + mixed, "", http.StatusNotFound, "", outside},
		{http.MethodPost, "/v1/rollouts/" + mixed + "/abort", "{}", http.StatusNotFound, "", outside},
		{http.MethodGet, "/v1/jobs/4", "", http.StatusOK, mixed, outside},
		{http.MethodGet, "/v1/jobs/4/explanation", "", http.StatusOK, "it is a part of rollout " + mixed, outside},
	} {
		w := send(c.method, c.path, c.body)
		if text := w.Body.String(); w.Code != c.status || !strings.Contains(text, c.with) ||
			strings.Contains(text, c.without) {
			t.Errorf("%s %s: %d %s", c.method, c.path, w.Code, text)
		}
	}
}
