// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/cluster"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/job/jobtest"
	"github.com/contiv/cluster/management/plan"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/server"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/state/statetest"
)

// The nodes of the scope tests. The name of the node inside begins that of the one
// outside, and nobody has the third.
const (
	inside  = "node-1"
	outside = "node-10"
	nobody  = "node-19"
)

// secrets are texts of records outside of the scope.
var secrets = []string{outside, "hidden", "former-1", "broken-1", "10.0.0.9"}

// isReference reports whether a path is that of the reference, which is the same for
// everybody and full of examples.
func isReference(path string) bool {
	return slices.Contains([]string{api.PathOpenAPI, api.PathOpenAPIJSON, api.PathDocs}, path)
}

// fillScoped gives the manager a node within the group service-worker and one outside,
// and names the one outside in every record and text.
func fillScoped(m *fakeManager) {
	worker := &inventory.Node{
		Name: inside, Label: "node", Serial: "1", Addr: "10.0.0.1", Group: inventory.GroupWorker,
		Status: inventory.Allocated, State: inventory.Discovered, Revision: 7, Labels: map[string]string{"rack": "r1"},
		LastError: "it waited for " + outside,
	}
	master := &inventory.Node{
		Name: outside, Label: "node", Serial: "10", Addr: "10.0.0.1", Group: inventory.GroupMaster,
		Status: inventory.Allocated, State: inventory.Discovered, Revision: 8, Labels: map[string]string{"rack": "r2"},
	}
	results := map[string]job.HostResult{inside: {OK: 1, Message: "asked " + outside}, outside: {OK: 1}}
	jobs := []job.Job{
		{
			ID: "1", Verb: inventory.VerbUpdate, Status: job.Errored, Targets: []job.Target{{Name: inside}},
			Message: outside + " failed", Note: "beside " + outside, Warnings: []string{outside + " is slow"},
			Helpers: []string{outside}, Revision: 8,
			Runs: []job.Run{{Phase: job.PhaseConfigure, Hosts: []string{inside}, Results: results, Message: outside}},
		},
		{ID: "2", Verb: inventory.VerbUpdate, Status: job.Queued, Targets: []job.Target{{Name: outside}}},
		{
			ID: "3", Verb: inventory.VerbUpdate, Status: job.Queued,
			Targets: []job.Target{{Name: inside}, {Name: outside}},
		},
		{ID: "4", Verb: inventory.VerbUpdate, Status: job.Queued, Targets: []job.Target{{Name: inside}}},
		{ID: "5", Verb: inventory.VerbDiscover, Status: job.Complete, Targets: []job.Target{{Name: "10.0.0.9"}}},
		// The node has left the scope by its decommission.
		{
			ID: "6", Verb: inventory.VerbDecommission, Status: job.Complete,
			Targets: []job.Target{{Name: "gone-1", FromGroup: inventory.GroupWorker}},
		},
	}

	m.change(func(v *state.View) {
		v.SetNodes(worker, master)
		v.SetJobs(jobtest.List(jobs...)...)
		jobtest.SetNewest(&v.Snapshot, 6)

		v.View = record.With(v.View, &state.Variables, nil)

		for scope, vars := range map[state.Scope]configuration.Vars{
			state.ScopeGlobal: {"everywhere": 1}, state.ScopeNode(outside): {"hidden": outside},
			state.ScopeNode(inside): {"motd": "hi"}, state.ScopeGroup(inventory.GroupMaster): {"hidden": outside},
			state.ScopeGroup(inventory.GroupWorker): {"motd": "worker"},
		} {
			statetest.SetVars(v, scope, vars)
		}

		v.View = record.With(v.View, &state.Connections, map[string]*configuration.Connection{
			inside: {User: "a"}, outside: {User: "hidden"},
		})
		v.View = record.WithList(v.View, &state.Facts, inspected(inside))
		v.View = record.WithList(v.View, &state.Tombstones, &inventory.Tombstone{Name: "former-1"})
		v.Unreadable = map[string]string{"v/nodes/broken-1": "damaged"}
		v.View = record.WithList(v.View, &rollout.Kind, []*rollout.Record{
			{
				ID: rolloutID("1"), Status: rollout.Running, Reason: outside + " failed",
				Nodes: []rollout.Node{{Name: inside, State: rollout.Waiting, Reason: "like " + outside}},
			},
			{ID: rolloutID("2"), Status: rollout.Running, Nodes: []rollout.Node{{Name: inside}, {Name: outside}}},
		}...)
		v.View = record.WithList(v.View, &plan.Kind, []*plan.Plan{
			{
				ID: planID(1), Manager: fakeIdentity, Expires: time.Now().Add(time.Hour), Helpers: []string{outside},
				World: plan.World{Job: jobs[0], Ahead: []string{"2", "4"}}, Waits: outside + " needed by job 2",
			},
			{ID: planID(2), Manager: fakeIdentity, World: plan.World{Job: jobs[1]}, Expires: time.Now().Add(time.Hour)},
			{ID: planID(3), Manager: fakeIdentity, World: plan.World{Job: jobs[2]}, Expires: time.Now().Add(time.Hour)},
		}...)
		v.View = record.WithList(v.View, &state.Instances, &state.Instance{
			Identity: cluster.Identity{ID: "hidden", Node: outside},
		})
	})

	for _, j := range jobs {
		m.inputs[j.ID] = job.Inputs{}
	}

	m.write("2", job.StreamText, "hidden")
}

