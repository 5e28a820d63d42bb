// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"strconv"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

func repoRows() rows {
	return rows{
		"repo status": {
			formats: namelessFormats,
			run:     one((*client.Client).Repository, (*print.Printer).Repository),
		},
		"repo sync": {
			formats: namelessFormats,
			run:     one((*client.Client).SyncRepository, (*print.Printer).Repository),
		},
		"repo log": {
			formats: namelessFormats,
			run: func(ctx context.Context, c *call) error {
				limit, err := strconv.Atoi(c.text("limit", "50"))
				if err != nil || limit < 1 {
					return exit.Usagef("--limit: %q is not a number of commits", c.String("limit")).
						Try("write one such as 10")
				}

				log, err := c.manager.RepositoryLog(ctx, api.RepositoryLogQuery{Limit: limit, All: c.Bool("all")})
				if err != nil {
					return err
				}
				if c.isEmpty(len(log.Commits)) {
					return c.sayNoCommits(ctx)
				}

				return view(c, (*print.Printer).RepositoryLog)(log, nil)
			},
		},
		"repo diff": {formats: namelessFormats, complete: commits, run: repoDiff},
	}
}

// sayNoCommits explains an empty list of commits.
func (c *call) sayNoCommits(ctx context.Context) error {
	state, err := c.manager.Repository(ctx)

	switch {
	case err != nil:
		return err
	case state.URL == "":
		c.say("no repository is configured: set repository.url in the configuration file of the manager, and " +
			"reload it (systemctl reload clusterm)")
	case state.InUse == nil && state.Newest == nil:
		c.say("no commit is fetched yet; to see why: %s repo status", c.self())
	default:
		c.say("no commit is newer than those that nodes carry")
	}

	return nil
}

func repoDiff(ctx context.Context, c *call) error {
	q := api.RepositoryDiffQuery{Node: c.String("node")}

	switch {
	case q.Node != "" && len(c.args) > 1:
		return exit.Usagef("--node takes the place of one commit, and two are given").Try("leave one of them out")
	case q.Node != "" && len(c.args) == 1:
		q.To = c.args[0]
	default:
		for i, to := range []*string{&q.From, &q.To} {
			if i < len(c.args) {
				*to = c.args[i]
			}
		}
	}

	return view(c, (*print.Printer).RepositoryDiff)(c.manager.RepositoryDiff(ctx, q))
}

// commits completes the commits of the repository of playbooks, the newest first.
var commits = offer(func(ctx context.Context, m *client.Client) ([]api.LogCommit, error) {
	log, err := m.RepositoryLog(ctx, api.RepositoryLogQuery{All: true})
	return log.Commits, err
}, func(commit api.LogCommit) candidate {
	const short = 12
	return candidate{commit.Hash[:min(len(commit.Hash), short)], commit.Subject}
})
