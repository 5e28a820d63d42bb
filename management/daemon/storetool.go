// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	store "github.com/contiv/cluster/management/etcd"
	"github.com/contiv/cluster/management/setting"
	"github.com/contiv/cluster/management/step/playbook/program"
)

// StoreTool works on the store of a configuration, beside its daemon or without it.
// Close it after use.
type StoreTool struct {
	client *etcd.Client
	server *etcd.Server // nil: a daemon or others run the servers
	where  string
	fits   func(overlay map[string]any) error
}

// OpenStoreTool connects to the store. If no daemon uses the embedded one, it checks
// the files and runs the server until Close.
func OpenStoreTool(ctx context.Context, o Options) (*StoreTool, error) {
	file, err := setting.Load(o.Path(), adapters{})
	if err != nil {
		return nil, err
	}

	if file.Etcd.Used() {
		client, err := etcd.DialExisting(ctx, etcd.Existing(file.Etcd), o.Logger)
		where := fmt.Sprintf("%s of %s", file.Etcd.Prefix, strings.Join(file.Etcd.Endpoints, ", "))

		return &StoreTool{client: client, where: where, fits: file.Fits}, err
	}

	t, dir := &StoreTool{fits: file.Fits}, filepath.Join(file.DataDir, "etcd")

	running, err := etcd.Running(dir)
	if err != nil {
		return nil, inventory.Errorf(inventory.KindUnavailable, "cannot open the store in %s: %w", dir, err).
			Do("run as root")
	}

	if running {
		t.where = dir + ", served by the running daemon"
		t.client, err = etcd.Dial(ctx, etcd.Keys(etcd.DefaultPrefix), etcd.Endpoint(dir))

		return t, err
	}

	// Before anything is created in a directory without a store.
	if err := etcd.Inspect(dir); err != nil {
		return nil, err
	}

	so := etcd.ServerOptions{Dir: dir, MustExist: true, Log: o.Logger, NoSync: o.InProcess, Quota: o.Quota}
	if !o.InProcess {
		so.Command = slices.Concat(o.Command, []string{"etcd"})
	}

	if t.server, err = etcd.StartServer(ctx, so); err != nil {
		return nil, err
	}

	t.where = dir + ", no daemon runs"
	if t.client, err = t.server.Dial(ctx, etcd.Keys(etcd.DefaultPrefix)); err != nil {
		return nil, errors.Join(err, t.server.Close())
	}

	return t, nil
}

// Close ends the connection, and the server if this tool runs it.
func (t *StoreTool) Close() error {
	err := t.client.Close()
	if t.server != nil {
		err = errors.Join(err, t.server.Close())
	}

	return err
}

// StoreReport is the result of a check.
type StoreReport struct {
	Where      string // the place of the store
	Spaces     []etcd.Space
	Records    int
	Unreadable []store.Unreadable
	// Settings is the reason why the settings that were set at run time do not fit this version or
	// the configuration file, or nil.
	Settings error
}

// Problem returns the reason why the store needs attention, or nil.
func (r StoreReport) Problem() error {
	var problems []string
	for _, s := range r.Spaces {
		switch {
		case s.Err != nil:
			problems = append(problems, fmt.Sprintf("%s does not answer: %v", s.Endpoint, s.Err))
		case len(s.Alarms) > 0:
			problems = append(problems, fmt.Sprintf("etcd refuses every change (alarm %s)", s.Alarms[0]))
		case s.Share() >= etcd.CheckShare:
			problems = append(problems, "the store is almost full")
		}
	}

	if n := len(r.Unreadable); n > 0 {
		problems = append(problems, fmt.Sprintf("%d records cannot be read", n))
	}

	if r.Settings != nil {
		problems = append(problems, "settings that were set at run time do not fit")
	}

	if len(problems) == 0 {
		return nil
	}

	return errors.New(strings.Join(problems, "; "))
}

// Check reads the state of the databases, all records and the settings. It changes nothing.
func (t *StoreTool) Check(ctx context.Context) (StoreReport, error) {
	r := StoreReport{Where: t.where, Spaces: t.client.Spaces(ctx)}

	var err error
	if r.Records, r.Unreadable, err = store.CheckRecords(ctx, t.client, kinds); err != nil {
		return r, err
	}

	overlay, err := store.StoredSettings(ctx, t.client)
	if err == nil {
		r.Settings = t.fits(overlay)
	}

	return r, err
}

// Spaces returns the state of the databases.
func (t *StoreTool) Spaces(ctx context.Context) []etcd.Space { return t.client.Spaces(ctx) }

// Compact discards all old revisions.
func (t *StoreTool) Compact(ctx context.Context) error {
	newest := int64(0)
	for _, s := range t.client.Spaces(ctx) {
		newest = max(newest, s.Revision)
	}

	return t.client.CompactTo(ctx, newest)
}

// Defragment gives free pages back to the file system, one member at a time.
func (t *StoreTool) Defragment(ctx context.Context) error { return t.client.DefragmentAll(ctx) }

// Disarm clears the alarms of etcd and returns those that were raised.
func (t *StoreTool) Disarm(ctx context.Context) ([]etcd.Alarm, error) {
	var cleared []etcd.Alarm
	for _, alarm := range etcd.Alarms {
		raised := func(s etcd.Space) bool { return s.Raised(alarm) }
		if !slices.ContainsFunc(t.client.Spaces(ctx), raised) {
			continue
		}

		if err := t.client.Disarm(ctx, alarm); err != nil {
			return cleared, err
		}

		cleared = append(cleared, alarm)
	}

	return cleared, nil
}

// Remove removes an unreadable record by its key below the prefix.
func (t *StoreTool) Remove(ctx context.Context, key string) error {
	return store.RemoveUnreadable(ctx, t.client, kinds, key)
}

// CheckPlaybooks checks a folder of playbooks for the configuration in a file; see program.CheckFolder.
//
// Groups and other settings that were set at run time count, as long as a manager runs on the host.
func CheckPlaybooks(ctx context.Context, configPath, folder string) (program.Report, error) {
	f, err := setting.Load(configPath, adapters{})
	if err != nil {
		return program.Report{}, err
	}

	config, unread := atRunTime(ctx, configPath, f)

	return program.CheckFolder(ctx, config, folder, unread)
}

// atRunTime returns the configuration of the file with what was set at run time, if a manager runs. The
// error is why that cannot be read; the configuration is that of the file then.
func atRunTime(ctx context.Context, configPath string, f setting.File) (setting.Config, error) {
	overlay, err := storedSettings(ctx, configPath, f)
	if err != nil {
		return f.Config, err
	}

	config, err := f.With(overlay)
	if err != nil {
		return f.Config, err
	}

	return config, nil
}

// storedSettings returns what was set at run time, if a manager runs.
func storedSettings(ctx context.Context, configPath string, f setting.File) (map[string]any, error) {
	const patience = 5 * time.Second

	if !f.Etcd.Used() {
		running, err := etcd.Running(filepath.Join(f.DataDir, "etcd"))
		if err != nil || !running {
			return nil, err
		}
	}

	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()

	log := logrus.New()
	log.SetOutput(io.Discard)

	t, err := OpenStoreTool(ctx, Options{ConfigPath: configPath, Logger: log})
	if err != nil {
		return nil, err
	}

	overlay, err := store.StoredSettings(ctx, t.client)

	return overlay, errors.Join(err, t.Close())
}
