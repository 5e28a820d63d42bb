// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/state"
)

// everyPlanRoute uses the routes of plans, on a manager with job 1.
func everyPlanRoute(t *testing.T, s *site, c *client.Client) {
	t.Helper()

	ctx := testCtx(t)
	r := api.JobRequest{
		Verb:       inventory.VerbApply,
		Nodes:      []string{"bb-1", "a-1"},
		JobOptions: inventory.JobOptions{Serial: "1", Check: true},
	}
	p := must[api.Plan](t)(c.Plan(ctx, r))

	expect(t, "the plan", [4]string{p.ID, string(p.Status), p.Job, string(p.Request.Verb)},
		[4]string{planID(1), "Open", "", "apply"})
	expect(t, "its nodes", p.Request.Nodes, []string{"bb-1", "a-1"})
	expect(t, "its batches", [2]int{p.Targets[0].Batch, p.Targets[1].Batch}, [2]int{1, 2})
	expect(t, "a target", [3]string{p.Targets[0].Name, string(p.Targets[0].Status), string(p.Targets[0].StatusAfter)},
		[3]string{"bb-1", "Unallocated", "Allocated"})
	expect(t, "its variables", p.Vars["a-1"]["release"], api.MergedVar{Value: "2", Origin: "request"})
	expect(t, "its check", []string{p.Check.Job, p.Check.Nodes[0].Node, p.Check.Nodes[0].Tasks[0].Task},
		[]string{"1", "bb-1", "Write"})
	expect(t, "what is measured", p.Expected.Jobs, 3)

	list := must[api.List[api.Plan]](t)(c.Plans(ctx))
	expect(t, "a list", [3]any{list.Total, list.Items[0].ID, len(list.Items[0].Targets) + len(list.Items[0].Vars)},
		[3]any{1, planID(1), 0})

	j := must[api.Job](t)(c.ApplyPlan(ctx, p.ID))
	expect(t, "the job", [2]string{j.Plan, j.PlannedBy}, [2]string{p.ID, p.Actor})

	_, err := c.ApplyPlan(ctx, p.ID)
	expect(t, "again", inventory.KindOf(err), inventory.KindRefused)

	applied := must[api.Plan](t)(c.PlanOf(ctx, p.ID))
	expect(t, "applied", [2]string{string(applied.Status), applied.Job}, [2]string{"Applied", j.ID})

	must[api.Changed](t)(c.DeletePlan(ctx, p.ID))
	_, err = c.PlanOf(ctx, p.ID)
	expect(t, "deleted", inventory.KindOf(err), inventory.KindRefused) // its job names it

	s.manager.change(func(v *state.View) { v.SetJobs(v.Jobs()[:len(v.Jobs())-1]...) })
}

// TestPlanAnswers: what the routes of plans refuse, and what they answer with.
func TestPlanAnswers(t *testing.T) {
	t.Parallel()
	s := serve(t)

	res, text := s.exchange(t, "POST", "/v1/plans", `{"verb":"commission","nodes":["a-1"]}`)
	if res.StatusCode != http.StatusCreated || res.Header.Get("Location") != "/v1/plans/"+planID(1) {
		t.Errorf("%d %v %s", res.StatusCode, res.Header, text)
	}

	// The result of the first request with a key.
	const key = "k1"

	apply := "/v1/plans/" + planID(1) + "/apply"
	first, one := s.exchange(t, "POST", apply, "", api.HeaderIdempotencyKey, key)
	again, two := s.exchange(t, "POST", apply, "", api.HeaderIdempotencyKey, key)

	if first.StatusCode != 202 || again.StatusCode != 202 || one != two ||
		again.Header.Get(api.HeaderReplayed) != "true" {
		t.Errorf("%d %s\n%d %s", first.StatusCode, one, again.StatusCode, two)
	}

	for request, want := range map[string]struct {
		status int
		text   string
	}{
		"POST " + apply:                                    {409, "was applied already, as job 1"},
		"POST /v1/plans/00000000-00000001/apply":           {409, "is of another manager"},
		"GET /v1/plans/00000000-00000001":                  {409, "is of another manager"},
		"GET /v1/plans/" + planID(9):                       {404, "there is no plan " + planID(9)},
		"DELETE /v1/plans/" + planID(9):                    {404, "there is no plan"},
		"GET /v1/plans/x":                                  {404, "is not the id of a plan"},
		"POST /v1/plans":                                   {400, "the request has no body"},
		"GET /v1/plans?sort=nothing":                       {400, "nothing"},
		"POST /v1/plans/" + planID(1) + "/apply?nodes=a-1": {400, "nodes"},
	} {
		method, path, _ := strings.Cut(request, " ")
		if res, text := s.exchange(
			t,
			method,
			path,
			"",
		); res.StatusCode != want.status ||
			!strings.Contains(text, want.text) {
			t.Errorf("%s: %d %s", request, res.StatusCode, text)
		}
	}

	// The job of the check may be gone before the plan.
	s.exchange(t, "POST", "/v1/plans", `{"verb":"apply","nodes":["a-1"],"check":true}`)
	s.manager.change(func(v *state.View) { v.SetJobs() })

	if res, text := s.exchange(t, "GET", "/v1/plans/"+planID(2), ""); res.StatusCode != 200 ||
		!strings.Contains(text, "the job is no longer kept") {
		t.Errorf("%d %s", res.StatusCode, text)
	}
}
