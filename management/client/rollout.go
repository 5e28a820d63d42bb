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
	var out api.Rollout
	return out, c.do(ctx, call{method: http.MethodPost, path: api.PathPreviewRollout, in: r}, &out)
}

// StartRollout starts a rollout.
func (c *Client) StartRollout(ctx context.Context, r api.RolloutRequest) (api.Rollout, error) {
	var out api.Rollout
	return out, c.do(ctx, call{method: http.MethodPost, path: api.PathRollouts, in: r, idempotent: true}, &out)
}

// ListRollouts returns the rollouts, the newest first, or a page of them.
func (c *Client) ListRollouts(ctx context.Context, page ...Page) (api.List[api.Rollout], error) {
	return listed[api.Rollout](ctx, c, api.PathRollouts, page)
}

// Rollout returns one rollout with its nodes and events.
func (c *Client) Rollout(ctx context.Context, id string) (api.Rollout, error) {
	var out api.Rollout
	return out, c.do(ctx, call{method: http.MethodGet, path: api.PathRollout, params: []string{id}}, &out)
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
	return c.actOnRollout(ctx, api.PathPauseRollout, id, api.RolloutControl{Reason: reason})
}

// PromoteRollout lets a rollout go on after its canary.
func (c *Client) PromoteRollout(ctx context.Context, id, reason string) (api.Rollout, error) {
	return c.actOnRollout(ctx, api.PathPromoteRollout, id, api.RolloutControl{Reason: reason})
}

// ApproveRollout lets a rollout begin that another person started.
func (c *Client) ApproveRollout(ctx context.Context, id, reason string) (api.Rollout, error) {
	return c.actOnRollout(ctx, api.PathApproveRollout, id, api.RolloutControl{Reason: reason})
}

// UndoRollout starts the rollout that takes another one back, and returns it.
func (c *Client) UndoRollout(ctx context.Context, id, reason string) (api.Rollout, error) {
	return c.actOnRollout(ctx, api.PathUndoRollout, id, api.RolloutControl{Reason: reason})
}

// ResumeRollout lets a paused or stopped rollout go on.
func (c *Client) ResumeRollout(ctx context.Context, id string, in api.RolloutResume) (api.Rollout, error) {
	return c.actOnRollout(ctx, api.PathResumeRollout, id, in)
}

// AbortRollout ends a rollout.
func (c *Client) AbortRollout(ctx context.Context, id string, in api.RolloutAbort) (api.Rollout, error) {
	return c.actOnRollout(ctx, api.PathAbortRollout, id, in)
}

// RetryRollout begins nodes of a rollout once more.
func (c *Client) RetryRollout(ctx context.Context, id string, in api.RolloutRetry) (api.Rollout, error) {
	return c.actOnRollout(ctx, api.PathRetryRollout, id, in)
}

func (c *Client) actOnRollout(ctx context.Context, path, id string, in any) (api.Rollout, error) {
	var out api.Rollout

	k := call{method: http.MethodPost, path: path, params: []string{id}, in: in, idempotent: true}

	return out, c.do(ctx, k, &out)
}
