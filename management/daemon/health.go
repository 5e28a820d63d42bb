// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"time"

	"github.com/contiv/cluster/management/access/mtls"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/health"
	"github.com/contiv/cluster/management/metrics/present"
	"github.com/contiv/cluster/management/notify"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/survivor"
)

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
			return health.Space(d.etcd.Spaces(ctx), d.etcd.Embedded != nil)
		}},
		{Part: "ansible", Do: func(ctx context.Context, _ *state.View) ([]string, error) {
			return d.programs.Health(ctx)
		}},
		health.Problem("records", health.Unreadable),
		health.Problem("secrets", func(context.Context, *state.View) error { return d.store.Secrets().Problem() }),
		health.Problem("others", func(_ context.Context, v *state.View) error { return survivor.Alone(v) }),
		health.Problem("instance", func(context.Context, *state.View) error { return d.member.Problem() }),
		{Part: "notifications", Do: func(context.Context, *state.View) ([]string, error) {
			return health.Text(d.notifier.Warning()), d.notifier.Problem()
		}},
		health.Problem("disk", func(context.Context, *state.View) error { return health.FreeSpace(d.file.DataDir) }),
		health.Problem("images", func(context.Context, *state.View) error { return d.images.Problem() }),
		health.Problem("boot", func(context.Context, *state.View) error { return d.boot.Problem() }),
		d.certificateCheck(),
		d.repositoryCheck(config.Repository.Used()),
		{
			Part: "configuration",
			Do:   func(context.Context, *state.View) ([]string, error) { return d.settings.Health() },
		},
		health.Warn(func(v *state.View) []string {
			return slices.Concat(health.Text(d.sshKey.Warning()), d.policies.Warnings(),
				d.instances.Warnings(), d.boot.Warnings(), health.Text(d.judge.Warning()),
				health.BudgetWarnings(config.Groups, v.Nodes()))
		}),
		health.Problem("gossip", func(context.Context, *state.View) error {
			if d.gossip.Off() {
				return health.ErrOff
			}
			return d.gossip.Err()
		}),
		health.Warn(func(v *state.View) []string { return health.PlaybookWarnings(v, d.identity.ID) }),
		health.Warn(health.VersionWarnings),
		health.Warn(func(v *state.View) []string { return health.NodeWarnings(v.Nodes()) }),
	}
}

// room refuses changes before the file system of the etcd inside is full: etcd would fail in the middle of one.
func (d *Daemon) room() error {
	if d.etcd.Embedded == nil {
		return nil
	}

	return health.FreeSpace(d.file.DataDir)
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

// snapshot emits the metrics of the present state.
func (d *Daemon) snapshot(emit func(name string, value float64, labels ...string)) {
	v := d.store.View()
	present.Measure(v, d.settings.Current().Jobs.Forks, time.Now(), emit)

	counts := d.desired.Of(v).Count(v.Nodes())
	emit("clusterm_nodes_outdated", float64(counts.Outdated))
	emit("clusterm_nodes_configuration_unknown", float64(counts.Unknown))

	emit("clusterm_lifecycle_violations_total", float64(d.judge.Violations()))

	deliveries := d.notifier.Counts()
	for _, status := range []string{notify.Pending, notify.Delivered, notify.Dead} {
		emit("clusterm_notification_deliveries", float64(deliveries[status]), status)
	}

	emit("clusterm_ssh_key_laggards", float64(len(d.sshKey.Laggards())))
	d.store.Measure(emit)
	d.gossip.Measure(emit)
	d.parts.Emit(emit)

	if d.etcd.Embedded != nil {
		emit("clusterm_etcd_restarts_total", float64(d.etcd.Embedded.Restarts()))
	}

	if d.certificates != nil {
		server, ca := d.certificates.Expiry()
		emit("clusterm_certificate_expiry_timestamp_seconds", float64(server.Unix()), "server")
		emit("clusterm_certificate_expiry_timestamp_seconds", float64(ca.Unix()), "ca")
	}
}
