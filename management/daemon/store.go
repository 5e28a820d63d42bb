// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/cluster/datadir"
	store "github.com/contiv/cluster/management/etcd"
	"github.com/contiv/cluster/management/repository"
	"github.com/contiv/cluster/management/secret/keyring"
	"github.com/contiv/cluster/management/setting"
	"github.com/contiv/cluster/management/step/playbook/program"
)

// openStore connects to etcd and loads the view and the settings.
func (d *Daemon) openStore(ctx context.Context) (err error) {
	if d.file.Etcd.Used() {
		d.etcd, err = d.dialExisting(ctx)
	} else {
		d.etcd, err = d.startEmbedded(ctx)
	}

	if err != nil {
		return err
	}

	d.onStop("connection to etcd", func(context.Context) error { return d.etcd.Close() })

	if err := d.initializeStore(ctx); err != nil {
		return err
	}

	var secrets *store.Secrets

	d.secrets, secrets = keyring.Open(d.file.Secrets.KeyFile, d.file.DataDir, d.opts.Logger)
	if d.store, err = store.Open(
		ctx, d.etcd, kinds, secrets, d.opts.Logger, d.opts.StaleAfter,
	); err != nil {
		return err
	}

	d.store.Count(d.metrics)

	if d.embedded != nil {
		d.store.ExplainOutage(d.embedded.EndedSince)
	}

	d.onStop("view", func(context.Context) error { d.store.Close(); return nil })

	d.openAudit()

	d.settings = setting.New(setting.Options{
		File:       d.file,
		Path:       d.opts.Path,
		Node:       d.node,
		State:      d.store,
		Store:      d.store,
		Adapters:   adapters{program.Checks{Temp: program.TempDir(d.file.DataDir)}},
		Membership: d.gossip, KeyRotation: d.keyRotation,
		FolderVars: d.programs.FolderVars,
		Apply:      d.apply,
		Audit:      d.audit,
		Logger:     d.opts.Logger,
	})

	d.secrets.Settle(ctx, d.store, d.node.Name(), func() keyring.Config {
		c := d.settings.Current()
		return keyring.Config{Patterns: c.SecretVars, Sources: c.Secrets.Sources}
	}, d.audit)

	return nil
}

