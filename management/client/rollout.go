// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/contiv/cluster/management/api"
)

// PreviewRollout returns the rollout that StartRollout would start. Nothing is done.
func (c *Client) PreviewRollout(ctx context.Context, r api.RolloutRequest) (api.Rollout, error) {
	return post[api.Rollout](ctx, c, api.PathPreviewRollout, r)
}

// StartRollout starts a rollout.
func (c *Client) StartRollout(ctx context.Context, r api.RolloutRequest) (api.Rollout, error) {
	return once[api.Rollout](ctx, c, api.PathRollouts, r)
}

// ListRollouts returns the rollouts, the newest first, or a page of them.
func (c *Client) ListRollouts(ctx context.Context, page ...Page) (api.List[api.Rollout], error) {
	return listed[api.Rollout](ctx, c, api.PathRollouts, page)
}

// Rollout returns one rollout with its nodes and events.
func (c *Client) Rollout(ctx context.Context, id string) (api.Rollout, error) {
	return get[api.Rollout](ctx, c, api.PathRollout, id)
}

// WatchRollout calls each for every change of a rollout until that reports false, or the
// rollout has ended. It survives restarts of the daemon, each for up to Options.Patience.
func (c *Client) WatchRollout(ctx context.Context, id string, each func(api.Rollout) bool) (api.Rollout, error) {
	p, q := c.patience(), url.Values{} // the first request returns at once

	for {
		var r api.Rollout

		k := call{method: http.MethodGet, path: api.PathRollout, params: []string{id}, query: q, extra: waitStep}

		if err := c.do(ctx, k, &r); err != nil {
			if err := p.wait(ctx, err); err != nil {
				return api.Rollout{}, err
			}

			continue
		}

		p.reset()

		if !each(r) || r.Status.Ended() {
			return r, nil
		}

		q.Set("wait", waitStep.String())
		q.Set("after", strconv.FormatInt(r.Revision, 10))
	}
}

// PauseRollout keeps a rollout from beginning nodes.
func (c *Client) PauseRollout(ctx context.Context, id, reason string) (api.Rollout, error) {
	return once[api.Rollout](ctx, c, api.PathPauseRollout, api.RolloutControl{Reason: reason}, id)
}

// PromoteRollout lets a rollout go on after its canary.
func (c *Client) PromoteRollout(ctx context.Context, id, reason string) (api.Rollout, error) {
	return once[api.Rollout](ctx, c, api.PathPromoteRollout, api.RolloutControl{Reason: reason}, id)
}

// ApproveRollout lets a rollout begin that another person started.
func (c *Client) ApproveRollout(ctx context.Context, id, reason string) (api.Rollout, error) {
	return once[api.Rollout](ctx, c, api.PathApproveRollout, api.RolloutControl{Reason: reason}, id)
}

// UndoRollout starts the rollout that takes another one back, and returns it.
func (c *Client) UndoRollout(ctx context.Context, id, reason string) (api.Rollout, error) {
	return once[api.Rollout](ctx, c, api.PathUndoRollout, api.RolloutControl{Reason: reason}, id)
}

// ResumeRollout lets a paused or stopped rollout go on.
func (c *Client) ResumeRollout(ctx context.Context, id string, in api.RolloutResume) (api.Rollout, error) {
	return once[api.Rollout](ctx, c, api.PathResumeRollout, in, id)
}

// AbortRollout ends a rollout.
func (c *Client) AbortRollout(ctx context.Context, id string, in api.RolloutAbort) (api.Rollout, error) {
	return once[api.Rollout](ctx, c, api.PathAbortRollout, in, id)
}

// RetryRollout begins nodes of a rollout once more.
func (c *Client) RetryRollout(ctx context.Context, id string, in api.RolloutRetry) (api.Rollout, error) {
	return once[api.Rollout](ctx, c, api.PathRetryRollout, in, id)
}
