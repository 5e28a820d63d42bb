// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"

	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
)

func (a *app) nodesExplain() leaf {
	return leaf{
		name: "explain", args: "NAME", names: true, formats: namelessFormats,
		usage: "explain why a node is, or is not, in service, with remedies",
		about: "The explanation shows since when the node has its status and state, the requirements of its group, " +
			"the jobs that claim it or wait for it, failed tasks with their output, residue, tombstone, duplicates " +
			"and host key. It shows the next automatic step, and a command for every obstacle.",
		examples: []string{"clusterctl nodes explain web-1-AB12", "clusterctl nodes explain web-1-AB12 -o json"},
		run: func(ctx context.Context, c *call) error {
			return view(c, func(p *print.Printer, e api.NodeExplanation) {
				p.NodeExplanation(e, c.self())
			})(c.manager.Explain(ctx, c.args[0]))
		},
	}
}

func (a *app) jobWhy() leaf {
	return leaf{
		name: "why", args: "[ID]", readsJob: true, formats: namelessFormats,
		usage: "explain why a job waits, still runs or has failed, with remedies",
		about: readJobHelp + "\n" +
			"The explanation shows the position of the job in the queue and its obstacle, the failed hosts with task " +
			"and output, the steps that the manager took, and a command for every problem.",
		examples: []string{"clusterctl job why", "clusterctl job why 12 -o json"},
		run: func(ctx context.Context, c *call) error {
			return view(c, func(p *print.Printer, e api.JobExplanation) {
				p.JobExplanation(e, c.self())
			})(c.manager.ExplainJob(ctx, c.args[0]))
		},
	}
}