// scopedBodies are requests of the routes with a body; NODE stands for the name of a
// node, and GROUP for that of a group.
var scopedBodies = map[string]string{
	"PUT /v1/nodes/{name}/bmc-login":           `{"user":"root"}`,
	"PATCH /v1/nodes/{name}":                   `{"labels":{"a":"b"}}`,
	"POST /v1/fleet/diff":                      `{"files":[{"name":"f","text":"fleet: 1\nnodes: {NODE: }"}]}`,
	"POST /v1/fleet/apply":                     `{"changes":[{"level":"node","name":"NODE","part":"vars","key":"a"}]}`,
	"POST /v1/forget":                          `{"nodes":["NODE"],"force":true,"reason":"x"}`,
	"POST /v1/alerts":                          `{"nodes":["NODE"],"reason":"x"}`,
	"POST /v1/alerts/end":                      `{"id":"ID","nodes":["NODE"]}`,
	"POST /v1/ping":                            `{"nodes":["NODE"]}`,
	"POST /v1/rollouts":                        `{"spec":{"action":"apply"},"nodes":["NODE"]}`,
	"POST /v1/rollout-preview":                 `{"spec":{"action":"apply"},"nodes":["NODE"]}`,
	"POST /v1/rollouts/{id}/pause":             `{}`,
	"POST /v1/rollouts/{id}/resume":            `{}`,
	"POST /v1/rollouts/{id}/abort":             `{}`,
	"POST /v1/rollouts/{id}/retry":             `{}`,
	"POST /v1/rollouts/{id}/undo":              `{}`,
	"POST /v1/rollouts/{id}/promote":           `{}`,
	"POST /v1/rollouts/{id}/approve":           `{}`,
	"POST /v1/jobs":                            `{"verb":"update","nodes":["NODE"]}`,
	"POST /v1/jobs/{id}/retry":                 `{}`,
	"POST /v1/plans":                           `{"verb":"update","nodes":["NODE"]}`,
	"PUT /v1/vars/groups/{name}":               `{"a":1}`,
	"PATCH /v1/vars/groups/{name}":             `{"a":1}`,
	"POST /v1/vars/groups/{name}/undo":         `{"to":5}`,
	"PUT /v1/vars/nodes/{name}":                `{"a":1}`,
	"PATCH /v1/vars/nodes/{name}":              `{"a":1}`,
	"POST /v1/vars/nodes/{name}/undo":          `{"to":5}`,
	"POST /info/nodes":                         `{"nodes":["NODE"]}`,
	"POST /update/nodes":                       `{"nodes":["NODE"]}`,
	"POST /commission/nodes":                   `{"nodes":["NODE"],"host_group":"service-worker"}`,
	"POST /commission/node/{name}":             `{"host_group":"service-worker"}`,
	"POST /decommission/nodes":                 `{"nodes":["NODE"]}`,
	"POST /maintenance/nodes":                  `{"nodes":["NODE"]}`,
	"POST /decommission/node/{name}":           ``,
	"POST /maintenance/node/{name}":            ``,
	"POST /v1/jobs/{id}/cancel":                ``,
	"GET /v1/nodes":                            ``,
	"GET /v1/nodes?name=NODE":                  ``,
	"GET /v1/watch?name=NODE":                  ``,
	"GET /v1/jobs?node=NODE":                   ``,
	"GET /v1/nodes?group=GROUP":                ``,
	"GET /v1/vars/nodes/{name}?merged=1":       ``,
	"GET /v1/nodes?selector=serial%3D10":       ``,
	"GET /v1/nodes?sort=-name&limit=1":         ``,
	"GET /v1/jobs?sort=id&limit=2":             ``,
	"GET /v1/watch?kinds=jobs,vars":            ``,
	"GET /v1/watch?kinds=config":               ``,
	"GET /v1/jobs/{id}?vars=true&wait=0s":      ``,
	"GET /v1/auth/can-i":                       ``,
	"GET /v1/auth/can-i?verb=get&node=NODE":    ``,
	"GET /v1/auth/can-i?verb=update&node=NODE": ``,
}

