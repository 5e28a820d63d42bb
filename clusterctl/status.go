// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/management/api"
)

func (a *app) health() *cli.Command {
	return a.leaf(leaf{
		name: "health", usage: "say whether the manager can do its work",
		about:    "The exit code is 1 when it cannot.",
		formats:  []string{formatLong, formatJSON, formatYAML},
		examples: []string{"clusterctl health", "clusterctl health -o json"},
		run: func(ctx context.Context, c *call) error {
			h, err := c.manager.Health(ctx)
			if err != nil {
				return err
			}

			for _, w := range h.Warnings {
				c.say("warning: %s", w)
			}

			if err := c.show(view{wire: h, stale: h.Stale, table: func(p *printer) { p.health(h) }}); err != nil {
				return err
			}

			if h.Status != api.HealthOK {
				return failf(
					ExitFailed,
					"the manager is %s",
					h.Status,
				).do("see the checks above, and the daemon's log: journalctl -u clusterm")
			}

			return nil
		},
	})
}

func (p *printer) health(h api.Health) {
	status := p.paint.good(oneLine(h.Status))
	if h.Status != api.HealthOK {
		status = p.paint.bad(oneLine(h.Status))
	}

	var jobs []string
	for _, s := range []api.JobStatus{api.Queued, api.Running} {
		if h.Jobs[s] > 0 {
			jobs = append(jobs, fmt.Sprintf("%d %s", h.Jobs[s], s))
		}
	}

	if jobs == nil {
		jobs = []string{"none"}
	}

	p.fields(
		"Status",
		status,
		"Instance",
		oneLine(h.Instance),
		"Revision",
		fmt.Sprint(h.Revision),
		"Stale",
		map[bool]string{true: "yes"}[h.Stale],
		"Nodes",
		fmt.Sprint(h.Nodes),
		"Jobs",
		strings.Join(jobs, ", "),
	)

	if len(h.Checks) == 0 {
		return
	}

	p.gap()

	var rows [][]string
	for _, name := range slices.Sorted(maps.Keys(h.Checks)) {
		word := oneLine(h.Checks[name])
		if word == "ok" {
			word = p.paint.good(word)
		} else {
			word = p.paint.bad(word)
		}

		rows = append(rows, []string{oneLine(name), word})
	}

	p.rows([]string{"CHECK", "RESULT"}, rows)
}

// versions is what `version` prints as JSON and YAML.
type versions struct {
	Client api.Version  `json:"client"`
	Server *api.Version `json:"server,omitempty"`
}

func (a *app) version() *cli.Command {
	return a.leaf(leaf{
		name: "version", usage: "print the versions of clusterctl and of the manager",
		flags:    []cli.Flag{&cli.BoolFlag{Name: "client", Usage: "only that of clusterctl: ask no manager"}},
		formats:  []string{formatLong, formatJSON, formatYAML},
		examples: []string{"clusterctl version", "clusterctl version --client"},
		run: func(ctx context.Context, c *call) error {
			v := versions{Client: c.app.Version}

			var failed error
			if !c.Bool("client") {
				if server, err := c.manager.Version(ctx); err == nil {
					v.Server = &server
				} else {
					failed = err
				}
			}

			err := c.show(view{wire: v, table: func(p *printer) {
				fmt.Fprintln(p.w, versionLine(v.Client))

				if v.Server != nil {
					fmt.Fprintln(p.w, strings.Replace(versionLine(*v.Server), "clusterctl", "clusterm  ", 1))
				}
			}})
			if err != nil {
				return err
			}

			return failed
		},
	})
}

func versionLine(v api.Version) string {
	line := "clusterctl " + oneLine(v.Version)

	var more []string
	for _, part := range [][2]string{{"commit ", v.Commit}, {"", v.Go}, {"ansible ", v.Ansible}, {"etcd ", v.Etcd}} {
		if part[1] != "" {
			more = append(more, part[0]+oneLine(part[1]))
		}
	}

	if more != nil {
		line += " (" + strings.Join(more, ", ") + ")"
	}

	return line
}
