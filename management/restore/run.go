// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/inventory/localfile"
	"github.com/contiv/cluster/management/audit"
	"github.com/contiv/cluster/management/backup"
	"github.com/contiv/cluster/management/engine"
	store "github.com/contiv/cluster/management/etcd"
	"github.com/contiv/cluster/management/instance"
	"github.com/contiv/cluster/management/metrics"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// Options are the parameters of Run.
type Options struct {
	// Server describes the embedded etcd, unless an Existing one is used.
	Server   etcd.ServerOptions
	Existing *etcd.Existing
	// Kinds are the kinds of record in the store.
	Kinds []record.Any
	// Own is the identity of the manager of the data directory; empty: it has none yet.
	Own string
	// Secrets has the keys of the host.
	Secrets *store.Secrets
	// File is the path of the backup.
	File string
	// Verify reads and checks the backup, and restores nothing.
	Verify bool
	// Replace takes the place of a store that has records.
	Replace bool
	// Manager is the identity of another manager whose backup is wanted; empty: that of the data directory only.
	Manager string
	// WithoutSecrets also takes a backup whose secrets no key of the host opens.
	WithoutSecrets bool
	// Automatic is for Recover: no operator decided it.
	Automatic bool
	// Say tells what was done.
	Say    func(format string, args ...any)
	Logger logrus.FieldLogger
}

// Run replaces the store of a configuration by a backup, without a daemon. It checks the whole backup before it
// changes anything. Until it has ended, no daemon starts on the store; if it is interrupted, it can be repeated.
func Run(ctx context.Context, o Options) error {
	h, members, err := o.check()
	if err != nil || o.Verify {
		return err
	}

	dir := o.Server.Dir
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return inventory.Errorf(inventory.KindUnavailable, "the data directory cannot be made: %w", err).
			Do("run as root")
	}

	unlock, err := localfile.Lock(filepath.Dir(dir), "restore.lock")
	if err != nil {
		return inventory.Errorf(inventory.KindRefused, "another restore uses %s: %w", filepath.Dir(dir), err)
	}
	defer unlock()

	if err := checkStopped(ctx, dir); err != nil {
		return err
	}
	if err := checkLost(ctx, members); err != nil {
		return err
	}

	if o.Existing != nil {
		return o.intoExisting(ctx, h)
	}

	others, err := o.intoEmbedded(ctx, h)
	if err != nil {
		return err
	}

	if hosts := hostsOf(append(members, others...)); len(hosts) > 1 || len(others) > 0 {
		o.Say("the manager had several instances: %s", strings.Join(hosts, ", "))
		o.Say("on each other host, before clusterm starts there again: move %s away, and let it join anew "+
			"(clusterctl instance invite)", filepath.Dir(dir))
	}

	return nil
}

// stopping is how long to wait for a daemon that is about to end.
const stopping = 2 * time.Second

// checkStopped refuses a data directory that a daemon uses.
func checkStopped(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, stopping)
	defer cancel()

	for {
		running, err := etcd.Running(dir)

		switch {
		case err != nil:
			return inventory.Errorf(inventory.KindUnavailable, "cannot open the store in %s: %w", dir, err).
				Do("run as root")
		case !running:
			return nil
		}

		select {
		case <-ctx.Done():
			return inventory.Errorf(inventory.KindRefused, "clusterm runs on the data directory %s", filepath.Dir(dir)).
				Do("stop it: systemctl stop clusterm")
		case <-time.After(stopping / 20):
		}
	}
}

// check reads the whole backup, and refuses one that cannot be restored here. It returns the URLs of the instances in
// the backup.
func (o Options) check() (h backup.Header, members []string, err error) {
	var (
		last           string
		records, bytes int64
	)

	end, err := o.scan(func(found backup.Header) error { h = found; return o.accept(h) }, func(part []byte) error {
		plain, err := record.Expand(part)
		if err != nil {
			return inventory.Errorf(inventory.KindInvalid, "the backup is damaged: %w", err).Do("use another backup")
		}

		return backup.Records(plain, func(key string, value []byte) error {
			if key <= last {
				return inventory.Errorf(inventory.KindInvalid, "the backup is damaged: %q follows %q", key, last).
					Do("use another backup")
			}

			last = key
			records++
			bytes += int64(len(key) + len(value))

			if id, is := strings.CutPrefix(key, "v/"+instance.Kind.Path("")); is {
				// One that cannot be read is not restored either.
				if m, err := instance.Kind.Decode(id, value, 0); err == nil {
					members = append(members, m.Peer)
				}
			}

			return nil
		})
	})
	if err != nil {
		return h, nil, err
	}

	if records != end.Records || bytes != end.Bytes {
		return h, nil, inventory.Errorf(
			inventory.KindInvalid, "the backup is damaged: it has %d records of %d", records, end.Records,
		).Do("use another backup")
	}

	o.Say("backup of manager %s, made by clusterm %s at %s: %s, whole", h.Manager, h.Version,
		h.Time.Format(time.RFC3339), inventory.Count(records, "record", "records"))

	return h, members, nil
}