// named fills in the parameters of a request.
func named(text, node, group, id string) string {
	if strings.Contains(text, "/vars/groups/") {
		text = strings.ReplaceAll(text, "{name}", group)
	}

	if n, err := strconv.Atoi(id); err == nil && strings.Contains(text, "/plans/") {
		text = strings.ReplaceAll(text, "{id}", planID(n))
	}

	if strings.Contains(text, "/rollouts/") {
		text = strings.ReplaceAll(text, "{id}", rolloutID(id))
	}

	return strings.NewReplacer("{name}", node, "{id}", id, "{job}", id, "NODE", node, "GROUP", group).Replace(text)
}

// scopedServer returns a server on a filled manager, and sends requests of a caller with
// a token of the scope. A watch ends after its first events.
func scopedServer(
	t *testing.T,
	scope access.Scope,
) (*site, func(method, path, body string) *httptest.ResponseRecorder) {
	t.Helper()

	store := newTokens()
	tokens := access.NewTokens(store, noAudit{}, inventory.DefaultGroups)
	s := serve(t, func(o *server.Options) { o.Tokens = tokens })
	fillScoped(s.manager)

	s.health.Instance, s.health.Nodes = outside, 2
	s.health.Jobs = map[api.JobStatus]int{api.Queued: 2}
	s.health.Checks = map[string]string{"records": "v/nodes/broken-1 cannot be read"}
	s.health.Warnings = []string{outside + " is slow"}

	_, token, err := tokens.Create(t.Context(), access.Caller{}, access.Identity{Role: access.RoleAdmin},
		access.TokenRequest{Role: access.RoleOperator, Scope: scope})
	if err != nil {
		t.Fatal(err)
	}

	return s, func(method, path, body string) *httptest.ResponseRecorder {
		ctx, cancel := context.WithCancel(server.OnTLS(testCtx(t)))
		defer cancel()

		r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
		r.Host = "localhost"
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Request-Id", "one-of-all") // problems repeat it

		w := httptest.NewRecorder()
		if strings.HasPrefix(path, api.PathWatch) {
			s.ServeHTTP(endsOnFlush{w, cancel}, r)
		} else {
			s.ServeHTTP(w, r)
		}

		return w
	}
}

