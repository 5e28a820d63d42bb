// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"cmp"
	"context"
	"sync"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
)

// showHealth shows an answer about the health h, which decides on the exit code.
func (c *call) showHealth(h api.Health, answer print.Answer) error {
	for _, w := range h.Warnings {
		c.say("warning: %s", w)
	}

	answer.Stale = h.Stale
	if err := c.show(answer); err != nil {
		return err
	}

	if h.Status != api.HealthOK {
		return exit.Errorf(exit.Failed, "the manager is %s", h.Status).
			Try("see the checks above, and the log of the manager: journalctl -u clusterm")
	}

	return nil
}

// warnOfInstances warns of a single instance. Several share an etcd that is not inside any of them.
func (c *call) warnOfInstances(n int) {
	if n == 1 {
		c.say("warning: a single instance is not highly available: while its host is down, nothing is managed")
	}
}

// state is the answer of `status` as JSON and YAML.
type state struct {
	Health    api.Health     `json:"health"`
	Version   versions       `json:"version"`
	Instances []api.Instance `json:"instances"`
}

func statusRows() rows {
	return rows{
		"status": {formats: namelessFormats, run: showStatus},
	}
}

func showStatus(ctx context.Context, c *call) error {
	s := state{Version: versions{Client: c.app.Version}}

	var (
		all       sync.WaitGroup
		server    api.Version
		instances api.List[api.Instance]
		failed    [3]error
	)

	all.Go(func() { s.Health, failed[0] = c.manager.Health(ctx) })
	all.Go(func() { server, failed[1] = c.manager.Version(ctx) })
	all.Go(func() { instances, failed[2] = c.manager.Instances(ctx) })
	all.Wait()

	if failed[0] != nil {
		return failed[0]
	}

	layout, err := print.InstanceColumns.Layout(nil, nil, c.format)
	if err != nil {
		return err
	}

	// A manager that does not answer everything still shows its health.
	if failed[1] == nil {
		s.Version.Server = &server
	}

	if failed[2] == nil {
		s.Instances = instances.Items
		c.warnOfInstances(len(s.Instances))
	}

	err = c.showHealth(s.Health, print.Answer{Wire: s, Table: func(p *print.Printer) {
		p.Health(s.Health)
		p.Versions(s.Version.Client, s.Version.Server)

		if failed[2] == nil {
			p.Printf("\n")
			layout.Print(p, s.Instances)
		}
	}})

	return cmp.Or(err, failed[1], failed[2])
}

// versions has the versions of both programs. Server is nil if the manager did not answer with its own.
type versions struct {
	Client api.Version  `json:"client"`
	Server *api.Version `json:"server,omitempty"`
}
