// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/contracttest"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/state/statetest"
)

// tagged are examples of every read with an entity tag, and whether the tag is weak.
var tagged = map[string]bool{
	"/v1/nodes":                              true,
	"/v1/nodes?fields=name":                  true,
	"/v1/nodes?selector=rack":                true,
	"/v1/inventory":                          true,
	"/v1/inventory?fields=name":              true,
	"/v1/jobs":                               true,
	"/v1/nodes/a-1/history":                  true,
	"/v1/groups":                             true,
	"/v1/groups?fields=name":                 true,
	"/v1/instances":                          true,
	"/v1/members":                            true,
	"/v1/machines":                           true,
	"/v1/imports":                            true,
	"/v1/imports/first":                      false,
	"/v1/classes":                            true,
	"/v1/images":                             true,
	"/v1/addresses":                          true,
	"/v1/boot":                               false,
	"/v1/alerts":                             true,
	"/v1/machines/export":                    false,
	"/v1/power":                              true,
	"/v1/expected":                           true,
	"/v1/scan":                               false,
	"/v1/tokens":                             true,
	"/v1/certificates":                       true,
	"/v1/nodes/a-1":                          false,
	"/v1/jobs/1":                             false,
	"/v1/jobs/active":                        false,
	"/v1/vars/global":                        false,
	"/v1/vars/groups/service-master":         false,
	"/v1/vars/nodes/a-1":                     false,
	"/v1/vars/nodes/a-1?merged=true":         false,
	"/v1/vars/global/history":                true,
	"/v1/vars/groups/service-master/history": true,
	"/v1/vars/nodes/a-1/history":             true,
	"/v1/config":                             false,
	api.PathFleet:                            false,
	"/v1/plans":                              true,
	"/v1/plans/3f9a1c20-00000001":            false,
	api.PathGossipKey:                        false,
	api.PathSSHKey:                           false,
	api.PathPolicies:                         false,
	api.PathWindows:                          false,
	api.PathRollouts:                         true,
	"/v1/rollouts/r00000001":                 false,
	api.PathFreeze:                           false,
	"/v1/policies/returns":                   false,
	api.PathRepository:                       false,
	api.PathRepositoryLog:                    false,
	api.PathRepositoryDiff:                   false,
	"/v1/nodes/a-1/explanation":              false,
	"/v1/nodes/a-1/facts":                    false,
	"/v1/nodes/a-1/boots":                    false,
	"/v1/nodes/a-1/diff":                     false,
	"/v1/jobs/1/explanation":                 false,
	api.PathVersion:                          false,
	api.PathOpenAPI:                          false,
	api.PathOpenAPIJSON:                      false,
	api.PathDocs:                             false,
}

// TestEveryReadIsTagged expects a tag on every read under /v1 except streams, the audit
// trail, which grows with every refusal, and health, permissions, deliveries and the state
// of the secrets, which must not be cached.
func TestEveryReadIsTagged(t *testing.T) {
	t.Parallel()
	c := must[*contracttest.Contract](t)(contracttest.Load())

	examples := map[string]bool{
		api.PathLog: true, api.PathEvents: true, api.PathWatch: true, api.PathHealth: true, api.PathSecrets: true,
		api.PathAudit: true, api.PathAuditLines: true, api.PathAuditCheck: true,
		api.PathBackup: true, api.PathImage: true, api.PathImageFile: true,
		api.PathNotifications: true, api.PathDeliveries: true, api.PathWhoAmI: true, api.PathCanI: true,
	}
	for path := range tagged {
		if o := c.Operation("GET", strings.Split(path, "?")[0]); o != nil {
			examples[o.Path] = true
		}
	}

	for _, rt := range serve(t).Routes() {
		if rt.Method == "GET" && strings.HasPrefix(rt.Path, "/v1/") && !examples[rt.Path] {
			t.Errorf("%s has no example in tagged", rt.Path)
		}
	}
}

