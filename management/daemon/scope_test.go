// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/server"
	"github.com/contiv/cluster/management/server/rest"
)

// scopedRequests are the bodies of the routes that name something, by the route. NODE stands for a node.
var scopedRequests = map[string]string{
	"PATCH /v1/nodes/{name}":               `{"labels":{"a":"b"}}`,
	"POST /v1/nodes/{name}/host-keys/scan": ``,
	"PUT /v1/nodes/{name}/bmc-login":       `{"user":"a","password":"b"}`,
	"POST /v1/forget":                      `{"nodes":["NODE"],"force":true,"reason":"x"}`,
	"POST /v1/ping":                        `{"nodes":["NODE"]}`,
	"POST /v1/jobs":                        `{"verb":"update","nodes":["NODE"]}`,
	"POST /v1/jobs/{id}/cancel":            ``,
	"POST /v1/jobs/{id}/retry":             `{}`,
	"POST /v1/plans":                       `{"verb":"update","nodes":["NODE"]}`,
	"DELETE /v1/plans/{id}":                ``,
	"POST /v1/plans/{id}/apply":            ``,
	"POST /v1/alerts":                      `{"nodes":["NODE"],"reason":"smoke"}`,
	"POST /v1/alerts/end":                  `{"id":"aa","nodes":["NODE"]}`,
	"POST /v1/rollouts":                    `{"spec":{"action":"apply"},"nodes":["NODE"]}`,
	"POST /v1/rollout-preview":             `{"spec":{"action":"apply"},"nodes":["NODE"]}`,
	"POST /v1/rollouts/{id}/pause":         `{}`,
	"POST /v1/rollouts/{id}/resume":        `{}`,
	"POST /v1/rollouts/{id}/abort":         `{}`,
	"POST /v1/rollouts/{id}/retry":         `{}`,
	"POST /v1/rollouts/{id}/undo":          `{}`,
	"POST /v1/rollouts/{id}/promote":       `{}`,
	"POST /v1/rollouts/{id}/approve":       `{}`,
	"PUT /v1/vars/groups/{name}":           `{"a":1}`,
	"PATCH /v1/vars/groups/{name}":         `{"a":1}`,
	"POST /v1/vars/groups/{name}/undo":     `{"to":5}`,
	"PUT /v1/vars/nodes/{name}":            `{"a":1}`,
	"PATCH /v1/vars/nodes/{name}":          `{"a":1}`,
	"POST /v1/vars/nodes/{name}/undo":      `{"to":5}`,
	"POST /v1/fleet/diff":                  `{"files":[{"name":"f","text":"fleet: 1\nnodes: {NODE: {vars: {a: 1}}}"}]}`,
	"POST /v1/fleet/apply":                 `{"changes":[{"level":"node","name":"NODE","part":"vars","key":"a"}]}`,
	"POST /info/nodes":                     `{"nodes":["NODE"]}`,
	"POST /update/nodes":                   `{"nodes":["NODE"]}`,
	"POST /commission/nodes":               `{"nodes":["NODE"],"host_group":"service-worker"}`,
	"POST /commission/node/{name}":         `{"host_group":"service-worker"}`,
	"POST /decommission/nodes":             `{"nodes":["NODE"]}`,
	"POST /decommission/node/{name}":       ``,
	"POST /maintenance/nodes":              `{"nodes":["NODE"]}`,
	"POST /maintenance/node/{name}":        ``,
}