func (o Options) scan(begin func(backup.Header) error, take func([]byte) error) (backup.Trailer, error) {
	file, err := os.Open(o.File)
	if err != nil {
		return backup.Trailer{}, inventory.Errorf(inventory.KindInvalid, "the backup cannot be read: %w", err)
	}
	defer file.Close()

	return backup.Scan(file, begin, take)
}

// accept refuses a backup by its header.
func (o Options) accept(h backup.Header) error {
	switch {
	case !etcd.Readable(h.Schema):
		return inventory.Errorf(inventory.KindRefused,
			"the records of the backup have version %.20q, and this clusterm supports version %s",
			h.Schema, etcd.Schema).
			Do("use the version of clusterm that made the backup, %.40s, or a later one", h.Version)
	case o.Own != "" && h.Manager != o.Own && h.Manager != o.Manager:
		return inventory.Errorf(inventory.KindRefused,
			"the backup is of the manager %.40q, and the data directory belongs to the manager %s", h.Manager, o.Own).
			Do("name a backup of this manager; if this host is to become the other one, add --manager %.40s", h.Manager)
	case h.SecretsKey != "" && !o.WithoutSecrets && !o.Secrets.Ring().Has(h.SecretsKey):
		return inventory.Errorf(inventory.KindRefused,
			"the secrets in the backup need the key %.40s, which is not in the key file of this host", h.SecretsKey).
			Do("put the copy of secrets.key from the time of the backup into the data directory; if the key is lost, " +
				"add --without-secrets, and set the secrets anew")
	}

	return nil
}

// intoEmbedded fills a new directory, and puts it in the place of the store. It returns the URLs of the other instances
// of the former store.
func (o Options) intoEmbedded(ctx context.Context, h backup.Header) (others []string, err error) {
	dir, filling := o.Server.Dir, etcd.RestoringDir(o.Server.Dir)

	// What an interrupted restore left is of no use.
	if err := os.RemoveAll(filling); err != nil {
		return nil, err
	}

	present, others, err := o.surveyEmbedded(ctx)
	if err != nil {
		return nil, err
	}

	// A daemon that starts from here on refuses, and one that has started meanwhile is seen.
	if err := os.Mkdir(filling, 0o700); err != nil {
		return nil, err
	}

	whole := false

	defer func() {
		if !whole {
			err = errors.Join(err, os.RemoveAll(filling))
		}
	}()

	if err := checkStopped(ctx, dir); err != nil {
		return nil, err
	}

	server := o.Server
	server.Dir, server.MustExist = filling, false

	fill := func(client *etcd.Client) error { return o.fill(ctx, client, h, present) }
	if err := o.with(ctx, server, fill); err != nil {
		return nil, err
	}

	if _, err := os.Lstat(dir); err == nil {
		aside := dir + "." + time.Now().UTC().Format("20060102T150405Z")
		if err := localfile.Rename(dir, aside); err != nil {
			return nil, err
		}

		if present.Records > 0 {
			o.Say("the former store is kept in %s", aside)
		}
	}

	whole = true

	return others, localfile.Rename(filling, dir)
}

// with runs an embedded etcd while do works with it.
func (o Options) with(ctx context.Context, so etcd.ServerOptions, do func(*etcd.Client) error) (err error) {
	server, err := etcd.StartServer(ctx, so)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()

	client, err := server.Dial(ctx, etcd.Keys(etcd.DefaultPrefix))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()

	return do(client)
}