// TestTags expects 304 for a read whose answer has not changed.
func TestTags(t *testing.T) {
	t.Parallel()
	s := serve(t)
	must[api.Job](
		t,
	)(
		s.client(t).Submit(testCtx(t), api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}}),
	)

	must[api.Plan](
		t,
	)(
		s.client(t).Plan(testCtx(t), api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}}),
	)

	must[api.Rollout](t)(s.client(t).StartRollout(testCtx(t), api.RolloutRequest{
		Spec: api.RolloutSpec{Action: inventory.VerbApply}, Nodes: []string{"a-1"},
	}))

	asIs := map[string]bool{
		api.PathVersion:     true,
		api.PathOpenAPI:     true,
		api.PathOpenAPIJSON: true,
		api.PathDocs:        true,
	} // independent of the view
	for path, weak := range tagged {
		if path == "/v1/jobs/active" {
			s.manager.setJob("1", func(j *job.Job) { j.Status = job.Running })
		}

		res, text := s.exchange(t, "GET", path, "")

		tag := res.Header.Get("ETag")
		if res.StatusCode != 200 || strings.HasPrefix(tag, "W/") != weak || !strings.HasSuffix(tag, `"`) {
			t.Errorf("%s: %d %s %s", path, res.StatusCode, tag, text)
		}

		for has, status := range map[string]int{
			tag: 304, `"x", ` + tag: 304, "*": 304, "": 400, `"x"`: 200, "W/" + strings.TrimPrefix(tag, "W/"): 304,
			"x": 400, `"x" "y"`: 400, `"x`: 400,
		} {
			res, text := s.exchange(t, "GET", path, "", "If-None-Match", has)
			if res.StatusCode != status ||
				status == 304 &&
					(text != "" || res.Header.Get("ETag") != tag ||
						(res.Header.Get(api.HeaderRevision) == "") != asIs[path]) {
				t.Errorf("%s with %s: %d %q", path, has, res.StatusCode, text)
			}
		}

		if res, text := s.exchange(
			t,
			"GET",
			path,
			"",
			"If-Match",
			tag,
		); res.StatusCode != 400 ||
			!strings.Contains(text, "has no meaning") {
			t.Errorf("%s with If-Match: %d %s", path, res.StatusCode, text)
		}

		if res, text := s.exchange(t, "HEAD", path, "", "If-None-Match", tag); res.StatusCode != 304 || text != "" {
			t.Errorf("HEAD %s: %d", path, res.StatusCode)
		}
	}

	// A path or method that is not served is reported first.
	for request, status := range map[string]int{"DELETE /v1/nodes/a-1": 405, "PATCH /v1/node/a-1": 404} {
		method, path, _ := strings.Cut(request, " ")
		if res, text := s.exchange(t, method, path, "", "If-Match", `"17"`); res.StatusCode != status {
			t.Errorf("%s: %d %s", request, res.StatusCode, text)
		}
	}

	// Fields outside the record change the tag, too.
	res, _ := s.exchange(t, "GET", "/v1/jobs/1", "")
	tag := res.Header.Get("ETag")
	s.manager.write("1", job.StreamText, "more")

	if res, _ = s.exchange(
		t,
		"GET",
		"/v1/jobs/1",
		"",
		"If-None-Match",
		tag,
	); res.StatusCode != 200 ||
		res.Header.Get("ETag") == tag {
		t.Errorf("more output: %d %s", res.StatusCode, res.Header.Get("ETag"))
	}

	res, _ = s.exchange(t, "GET", "/v1/nodes", "")
	s.manager.change(func(v *state.View) { v.Revision--; v.Stale = true })

	if res, _ = s.exchange(t, "GET", "/v1/nodes", "", "If-None-Match", res.Header.Get("ETag")); res.StatusCode != 200 {
		t.Errorf("stale: %d", res.StatusCode)
	}
}