// TestScopedRoutes sends every route that names something the name of what is outside of the caller's scope,
// and that of what does not exist: the answers are the same, and nothing changes.
func TestScopedRoutes(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.report("a b c")

	for _, nodes := range [][]string{{"a-1", "c-1"}, {"b-1"}} { // the masters, then a worker
		commission := api.JobRequest{Verb: inventory.VerbCommission, Nodes: nodes}
		if len(nodes) > 1 {
			commission.Group = inventory.GroupMaster
		}
		if j := s.runJob(commission); j.Status != api.Complete {
			t.Fatalf("%+v", j)
		}
	}

	planned, err := s.Plan(s.ctx(), api.JobRequest{Verb: inventory.VerbUpdate, Nodes: []string{"a-1"}})
	s.must(err)

	started, err := s.StartRollout(s.ctx(), api.RolloutRequest{
		Nodes: []string{"a-1"}, Spec: api.RolloutSpec{Action: inventory.VerbApply},
	})
	s.must(err)

	_, err = s.WatchRollout(s.ctx(), started.ID, func(api.Rollout) bool { return true })
	s.must(err)

	token := s.tokenFor(api.TokenRequest{Role: "operator", Scope: &api.Scope{Groups: []string{inventory.GroupWorker}}})
	h := s.checked()

	ask := func(p rest.Route, node, group, job, plan, rollout string) (int, string) {
		path := p.Path

		switch {
		case strings.Contains(path, "/groups/"):
			path = strings.ReplaceAll(path, "{name}", group)
		case strings.Contains(path, "/plans/"):
			path = strings.ReplaceAll(path, "{id}", plan)
		case strings.Contains(path, "/rollouts/"):
			path = strings.ReplaceAll(path, "{id}", rollout)
		}

		fill := strings.NewReplacer("{name}", node, "{id}", job, "{job}", job, "NODE", node)
		body := fill.Replace(scopedRequests[p.String()])

		r, err := http.NewRequestWithContext(s.ctx(), p.Method, "http://x"+fill.Replace(path), strings.NewReader(body))
		s.must(err)
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Request-Id", "one-of-all") // problems repeat it

		res, err := h.Do(r)
		s.must(err)
		defer res.Body.Close()

		text, err := io.ReadAll(res.Body)
		s.must(err)

		return res.StatusCode, string(text)
	}

	other := func(id string) string {
		last := "0"
		if strings.HasSuffix(id, last) {
			last = "1"
		}
		return id[:len(id)-1] + last
	}

	before := s.outsideOf("a-1")

	for _, p := range server.Routes() {
		body, ok := scopedRequests[p.String()]
		if named := strings.Contains(p.Path, "{"); !p.Allow.Within || !named && p.Method == http.MethodGet {
			continue
		} else if !ok && p.Method != http.MethodGet {
			t.Errorf("%s: what would name a node outside of the scope?", p)
			continue
		}

		hidden, hiddenText := ask(p, "a-1", inventory.GroupMaster, "1", planned.ID, started.ID)
		absent, absentText := ask(p, "x-1", "service-none", "999", other(planned.ID), other(started.ID))

		// The answers may repeat the words of the request.
		same := strings.NewReplacer("x-1", "a-1", "service-none", inventory.GroupMaster, "999", "1",
			other(planned.ID), planned.ID, other(started.ID), started.ID).Replace(absentText)
		if hidden != absent || hiddenText != same {
			t.Errorf("%s %s: outside %d %s\nabsent %d %s", p, body, hidden, hiddenText, absent, absentText)
		}
	}

	if after := s.outsideOf("a-1"); after != before {
		t.Errorf("a change outside of the scope was carried out:\n%s\nbefore:\n%s", after, before)
	}
}

// listRevision is the revision of a list, which any change in the store raises.
var listRevision = regexp.MustCompile(`"revision":[0-9]+}\n`)

// outsideOf returns all that the manager knows of a node, and its jobs, plans and rollouts.
func (s *site) outsideOf(node string) string {
	s.t.Helper()

	var all strings.Builder

	for _, path := range []string{
		"nodes/" + node, "nodes/" + node + "/history", "vars/nodes/" + node, "jobs", "plans", "rollouts",
	} {
		_, text := s.get("/v1/" + path)
		all.WriteString(listRevision.ReplaceAllString(text, ""))
	}

	return all.String()
}
