// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/access/mtls"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/health"
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/state"
)

// notifyPatience is how long a target of notifications may accept nothing without a warning.
const notifyPatience = 5 * time.Minute

// health checks every part. It blocks for some seconds at most.
func (d *Daemon) health(ctx context.Context) api.Health {
	v := d.store.View()
	h := health.Of(ctx, d.identity.Node, v, d.checks())

	counts := d.desired.Of(v).Count(v.Nodes())
	h.Outdated, h.Unknown = counts.Outdated, counts.Unknown
	return h
}

// checks returns the checks of all parts.
func (d *Daemon) checks() []health.Check {
	config := d.settings.Current()

	return []health.Check{
		{Part: "store", Do: func(ctx context.Context, v *state.View) ([]string, error) {
			_, warning, problem := d.etcd.Server()
			return health.Text(warning), errors.Join(d.probeStore(ctx, v.Stale), problem)
		}},
		{Part: "space", Do: func(ctx context.Context, _ *state.View) ([]string, error) {
			return d.spaceHealth(ctx)
		}},
		{Part: "ansible", Do: func(ctx context.Context, _ *state.View) ([]string, error) {
			return d.programs.Health(ctx)
		}},
		health.Problem("records", health.Unreadable),
		health.Problem("secrets", func(context.Context, *state.View) error { return d.store.Secrets().Problem() }),
		health.Problem("instance", func(context.Context, *state.View) error { return d.member.Problem() }),
		{Part: "notifications", Do: func(context.Context, *state.View) ([]string, error) {
			return health.Text(d.failingTarget()), d.notifier.Problem()
		}},
		health.Problem("disk", func(context.Context, *state.View) error { return health.FreeSpace(d.file.DataDir) }),
		d.certificateCheck(),
		d.repositoryCheck(config.Repository.Used()),
		{
			Part: "configuration",
			Do:   func(context.Context, *state.View) ([]string, error) { return d.settings.Health() },
		},
		health.Warn(func(v *state.View) []string {
			a := state.AutomationOf(v)

			warnings := slices.Concat(health.Text(d.sshKey.Warning()), health.Text(d.plainHTTPWarning()))
			if text := policy.Describe(a.Brake); text != "" {
				warnings = append(warnings, text+": clusterctl policy release")
			}
			warnings = append(warnings, slices.Concat(health.Text(pausedWarning(a)), d.policies.Warnings())...)
			for _, problem := range config.Groups.BudgetProblems(v.Nodes()) {
				warnings = append(
					warnings,
					problem+"; add a node to the group, or lower the budget in the setting groups: "+
						"clusterctl config get groups",
				)
			}

			return warnings
		}),
		health.Problem("gossip", func(context.Context, *state.View) error {
			if d.gossip.Off() {
				return health.ErrOff
			}
			return d.gossip.Err()
		}),
		health.Warn(func(v *state.View) []string { return health.PlaybookWarnings(v, d.identity.ID) }),
		health.Warn(func(v *state.View) []string { return health.NodeWarnings(v.Nodes()) }),
	}
}

// failingTarget returns the warning about a target of notifications that accepts nothing, or "".
func (d *Daemon) failingTarget() string {
	target, since := d.notifier.Failing(notifyPatience)
	if target == "" {
		return ""
	}
	return fmt.Sprintf("the notification target %s has accepted nothing since %s; see clusterctl notification log %s",
		target, since.UTC().Format("2006-01-02 15:04:05 UTC"), target)
}

// certificateCheck checks the certificates of HTTPS, if that is served.
func (d *Daemon) certificateCheck() health.Check {
	if d.certificates == nil {
		return health.Warn(func(*state.View) []string { return nil })
	}

	return health.Check{Part: "certificate", Do: func(context.Context, *state.View) ([]string, error) {
		warning, problem := d.certificates.Check()
		return slices.Concat(health.Text(warning), mtls.Warnings(mtls.Issued(d.pkiDir()))), problem
	}}
}

// repositoryCheck checks the repository of playbooks, if it is used.
func (d *Daemon) repositoryCheck(used bool) health.Check {
	if !used {
		return health.Warn(func(*state.View) []string { return nil })
	}

	return health.Check{Part: "repository", Do: func(context.Context, *state.View) ([]string, error) {
		warning, problem := d.repository.Problem()
		return health.Text(warning), problem
	}}
}

// plainHTTPWarning returns the warning about plain HTTP with all rights, or "".
func (d *Daemon) plainHTTPWarning() string {
	if d.file.PlainHTTP == "" || access.Role(d.file.PlainRole) != access.RoleAdmin {
		return ""
	}

	return "plain_http_role is admin, so every program on this host controls all nodes; " +
		"set it to viewer or operator in the configuration file, and restart clusterm"
}

// probeStore makes a round trip to the store.
func (d *Daemon) probeStore(ctx context.Context, stale bool) error {
	if stale {
		// The store has not answered for long; wait only in case it is just back.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.outageTimeout())
		defer cancel()
	}

	return d.store.Sync(ctx)
}

// outageTimeout is how long to wait for a store that has not answered for long.
func (d *Daemon) outageTimeout() time.Duration { return d.opts.StaleAfter / 3 }

// version returns the versions of all programs. That of ansible-playbook is
// empty if it cannot run; health reports the reason.
func (d *Daemon) version(ctx context.Context) api.Version {
	v := d.opts.Version
	v.Go = runtime.Version()
	v.Etcd, _, _ = d.etcd.Server()
	v.Ansible, _ = d.programs.Version(ctx)
	return v
}
