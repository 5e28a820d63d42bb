// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"

	"github.com/contiv/cluster/management/restore"
	"github.com/contiv/cluster/management/secret/keyring"
	"github.com/contiv/cluster/management/setting"
	"github.com/contiv/cluster/management/survivor"
)

// watchOthers ends the daemon if its instance is to go on alone, or if the manager went on without it.
func (d *Daemon) watchOthers(ctx context.Context) {
	watch := survivor.Watch{
		Self: d.identity.ID, Dir: d.opts.embedded(d.file).Dir, After: d.file.Instances.Patience(),
		View: d.store.View, Alive: d.gossip.Alive, Logger: d.opts.Logger.WithField("part", "instances"),
	}

	if err := watch.Run(ctx); err != nil {
		d.failed <- err
	}
}

// host describes this host for package survivor.
func (o Options) host(f setting.File) survivor.Host {
	_, secrets := keyring.Open(f.Secrets.KeyFile, f.DataDir, o.Logger)

	return survivor.Host{
		DataDir: f.DataDir, Server: o.embedded(f), After: f.Instances.Patience(), Status: o.Status,
		Kinds: kinds, Secrets: secrets, Version: o.Version.Version, Logger: o.Logger,
		Recover: func(ctx context.Context) error {
			return Recover(ctx, o, restore.Options{Automatic: true, Say: o.Logger.Warnf}, true)
		},
		Gossip: func() (survivor.Gossip, error) {
			d, err := New(o)
			if err != nil {
				return nil, err
			}
			err = d.prepareHost()
			return d.gossip, err
		},
	}
}