// endsOnFlush ends a request after the first events of a watch.
type endsOnFlush struct {
	*httptest.ResponseRecorder

	end context.CancelFunc
}

func (w endsOnFlush) Flush() { w.end() }

// TestScopeHidesNodes sends every route the names of a node outside of the scope and of
// a node that does not exist: the answers must be the same, and must not contain what
// is outside.
func TestScopeHidesNodes(t *testing.T) {
	t.Parallel()

	for what, scope := range map[string]access.Scope{
		"groups":   {Groups: []string{inventory.GroupWorker}},
		"selector": {Selector: "rack=r1"},
		"both":     {Groups: []string{inventory.GroupWorker}, Selector: "serial in (1)"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()

			s, send := scopedServer(t, scope)
			before := s.manager.View()

			requests := map[string]bool{}
			for _, rt := range s.Routes() {
				if rt.Allow.Within && !isReference(rt.Path) {
					requests[rt.Method+" "+rt.Path] = true
				}
			}

			for request := range scopedBodies {
				requests[request] = true
			}

			for request := range requests {
				method, path, _ := strings.Cut(request, " ")
				ask := func(node, group, id string) (status int, body string) {
					w := send(method, named(path, node, group, id), named(scopedBodies[request], node, group, id))
					return w.Code, w.Body.String()
				}

				// With a selector alone, the nodes of the scope may be in any group.
				group := inventory.GroupMaster
				if len(scope.Groups) == 0 && request == "GET /v1/nodes?group=GROUP" {
					group = "service-nobody"
				}
				hidden, hiddenBody := ask(outside, group, "2")
				absent, absentBody := ask(nobody, "service-nobody", "7")

				// The answers may repeat the words of the request.
				same := strings.NewReplacer(nobody, outside, "service-nobody", group, planID(7), planID(2),
					rolloutID("7"), rolloutID("2"),
					`\"7\"`, `\"2\"`, `"7"`, `"2"`).
					Replace(absentBody)
				if hidden != absent || hiddenBody != absentBody && hiddenBody != same {
					t.Errorf("%s: outside %d %s\nabsent %d %s", request, hidden, hiddenBody, absent, absentBody)
				}

				for _, secret := range secrets {
					if strings.Contains(absentBody, secret) {
						t.Errorf("%s shows %s: %s", request, secret, absentBody)
					}
				}
			}

			if after := s.manager.View(); after != before {
				t.Errorf("a change outside of the scope was carried out: %s", s.manager.last())
			}
		})
	}
}

// TestScopeShowsNodes sends every route the names of what is within the scope.
func TestScopeShowsNodes(t *testing.T) {
	t.Parallel()

	for _, rt := range serve(t).Routes() {
		if !rt.Allow.Within || isReference(rt.Path) {
			continue
		}

		_, send := scopedServer(t, access.Scope{Groups: []string{inventory.GroupWorker}})
		request := rt.Method + " " + rt.Path

		// A job is repeated after its end, and cancelled before.
		id := "1"
		if strings.HasSuffix(rt.Path, "/cancel") {
			id = "4"
		}

		path := rt.Path
		if path == api.PathCanI {
			path += "?verb=update&node=NODE"
		}
		w := send(rt.Method, named(path, inside, inventory.GroupWorker, id),
			named(scopedBodies[request], inside, inventory.GroupWorker, id))
		if w.Code >= 300 {
			t.Errorf("%s: %d %s", request, w.Code, w.Body)
		}

		for _, secret := range secrets {
			if strings.Contains(w.Body.String(), secret) {
				t.Errorf("%s shows %s: %s", request, secret, w.Body)
			}
		}
	}
}

