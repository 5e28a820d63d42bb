// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"

	"github.com/contiv/cluster/management/api"
)

// Plan makes a plan of the job in the request. Nothing is done; with JobRequest.Check,
// a job checks at once which changes Ansible foresees.
func (c *Client) Plan(ctx context.Context, r api.JobRequest) (api.Plan, error) {
	return post[api.Plan](ctx, c, api.PathPlans, r)
}

// Plans returns the plans, the newest first, or a page of them.
func (c *Client) Plans(ctx context.Context, page ...Page) (api.List[api.Plan], error) {
	return listed[api.Plan](ctx, c, api.PathPlans, page)
}

// PlanOf returns one plan, with its variables and the findings of its check.
func (c *Client) PlanOf(ctx context.Context, id string) (api.Plan, error) {
	return get[api.Plan](ctx, c, api.PathPlan, id)
}

// ApplyPlan submits the job of a plan. It fails with KindRefused if the world has changed
// since the plan was made, and names the changes.
func (c *Client) ApplyPlan(ctx context.Context, id string) (api.Job, error) {
	return post[api.Job](ctx, c, api.PathApplyPlan, nil, id)
}

// DeletePlan removes a plan. Its job, if it was applied, goes on.
func (c *Client) DeletePlan(ctx context.Context, id string) (api.Changed, error) {
	return remove(ctx, c, api.PathPlan, id)
}
