// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"strconv"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

func (a *app) repo() leaf {
	return leaf{
		name: "repo", usage: "see and fetch the git repository of playbooks",
		commands: []leaf{a.repoStatus(), a.repoSync(), a.repoLog(), a.repoDiff()},
	}
}

func (a *app) repoStatus() leaf {
	return leaf{
		name: "status", formats: namelessFormats,
		usage: "show the commit in use, the last fetch, and what each node runs",
		about: "The commit in use is the one that new jobs pin. A newer commit that was refused is shown with the " +
			"reason. Nodes that were configured with a local folder, or with the bundled playbooks, are shown with " +
			"the digest of those.",
		examples: []string{"clusterctl repo status", "clusterctl repo status -o json"},
		run:      one((*client.Client).Repository, (*print.Printer).Repository),
	}
}

func (a *app) repoSync() leaf {
	return leaf{
		name: "sync", formats: namelessFormats, usage: "fetch the repository now, and use its newest commit",
		about: "The manager does this by itself at each interval. It checks the commit first: one that does not " +
			"parse, or lacks a play for a group with nodes, is refused, and the former one stays in use. No node is " +
			"changed: nodes with other playbooks become outdated.",
		examples: []string{"clusterctl repo sync"},
		run:      one((*client.Client).SyncRepository, (*print.Printer).Repository),
	}
}

func (a *app) repoLog() leaf {
	return leaf{
		name: "log", formats: namelessFormats, usage: "list the commits that nodes do not carry yet, the newest first",
		about: "The list ends at the commits that nodes carry. --all goes back to the first commit.",
		flags: []cli.Flag{
			&cli.StringFlag{Name: "limit", Value: "50", Usage: "list `N` commits at most, up to 200"},
			switchFlag("all", "list older commits as well"),
		},
		examples: []string{"clusterctl repo log", "clusterctl repo log --all --limit 10"},
		run: func(ctx context.Context, c *call) error {
			limit, err := strconv.Atoi(c.String("limit"))
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

func (a *app) repoDiff() leaf {
	return leaf{
		name: "diff", args: "[FROM [TO]]", formats: namelessFormats,
		usage: "show what differs between two commits, or between a node and the commit in use", complete: commits,
		about: "FROM and TO are hashes of commits, or the first digits of them. Without them, it compares the commit " +
			"in use with the newest one. With --node it compares the playbooks that configured the node with the " +
			"commit in use, or with the commit given.",
		flags: []cli.Flag{valueFlag("node", "compare what the node `NAME` carries")},
		examples: []string{
			"clusterctl repo diff",
			"clusterctl repo diff 3f2a91c 8d04be7",
			"clusterctl repo diff --node web-1-AB12",
		},
		run: repoDiff,
	}
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
