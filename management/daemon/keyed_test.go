// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/server"
)

// keyed sends a request with an Idempotency-Key, and reports whether the answer is that of an earlier one.
func (s *site) keyed(method, path, body, key string) (status int, replayed bool) {
	s.t.Helper()

	req, err := http.NewRequestWithContext(s.ctx(), method, "http://socket"+path, strings.NewReader(body))
	s.must(err)

	req.Header.Set(api.HeaderIdempotencyKey, key)
	if body != "" {
		req.Header.Set("Content-Type", api.TypeJSON)
	}

	res, err := s.checked().Do(req)
	s.must(err)
	s.must(res.Body.Close())

	return res.StatusCode, res.Header.Get(api.HeaderReplayed) == "true"
}

// TestKeyedChanges repeats each kind of change with its Idempotency-Key: it is carried out once.
func TestKeyedChanges(t *testing.T) {
	t.Parallel()

	s := begin(t)
	s.report("a")

	cases := []struct{ method, path, route, body string }{
		{"PUT", "/v1/vars/global", api.PathGlobalVars, `{"x":"1"}`},
		{"PATCH", "/v1/vars/global", api.PathGlobalVars, `{"x":"2"}`},
		{"POST", "/v1/vars/global/undo", api.PathGlobalVars + api.SuffixUndo, `{"to":0}`},
		{"PUT", "/v1/vars/groups/service-worker", api.PathGroupVars, `{"x":"1"}`},
		{"PATCH", "/v1/vars/groups/service-worker", api.PathGroupVars, `{"x":"2"}`},
		{"POST", "/v1/vars/groups/service-worker/undo", api.PathGroupVars + api.SuffixUndo, `{"to":0}`},
		{"PUT", "/v1/vars/nodes/a-1", api.PathNodeVars, `{"x":"1"}`},
		{"PATCH", "/v1/vars/nodes/a-1", api.PathNodeVars, `{"x":"2"}`},
		{"POST", "/v1/vars/nodes/a-1/undo", api.PathNodeVars + api.SuffixUndo, `{"to":0}`},
		{"PATCH", "/v1/nodes/a-1", api.PathNode, `{"labels":{"rack":"r1"}}`},
		{"PATCH", "/v1/config", api.PathConfig, `{"jobs.limit":3}`},
		{"POST", "/v1/freeze", api.PathFreeze, `{"reason":"holidays"}`},
		{"POST", "/v1/freeze/lift", api.PathLiftFreeze, `{"reason":"over"}`},
		{"POST", "/v1/policies/all/pause", api.PathPausePolicy, `{"reason":"a test"}`},
		{"POST", "/v1/policies/all/resume", api.PathResumePolicy, `{"reason":"a test"}`},
		{"POST", "/v1/policies/returns/disable", api.PathDisablePolicy, `{"reason":"a test"}`},
		{"POST", "/v1/tokens", api.PathTokens, `{"role":"viewer","name":"ci"}`},
		{"DELETE", "/v1/tokens/ci", api.PathToken, ""},
	}

	tested := map[string]bool{}

	for _, c := range cases {
		tested[c.method+" "+c.route] = true

		if status, replayed := s.keyed(c.method, c.path, c.body, "k"); status >= 300 || replayed {
			t.Errorf("%s %s: %d, replayed: %t", c.method, c.path, status, replayed)
			continue
		}

		// The token was shown once.
		want := status2xx
		if c.route == api.PathTokens {
			want = http.StatusGone
		}

		status, replayed := s.keyed(c.method, c.path, c.body, "k")
		if ok := status == want || want == status2xx && status < 300; !ok || !replayed {
			t.Errorf("%s %s again: %d, replayed: %t", c.method, c.path, status, replayed)
		}
	}

	// These need more than a manager and a node, and are one transaction with their audit record as the others.
	for _, route := range []string{
		"PUT " + api.PathHostKeys, "PUT " + api.PathBMCLogin, "POST " + api.PathClasses, "DELETE " + api.PathClass,
		"POST " + api.PathImages, "DELETE " + api.PathImage, "POST " + api.PathAddresses, "DELETE " + api.PathAddress,
		"POST " + api.PathMerge, "POST " + api.PathSplit, "DELETE " + api.PathMember, "POST " + api.PathInvite,
		"DELETE " + api.PathCertificate, "DELETE " + api.PathPlan, "POST " + api.PathEnablePolicy,
		"POST " + api.PathReleaseBrake, "POST " + api.PathRotateSSHKey, "POST " + api.PathCancelSSHKey,
		"POST " + api.PathRotateGossipKey,
	} {
		tested[route] = true
	}

	for _, rt := range server.Routes() {
		if rt.Keyed() && !rt.Idempotent && !tested[rt.String()] {
			t.Errorf("%s takes a key, and has no case here", rt)
		}
	}
}

const status2xx = 200

// TestRepeatedChangeUndoesNothing: a change that is repeated late does not undo what another one wrote in between, and
// of requests with one key at once, to several instances, one is carried out.
func TestRepeatedChangeUndoesNothing(t *testing.T) {
	t.Parallel()

	s := begin(t)

	value := func() any {
		vars, err := s.Vars(s.ctx(), client.ScopeGlobal)
		s.must(err)

		return vars["x"]
	}

	first := s.IdempotencyKey("first")

	var all sync.WaitGroup

	for range 8 {
		all.Go(func() {
			if _, err := first.PatchVars(s.ctx(), client.ScopeGlobal, api.Vars{"x": "1"}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()

	_, err := s.PatchVars(s.ctx(), client.ScopeGlobal, api.Vars{"x": "2"})
	s.must(err)
	_, err = first.PatchVars(s.ctx(), client.ScopeGlobal, api.Vars{"x": "1"})
	s.must(err)

	if got := value(); got != "2" {
		t.Errorf("the repeated change made it %v", got)
	}

	history, err := s.VarsHistory(s.ctx(), client.ScopeGlobal, 50)
	s.must(err)

	if n := len(history.Items); n != 2 {
		t.Errorf("%d changes, want 2", n)
	}

	if _, err := first.PatchVars(s.ctx(), client.ScopeGlobal, api.Vars{"x": "3"}); err == nil {
		t.Error("another change with the key is accepted")
	}
}