// TestScopeCounts expects lists to count what is within the scope.
func TestScopeCounts(t *testing.T) {
	t.Parallel()

	_, send := scopedServer(t, access.Scope{Groups: []string{inventory.GroupWorker}})

	for path, want := range map[string]string{
		"/v1/nodes":        `"total":1`,
		"/v1/groups":       `"total":1`,
		"/v1/jobs?sort=id": `"total":3`, // 1, 4, 6
		"/v1/plans":        `"total":1`,
		"/v1/instances":    `"total":0`,
		"/v1/health":       `"nodes":1,"jobs":{"Queued":1},"unknown":1`,
	} {
		if w := send(http.MethodGet, path, ""); !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %s, want %s", path, w.Body, want)
		}
	}

	// Jobs 2 and 3 come first, and nobody may count them.
	w := send(http.MethodGet, "/v1/jobs/4", "")
	if !strings.Contains(w.Body.String(), `"position":1`) || strings.Contains(w.Body.String(), `"99"`) {
		t.Errorf("the place in the queue: %s", w.Body)
	}
}

// TestScopeRefusesTheWhole expects every route that concerns the whole manager to be
// refused, and nothing to be read of its body.
func TestScopeRefusesTheWhole(t *testing.T) {
	t.Parallel()

	s, send := scopedServer(t, access.Scope{Selector: "rack=r1"})

	refused := 0
	for _, rt := range s.Routes() {
		if rt.Allow.Within {
			continue
		}

		if w := send(rt.Method, named(rt.Path, inside, "service-worker", "1"), "{"); w.Code != http.StatusForbidden {
			t.Errorf("%s %s: %d %s", rt.Method, rt.Path, w.Code, w.Body)
		}

		refused++
	}

	if refused < 10 {
		t.Errorf("only %d routes concern the whole manager", refused)
	}
}

// TestScopeBoundsChanges expects changes that would pass by the scope to be refused.
func TestScopeBoundsChanges(t *testing.T) {
	t.Parallel()

	s, send := scopedServer(t, access.Scope{Groups: []string{inventory.GroupWorker}, Selector: "rack=r1"})
	before := s.manager.View()

	for _, tt := range []struct {
		method, path, body string
		want               int
	}{
		{http.MethodPost, "/v1/jobs", `{"verb":"update","nodes":["node-1","node-10"]}`, 404},
		{http.MethodPost, "/v1/jobs", `{"verb":"update","nodes":["node-1"],"group":"service-master"}`, 404},
		{http.MethodPost, "/v1/jobs", `{"verb":"commission","nodes":["node-1"]}`, 400},
		{http.MethodPost, "/v1/jobs", `{"verb":"discover","addrs":["10.0.0.9"]}`, 403},
		{http.MethodPost, "/v1/jobs", `{"verb":"discover","ranges":["10.0.0.0/30"]}`, 403},
		{http.MethodPost, "/v1/jobs/3/cancel", ``, 404},
		{http.MethodPost, "/v1/jobs/active/cancel", ``, 404},
		{http.MethodPost, "/v1/jobs/6/retry", `{}`, 404}, // its node has left the scope
		{http.MethodPatch, "/v1/nodes/node-1", `{"labels":{"rack":"r2"}}`, 403},
		{http.MethodPatch, "/v1/nodes/node-1", `{"labels":{"rack":null}}`, 403},
		{http.MethodPut, "/v1/vars/groups/service-worker", `{"a":1}`, 404}, // others are in the group
	} {
		if w := send(tt.method, tt.path, tt.body); w.Code != tt.want {
			t.Errorf("%s %s %s: %d %s, want %d", tt.method, tt.path, tt.body, w.Code, w.Body, tt.want)
		}
	}

	if after := s.manager.View(); after != before {
		t.Errorf("a change was carried out: %s", s.manager.last())
	}
}