// TestIfMatch expects a change only if the record meets the preconditions.
func TestIfMatch(t *testing.T) {
	t.Parallel()

	label := `{"labels":{"rack":"r1"}}`
	for _, c := range []struct{ method, path, body, read string }{
		{"PATCH", "/v1/nodes/a-1", label, "/v1/nodes/a-1"},
		{"PUT", "/v1/vars/global", `{"x":"y"}`, "/v1/vars/global"},
		{"PATCH", "/v1/vars/groups/service-master", `{"x":"y"}`, "/v1/vars/groups/service-master"},
		{"PATCH", "/v1/config", `{"jobs.limit":9}`, "/v1/config"},
		{"POST", "/v1/jobs/1/cancel", ``, "/v1/jobs/1"},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			s := serve(t)
			must[api.Job](
				t,
			)(
				s.client(t).Submit(testCtx(t), api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}}),
			)
			s.manager.change(func(v *state.View) { statetest.SetConfigAt(v, 5) })
			res, _ := s.exchange(t, "GET", c.read, "")
			tag := res.Header.Get("ETag")
			revision, _, _ := strings.Cut(strings.Trim(tag, `"`), ".")

			calls := s.manager.count()
			for _, wrong := range [][]string{
				{
					"If-Match", `"1234"`,
				}, {"If-Match", "W/" + tag}, {"If-Match", `"", "x"`}, {"If-None-Match", "*"}, {"If-None-Match", tag},
				{"If-Match", "*", "If-None-Match", tag},
			} {
				res, text := s.exchange(t, c.method, c.path, c.body, wrong...)
				if res.StatusCode != 412 || !strings.Contains(text, api.ProblemBase+"precondition") ||
					!strings.Contains(text, `"remedy":`) {
					t.Errorf("%v: %d %s", wrong, res.StatusCode, text)
				}
			}

			if res, text := s.exchange(
				t,
				c.method,
				c.path,
				c.body,
				"If-Match",
				revision,
			); res.StatusCode != 400 ||
				!strings.Contains(text, "quotes included") {
				t.Errorf("without quotes: %d %s", res.StatusCode, text)
			}

			for _, header := range []string{"If-Match", "If-None-Match"} {
				if res, text := s.exchange(
					t,
					c.method,
					c.path,
					c.body,
					header,
					"",
				); res.StatusCode != 400 ||
					!strings.Contains(text, "is empty") {
					t.Errorf("%s without a tag: %d %s", header, res.StatusCode, text)
				}
			}

			if s.manager.count() != calls {
				t.Errorf("something was changed: %s", s.manager.last())
			}

			right := []string{"If-Match", `"x", ` + tag}
			if c.method == "PATCH" {
				right = []string{"If-Match", `"` + revision + `"`, "If-None-Match", `"x"`}
			}
			if res, text := s.exchange(t, c.method, c.path, c.body, right...); res.StatusCode != 200 {
				t.Errorf("%v: %d %s", right, res.StatusCode, text)
			}

			if c.path == "/v1/config" {
				return // the revision of the fake is constant
			}

			if res, _ := s.exchange(t, c.method, c.path, c.body, right...); res.StatusCode != 412 {
				t.Errorf("a second time: %d", res.StatusCode)
			}

			if res, text := s.exchange(t, c.method, c.path, c.body, "If-Match", "*"); res.StatusCode != 200 {
				t.Errorf("whatever there is: %d %s", res.StatusCode, text)
			}
		})
	}

	s := serve(t)
	for _, path := range []string{"/v1/jobs", "/v1/forget"} {
		res, text := s.exchange(t, "POST", path, `{}`, "If-Match", `"1"`)
		if res.StatusCode != 400 || !strings.Contains(text, "has no meaning") {
			t.Errorf("%s: %d %s", path, res.StatusCode, text)
		}
	}

	if res, _ := s.exchange(t, "PATCH", "/v1/nodes/zz-1", label, "If-Match", "*"); res.StatusCode != 404 {
		t.Errorf("no such node: %d", res.StatusCode)
	}
}

func TestClientIfMatch(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c := s.client(t)
	n := must[api.Node](t)(c.Node(testCtx(t), "a-1"))
	r1 := "r1"
	patch := api.NodePatch{Labels: map[string]*string{"rack": &r1}}
	changed := must[api.Node](t)(c.IfMatch(client.Tag(n.Revision)).PatchNode(testCtx(t), "a-1", patch))
	_, err := c.IfMatch(client.Tag(n.Revision)).PatchNode(testCtx(t), "a-1", patch)
	expect(t, "changed meanwhile", inventory.KindOf(err), inventory.KindPrecondition)
	must[api.Node](t)(c.IfMatch(client.Tag(changed.Revision)).PatchNode(testCtx(t), "a-1", patch))

	_, tag, err := c.TaggedVars(testCtx(t), client.ScopeGlobal)
	if err != nil {
		t.Fatal(err)
	}
	must[api.Changed](t)(c.IfMatch(tag).SetVars(testCtx(t), client.ScopeGlobal, api.Vars{"a": "b"}))
	_, err = c.IfMatch(tag).SetVars(testCtx(t), client.ScopeGlobal, api.Vars{"a": "c"})
	expect(t, "set meanwhile", inventory.KindOf(err), inventory.KindPrecondition)

	if _, tag, err = c.TaggedConfig(testCtx(t)); err != nil || tag == "" {
		t.Error(fmt.Sprint(tag, err))
	}
}

// TestAddrRivals names the nodes under the same address in the answer about a single
// node only. Their change alters the tag of the answer.
func TestAddrRivals(t *testing.T) {
	t.Parallel()

	s := serve(t)
	c, ctx := s.client(t), testCtx(t)

	before := must[api.Node](t)(c.Node(ctx, "bb-1"))
	expect(t, "rivals of an address of its own", len(before.AddrRivals), 0)

	s.manager.change(func(v *state.View) {
		rival := aNode("dddd")
		rival.Addr = before.Addr
		v.PutNode(rival)
	})

	expect(t, "rivals", must[api.Node](t)(c.Node(ctx, "bb-1")).AddrRivals, []string{"dddd-1"})
	expect(t, "rivals of the other", must[api.Node](t)(c.Node(ctx, "dddd-1")).AddrRivals, []string{"bb-1"})

	for _, n := range must[api.List[api.Node]](t)(c.Nodes(ctx, client.NodeFilter{})).Items {
		expect(t, "rivals in a list", len(n.AddrRivals), 0)
	}
}
