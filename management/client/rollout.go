// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
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
	return post[api.Rollout](ctx, c, api.PathRollouts, r)
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
	return poll(ctx, c, api.PathRollout, id, url.Values{}, func(r api.Rollout, q url.Values) (string, bool) {
		q.Set("after", strconv.FormatInt(r.Revision, 10))
		return r.ID, !each(r) || r.Status.Ended()
	})
}

// ControlRollout carries out an act on a rollout. path is that of the act, as api.PathPauseRollout, and in is its
// request. It returns the rollout; api.PathUndoRollout returns the new one.
func (c *Client) ControlRollout(ctx context.Context, path string, in any, id string) (api.Rollout, error) {
	return post[api.Rollout](ctx, c, path, in, id)
}