// TestScopedWatch expects a watch to show the changes within the scope: a node that
// leaves it is deleted.
func TestScopedWatch(t *testing.T) {
	t.Parallel()

	m := newFakeManager()
	fillScoped(m)

	filter := must[*access.Filter](t)(access.Scope{Groups: []string{inventory.GroupWorker}}.Filter())
	since := m.View().Revision

	m.change(func(v *state.View) {
		worker, master := *v.Nodes()[0], *v.Nodes()[1]
		worker.Group, master.Labels = inventory.GroupMaster, nil
		v.PutNode(&worker)
		v.PutNode(&master)
	})
	m.setJob("2", func(j *job.Job) { j.Status = job.Complete })
	m.setJob("6", func(j *job.Job) { j.Note = "kept" })

	changes := must[state.Changes](t)(m.Changes(since, 100))
	// A job that is gone is shown to those who saw it.
	changes.List = append(changes.List,
		state.Change{Ref: record.Ref{Kind: job.Kind.Name, Key: "2"}, Former: m.View().Jobs()[1]},
		state.Change{Ref: record.Ref{Kind: job.Kind.Name, Key: "6"}, Former: m.View().Jobs()[5]},
		state.Change{Ref: state.Config},
		state.Change{Ref: record.Ref{Kind: state.Variables.Name, Key: "global"}})

	var shown []string
	for _, c := range filter.View(m.View()).Changes(changes.List) {
		what := "put "
		if c.Record == nil {
			what = "delete "
		}
		shown = append(shown, what+c.Kind+" "+c.Key)
	}

	if want := []string{"delete nodes node-1", "put jobs 6", "delete jobs 6"}; !slices.Equal(shown, want) {
		t.Errorf("got %q, want %q", shown, want)
	}
}

// TestScopeKeepsGroup: a job must not bring a node into a group in which it would leave
// the scope, whether that names groups or selects by them.
func TestScopeKeepsGroup(t *testing.T) {
	t.Parallel()

	for _, scope := range []access.Scope{
		{Groups: []string{inventory.GroupWorker}},
		{Selector: "group=" + inventory.GroupWorker},
	} {
		s, send := scopedServer(t, scope)

		for group, want := range map[string]bool{inventory.GroupMaster: false, inventory.GroupWorker: true} {
			before := s.manager.View()
			w := send(http.MethodPost, "/v1/jobs", `{"verb":"update","nodes":["`+inside+`"],"group":"`+group+`"}`)

			if allowed := w.Code < 300; allowed != want || !allowed && s.manager.View() != before {
				t.Errorf("%s, into %s: %d %s", scope, group, w.Code, w.Body)
			}
		}
	}
}

// TestScopesApart has two scopes with the same text, as a damaged record may: none gets
// the answers of the other.
func TestScopesApart(t *testing.T) {
	t.Parallel()

	store := newTokens()
	tokens := access.NewTokens(store, noAudit{}, inventory.DefaultGroups)
	s := serve(t, func(o *server.Options) { o.Tokens = tokens })
	fillScoped(s.manager)

	scope := access.Scope{Groups: []string{inventory.GroupWorker}, Selector: "rack=r1"}
	other := access.Scope{Groups: []string{inventory.GroupWorker + ", selector rack=r1"}}

	if scope.String() != other.String() {
		t.Fatalf("%q and %q", scope, other)
	}

	total := func(name string, scope access.Scope) int {
		_, token, err := tokens.Create(t.Context(), access.Caller{}, access.Identity{Role: access.RoleAdmin},
			access.TokenRequest{Name: name, Role: access.RoleOperator})
		if err != nil {
			t.Fatal(err)
		}
		changeToken(t, store, name, func(token *access.Token) { token.Scope = scope })

		r := httptest.NewRequestWithContext(server.OnTLS(testCtx(t)), http.MethodGet, api.PathNodes, nil)
		r.Host = "localhost"
		r.Header.Set("Authorization", "Bearer "+token)

		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)

		var l api.List[api.Node]
		if err := json.Unmarshal(w.Body.Bytes(), &l); w.Code != http.StatusOK || err != nil {
			t.Fatalf("%d %s %v", w.Code, w.Body, err)
		}

		return l.Total
	}

	if a, b := total("a", scope), total("b", other); a != 1 || b != 0 {
		t.Errorf("the scopes have %d and %d nodes, want 1 and 0", a, b)
	}
}
