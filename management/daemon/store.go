// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"

	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/cluster/datadir"
	store "github.com/contiv/cluster/management/etcd"
	"github.com/contiv/cluster/management/instance"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/repository"
	"github.com/contiv/cluster/management/secret/keyring"
	"github.com/contiv/cluster/management/setting"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/step/playbook/program"
	"github.com/contiv/cluster/management/survivor"
)

// openStore connects to etcd and loads the view and the settings.
func (d *Daemon) openStore(ctx context.Context) (err error) {
	if !d.file.Etcd.Used() {
		own := instance.Start{
			DataDir: d.file.DataDir, Etcd: d.opts.embedded(d.file).Dir, Addr: d.node.Addr,
			ClientPort: d.file.Instances.ClientPort, PeerPort: d.file.Instances.PeerPort,
			AcceptEmpty: d.opts.AcceptEmptyStore, Now: d.opts.Certificates.Now,
		}
		if err := own.Prepare(); err != nil {
			return err
		}
		if err := survivor.Check(ctx, own.Etcd); err != nil {
			return err
		}
	}

	d.etcd, err = etcd.Open(ctx, etcd.Opening{
		Server: d.opts.embedded(d.file), Existing: etcd.Existing(d.file.Etcd),
		Traces: datadir.Traces(d.file.DataDir), AcceptEmpty: d.opts.AcceptEmptyStore,
	})
	if err != nil {
		return err
	}

	d.parts.OnStop("etcd", func(context.Context) error { return d.etcd.Close() })

	var secrets *store.Secrets

	d.secrets, secrets = keyring.Open(d.file.Secrets.KeyFile, d.file.DataDir, d.opts.Logger)
	if d.store, err = store.Open(ctx, d.etcd.Client, kinds, secrets, d.opts.Logger, d.opts.StaleAfter); err != nil {
		return err
	}

	d.store.Count(d.metrics, &d.troubles)

	if d.etcd.Embedded != nil {
		d.store.ExplainOutage(d.etcd.Embedded.EndedSince)
	}

	d.parts.OnStopOf("view", d.store.Close)

	d.openAudit()

	d.settings = setting.New(setting.Options{
		File:       d.file,
		Path:       d.opts.Path,
		Node:       d.node,
		State:      d.store,
		Store:      d.store,
		Adapters:   adapters{program.Checks{Temp: program.TempDir(d.file.DataDir)}},
		Membership: d.gossip, Pin: d.programs.Pin, KeyRotation: d.keyRotation,
		FolderVars: d.programs.FolderVars,
		Apply:      d.apply,
		Reloaded:   d.reloaded,
		Audit:      d.audit,
		Logger:     d.opts.Logger,
	})

	d.secrets.Settle(ctx, d.store, d.node.Name(), d.leads, func() keyring.Config {
		c := d.settings.Current()
		return keyring.Config{Patterns: c.SecretVars, Sources: c.Secrets.Sources}
	}, d.audit)

	return nil
}

// embedded returns the options of the embedded etcd.
func (o Options) embedded(f setting.File) etcd.ServerOptions {
	so := etcd.ServerOptions{
		Dir: filepath.Join(f.DataDir, "etcd"), NoSync: o.InProcess, Log: o.Logger, Quota: o.Quota,
	}

	// A process of its own: etcd ends its process when its disk fails.
	if !o.InProcess {
		so.Command = slices.Concat(o.Command, []string{"etcd"})
	}

	return so
}

// startUpkeep supervises the database of the embedded etcd. An existing etcd is left
// to its operators.
func (d *Daemon) startUpkeep(ctx context.Context) {
	if d.etcd.Embedded != nil {
		d.parts.Go(ctx, "members of etcd", func(ctx context.Context) {
			if err := d.etcd.Follow(ctx, etcd.FollowEvery); err != nil {
				d.failed <- err
			}
		})
		d.parts.Go(ctx, "watch of the other instances", d.watchOthers)
	}

	count := store.CountUpkeep(d.metrics)

	if d.etcd.Embedded == nil || d.opts.UpkeepEvery < 0 {
		return
	}

	upkeep := &etcd.Upkeep{
		Client: d.etcd.Client, Every: cmp.Or(d.opts.UpkeepEvery, etcd.UpkeepEvery),
		// Nobody leads while the store is full.
		Leads:    func() bool { return d.leads() || record.One(d.store.View(), &state.Lead).ID == "" },
		Idle:     func() bool { return !d.store.View().Busy() },
		MakeRoom: d.engine.Prune,
		Done:     count,
		Log:      d.opts.Logger,
	}

	d.parts.Go(ctx, "upkeep of etcd", upkeep.Run)
}

// shared keeps playbooks for other instances, if there are any.
func (d *Daemon) shared() repository.Shared {
	if d.file.Etcd.Used() || instance.Several(d.store.View()) {
		return d.store
	}
	return nil
}

// trackRepository makes the keeper of the repository of playbooks.
func (d *Daemon) trackRepository() {
	d.repository = d.programs.Track(repository.Options{
		State: d.store, Records: d.store, Shared: d.shared, Leads: d.member.Leads,
		Audit: d.audit, Logger: d.opts.Logger.WithField("part", "repository"),
	})
}