// surveyEmbedded returns what the embedded store has, and the URLs of the other instances that it belongs to. It
// refuses to replace records unless that is wanted, and those of one of several instances while another one is alive.
func (o Options) surveyEmbedded(ctx context.Context) (p store.Present, others []string, err error) {
	own, others, err := describedOthers(o.Server.Dir)
	if err == nil {
		err = checkLost(ctx, others)
	}

	switch {
	case err != nil:
		return p, nil, err
	case len(others) > 0:
		// Without the others it has no quorum, so its records cannot be read.
		p.Records = 1
		return p, others, o.mayReplaceOne(others)
	case errors.Is(etcd.Inspect(o.Server.Dir), etcd.ErrNoData):
		return p, nil, nil
	}

	server := o.Server
	server.MustExist = true

	err = o.with(ctx, server, func(client *etcd.Client) (err error) {
		if p, err = store.Survey(ctx, client); err == nil {
			others, err = listedOthers(ctx, client, own)
		}
		return err
	})

	if err == nil && len(others) > 0 {
		if err := checkLost(ctx, others); err != nil {
			return p, nil, err
		}
		return p, others, o.mayReplaceOne(others)
	}

	switch {
	case o.Replace: // also one that cannot be read
		p.Records = max(p.Records, 1)
		return p, nil, nil
	case err != nil:
		return p, nil, inventory.Errorf(
			inventory.KindRefused, "there is a store already, which cannot be read: %w", err,
		).
			Do("put the backup in its place: clusterm restore --replace %s; the former store is kept", o.File)
	case p.Records > 0:
		return p, nil, o.notEmpty(p, o.Server.Dir, "the former store is kept")
	}

	return p, nil, nil
}

func (o Options) notEmpty(p store.Present, where, fate string) error {
	return inventory.Errorf(inventory.KindRefused, "the store in %s has %s already", where,
		inventory.Count(p.Records, "record", "records")).
		Do("put the backup in its place: clusterm restore --replace %s; %s", o.File, fate)
}

// intoExisting replaces what is below the prefix of an existing etcd.
func (o Options) intoExisting(ctx context.Context, h backup.Header) (err error) {
	client, err := etcd.DialToRestore(ctx, *o.Existing, o.Logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()

	present, err := store.Survey(ctx, client)

	switch {
	case err != nil:
		return err
	case len(present.Instances) > 0:
		return inventory.Errorf(inventory.KindRefused, "clusterm runs below %s of etcd, on %s", o.Existing.Prefix,
			strings.Join(present.Instances, ", ")).
			Do("stop it on every host (systemctl stop clusterm), and wait 20 s if one was killed")
	case present.Records > 0 && !present.Restoring && !o.Replace:
		return o.notEmpty(present, o.Existing.Prefix+" of etcd", "the former records are removed")
	}

	return o.fill(ctx, client, h, present)
}

// fill replaces the records of a store, and ends with the version of the data.
func (o Options) fill(
	ctx context.Context, client *etcd.Client, h backup.Header, present store.Present,
) (err error) {
	now := time.Now().UTC()
	from := state.Restored{At: now, Backup: h.Time, Revision: h.Revision}
	epoch := state.Epoch{Number: state.NextEpoch(now, h.Epoch, present.Epoch), Restored: &from}

	if err := store.BeginRestore(ctx, client, epoch); err != nil {
		return err
	}

	file, err := os.Open(o.File)
	if err != nil {
		return err
	}
	defer file.Close()

	if err := store.RestoreRecords(ctx, client, io.Reader(file)); err != nil {
		return fmt.Errorf("the restore did not come to its end: %w", err)
	}

	s, err := store.Open(ctx, client, o.Kinds, o.Secrets, o.Logger, store.StaleAfter)
	if err != nil {
		return err
	}

	err = o.settle(ctx, s, from)
	s.Close()

	if err != nil {
		return err
	}

	o.Say("restored; the epoch of the store is %d", epoch.Number)

	return store.FinishRestore(ctx, client, h.Schema)
}

// settle makes the records those of a manager that waits for an operator. It may be repeated.
func (o Options) settle(ctx context.Context, s *store.Store, from state.Restored) error {
	trail := audit.New(audit.Options{
		Store: s, Instance: "clusterm restore", Leads: func() bool { return false }, Logger: o.Logger,
	})
	defer trail.Close(ctx)

	return engine.New(engine.Options{
		State: s, Store: s, Records: s, Results: s, Metrics: metrics.NewRegistry(), Logger: o.Logger,
		Audit: audit.Auditor{Trail: trail, Log: o.Logger},
	}).Settle(ctx, from)
}
