// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"net/http"

	"github.com/contiv/cluster/management/api"
)

// Plan makes a plan of the job in the request. Nothing is done; with JobRequest.Check,
// a job checks at once which changes Ansible foresees.
func (c *Client) Plan(ctx context.Context, r api.JobRequest) (api.Plan, error) {
	var out api.Plan
	return out, c.do(ctx, call{method: http.MethodPost, path: api.PathPlans, in: r, idempotent: true}, &out)
}

// Plans returns the plans, the newest first, or a page of them.
func (c *Client) Plans(ctx context.Context, page ...Page) (api.List[api.Plan], error) {
	return listed[api.Plan](ctx, c, api.PathPlans, page)
}

// PlanOf returns one plan, with its variables and the findings of its check.
func (c *Client) PlanOf(ctx context.Context, id string) (api.Plan, error) {
	var out api.Plan
	return out, c.do(ctx, call{method: http.MethodGet, path: api.PathPlan, params: []string{id}}, &out)
}

// ApplyPlan submits the job of a plan. It fails with KindRefused if the world has changed
// since the plan was made, and names the changes.
func (c *Client) ApplyPlan(ctx context.Context, id string) (api.Job, error) {
	var out api.Job

	k := call{method: http.MethodPost, path: api.PathApplyPlan, params: []string{id}, idempotent: true}

	return out, c.do(ctx, k, &out)
}

// DeletePlan removes a plan. Its job, if it was applied, goes on.
func (c *Client) DeletePlan(ctx context.Context, id string) (api.Changed, error) {
	var out api.Changed
	return out, c.do(ctx, call{method: http.MethodDelete, path: api.PathPlan, params: []string{id}}, &out)
}
