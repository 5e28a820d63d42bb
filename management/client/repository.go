// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/contiv/cluster/management/api"
)

// The manager's limits for a fetch, and for one comparison.
const (
	fetchTime = time.Hour
	diffTime  = 2 * time.Minute
)

// Repository returns the state of the git repository of playbooks.
func (c *Client) Repository(ctx context.Context) (api.Repository, error) {
	return get[api.Repository](ctx, c, api.PathRepository)
}

// SyncRepository fetches the repository of playbooks now. The error is the reason why the
// newest commit is not in use.
func (c *Client) SyncRepository(ctx context.Context) (api.Repository, error) {
	return ask[api.Repository](ctx, c, call{method: http.MethodPost, path: api.PathSyncRepository, extra: fetchTime})
}

// RepositoryLog returns commits of the repository of playbooks.
func (c *Client) RepositoryLog(ctx context.Context, q api.RepositoryLogQuery) (api.RepositoryLog, error) {
	query := url.Values{}
	if q.Limit != 0 {
		query.Set("limit", strconv.Itoa(q.Limit))
	}
	if q.All {
		query.Set("all", "true")
	}

	return find[api.RepositoryLog](ctx, c, api.PathRepositoryLog, query)
}

// RepositoryDiff compares two sets of playbooks.
func (c *Client) RepositoryDiff(ctx context.Context, q api.RepositoryDiffQuery) (api.RepositoryDiff, error) {
	query := url.Values{}

	for name, value := range map[string]string{"node": q.Node, "from": q.From, "to": q.To} {
		if value != "" {
			query.Set(name, value)
		}
	}

	return ask[api.RepositoryDiff](ctx, c, call{
		method: http.MethodGet, path: api.PathRepositoryDiff, query: query, extra: diffTime,
	})
}