// dialExisting connects to the configured etcd.
func (d *Daemon) dialExisting(ctx context.Context) (*etcd.Client, error) {
	dir, log := d.opts.embedded(d.file).Dir, d.opts.Logger

	// The embedded etcd would lock the data directory; the other files in it
	// belong to one daemon as well.
	lock, err := etcd.LockDir(ctx, dir, log)
	if err != nil {
		return nil, err
	}
	d.onStop("data directory", func(context.Context) error { return lock.Close() })

	if _, err := os.Stat(filepath.Join(dir, "data")); err == nil {
		log.Warnf("%s has data of the embedded etcd; they are ignored because etcd.endpoints is set", d.file.DataDir)
	}

	return etcd.DialExisting(ctx, etcd.Existing(d.file.Etcd), log)
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

// startEmbedded starts the embedded etcd and connects to it.
func (d *Daemon) startEmbedded(ctx context.Context) (*etcd.Client, error) {
	so := d.opts.embedded(d.file)
	so.MustExist = len(datadir.Traces(d.file.DataDir)) > 0 && !d.opts.AcceptEmptyStore

	var err error

	d.embedded, err = etcd.StartServer(ctx, so)
	if errors.Is(err, etcd.ErrNoData) {
		return nil, d.storeMissing(filepath.Join(so.Dir, "data"))
	}

	if err != nil {
		return nil, err
	}

	d.onStop("etcd", func(context.Context) error { return d.embedded.Close() })

	return d.embedded.Dial(ctx, etcd.Keys(etcd.DefaultPrefix))
}

// storeMissing refuses to begin with an empty store.
func (d *Daemon) storeMissing(where string) error {
	traces := datadir.Traces(d.file.DataDir)

	return inventory.Errorf(inventory.KindRefused,
		"the store is missing: %s contains no records, but %s has traces of a former one: %s",
		where, d.file.DataDir, strings.Join(traces, ", ")).
		Do("restore the data directory from a backup; or, to begin with no nodes and no jobs, run " +
			"clusterm --accept-empty-store once, end it with Ctrl-C, and start the service")
}

// initializeStore makes a store of an empty prefix. In an existing store it writes
// nothing.
func (d *Daemon) initializeStore(ctx context.Context) error {
	if !d.etcd.Empty() {
		return nil
	}

	if len(datadir.Traces(d.file.DataDir)) > 0 {
		where := d.opts.embedded(d.file).Dir
		if d.file.Etcd.Used() {
			where = "the prefix " + d.file.Etcd.Prefix + " of etcd"
		}
		if !d.opts.AcceptEmptyStore {
			return d.storeMissing(where)
		}

		d.opts.Logger.Warnf("%s contains no records; beginning with an empty store, as asked", where)
	}

	return d.etcd.Initialize(ctx)
}

// startUpkeep supervises the database of the embedded etcd. An existing etcd is left
// to its operators.
func (d *Daemon) startUpkeep(ctx context.Context) {
	count := store.CountUpkeep(d.metrics)

	if d.embedded == nil || d.opts.UpkeepEvery < 0 {
		return
	}

	upkeep := &etcd.Upkeep{
		Client: d.etcd, Every: cmp.Or(d.opts.UpkeepEvery, etcd.UpkeepEvery),
		Idle:     func() bool { return !d.store.View().Busy() },
		MakeRoom: d.engine.Prune,
		Done:     count,
		Log:      d.opts.Logger,
	}

	d.background(ctx, "upkeep of etcd", upkeep.Run)
}

// spaceHealth rates the size of the database against its quota, and the alarms of
// etcd. A database below etcd.CheckShare is worth a warning only.
func (d *Daemon) spaceHealth(ctx context.Context) (warnings []string, problem error) {
	if d.embedded != nil {
		warnings = checkLogs(d.settings.Current().Jobs)
	}

	for _, s := range d.etcd.Spaces(ctx) {
		switch {
		case s.Err != nil: // the check of the store reports it
		case s.Raised(etcd.AlarmCorrupt):
			problem = errors.Join(problem, fmt.Errorf("etcd found damaged data and refuses every change (alarm %s): "+
				"run clusterm store check and restore a backup; only if it finds no damage, run clusterm store disarm",
				etcd.AlarmCorrupt))
		case s.Raised(etcd.AlarmNoSpace):
			problem = errors.Join(problem, fmt.Errorf("the store is full: %s; etcd accepts only deletions (alarm %s), "+
				"so every change is refused; %s", s, etcd.AlarmNoSpace, d.fullRemedy()))
		case s.Share() >= etcd.CheckShare:
			problem = errors.Join(problem, fmt.Errorf("the store is almost full: %s; at 100 %% etcd refuses every "+
				"change; %s", s, crowdedRemedy))
		case s.Share() >= etcd.WarnShare:
			warnings = append(warnings, fmt.Sprintf("the store fills up: %s; at 100 %% etcd refuses every change; %s",
				s, crowdedRemedy))
		}
	}

	return warnings, problem
}

// logRoom is the space in the quota for the logs of jobs, in bytes, in a manager at all
// its other limits.
const logRoom = 1536 << 20

// checkLogs returns a warning if the configuration allows for more logs than the store
// of a large manager has room for.
func checkLogs(j setting.Jobs) (warnings []string) {
	// Each running job has output and events.
	allowed := j.KeepBytes + 2*int64(j.Limit)*j.OutputLimit
	if allowed <= logRoom {
		return nil
	}
	return []string{fmt.Sprintf("jobs.keep_bytes and jobs.limit × jobs.output_limit allow for %d MiB of logs; "+
		"the store of a large manager has room for %d MiB", allowed>>20, logRoom>>20)}
}

// crowdedRemedy is the remedy while changes are accepted.
const crowdedRemedy = "lower jobs.keep_bytes or jobs.keep (clusterctl config set), then run clusterm store compact " +
	"and clusterm store defragment"

// fullRemedy is the remedy under etcd.AlarmNoSpace. It needs no change.
func (d *Daemon) fullRemedy() string {
	if d.embedded == nil {
		return "run clusterm store compact, clusterm store defragment and clusterm store disarm with a user that " +
			"has the role root, or do the same with etcdctl"
	}

	return "clusterm removes jobs outside the retention, compacts, defragments and accepts changes again by itself; " +
		"if that does not suffice, lower jobs.keep or jobs.keep_bytes in the configuration file and reload it " +
		"(systemctl reload clusterm), or accept changes for a while with clusterm store disarm"
}

// trackRepository makes the keeper of the repository of playbooks.
func (d *Daemon) trackRepository() {
	// The etcd inside belongs to one instance.
	var shared repository.Shared
	if d.file.Etcd.Used() {
		shared = d.store
	}

	d.repository = d.programs.Track(repository.Options{
		State: d.store, Records: d.store, Shared: shared, Leads: d.member.Leads,
		Audit: d.audit, Logger: d.opts.Logger.WithField("part", "repository"),
	})
}
