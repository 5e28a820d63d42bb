// SPDX-License-Identifier: Apache-2.0

// Package tool works on the store of a manager beside its daemon or without it: it checks the records, makes room, and
// removes what cannot be read.
package tool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/audit"
	store "github.com/contiv/cluster/management/etcd"
	"github.com/contiv/cluster/management/record"
)

// Tool works on the store of a configuration, beside its daemon or without it.
// Close it after use.
type Tool struct {
	Client *etcd.Client
	server *etcd.Server // nil: a daemon or others run the servers
	where  string
	others bool // the server is one of several, which run
	kinds  []record.Any
	fits   func(overlay map[string]any) error
}

// Options are the parameters of a Tool.
type Options struct {
	// Server describes the embedded etcd, unless an Existing one is used.
	Server   etcd.ServerOptions
	Existing *etcd.Existing
	// Kinds are the kinds of record in the store.
	Kinds []record.Any
	// Fits returns the reason why settings that were set at run time do not fit, or nil.
	Fits func(overlay map[string]any) error
}

// Open connects to the store. If no daemon uses the embedded one, it checks
// the files and runs the server until Close.
func Open(ctx context.Context, o Options) (*Tool, error) {
	t, dir := &Tool{kinds: o.Kinds, fits: o.Fits}, o.Server.Dir

	if e := o.Existing; e != nil {
		var err error
		t.where = fmt.Sprintf("%s of %s", e.Prefix, strings.Join(e.Endpoints, ", "))
		t.Client, err = etcd.DialExisting(ctx, *e, o.Server.Log)
		return t, err
	}

	running, err := etcd.Running(dir)
	if err != nil {
		return nil, inventory.Errorf(inventory.KindUnavailable, "cannot open the store in %s: %w", dir, err).
			Do("run as root")
	}

	if running {
		t.where = dir + ", served by the running daemon"
		t.Client, err = etcd.Dial(ctx, etcd.Keys(etcd.DefaultPrefix), etcd.Endpoint(dir))
		return t, err
	}

	// Before anything is created in a directory without a store.
	if err := etcd.Inspect(dir); err != nil {
		return nil, err
	}

	o.Server.MustExist = true
	if t.server, err = etcd.StartServer(ctx, o.Server); err != nil {
		return nil, err
	}

	t.where = dir + ", no daemon runs"
	if m, err := etcd.ReadMember(dir); err == nil && len(m.Endpoints) > 0 {
		t.others = true
		t.where += " here; it is one of several members, and this is the store of all of them"
	}

	if t.Client, err = t.server.Dial(ctx, etcd.Keys(etcd.DefaultPrefix)); err != nil {
		return nil, errors.Join(err, t.server.Close())
	}

	return t, nil
}

// Settings returns what was set at run time.
func (t *Tool) Settings(ctx context.Context) (map[string]any, error) {
	return store.StoredSettings(ctx, t.Client)
}

// Trail returns the audit trail as it is, with the entries that no daemon has sealed. It changes nothing.
func (t *Tool) Trail(ctx context.Context) (audit.Reader, error) {
	return audit.Snapshot(ctx, store.NewAuditReader(t.Client))
}

// Close ends the connection, and the server if this tool runs it.
func (t *Tool) Close() error {
	err := t.Client.Close()
	if t.server != nil {
		err = errors.Join(err, t.server.Close())
	}
	return err
}

// Report is the result of a check.
type Report struct {
	Where      string // the place of the store
	Spaces     []etcd.Space
	Records    int
	Unreadable []store.Unreadable
	// Settings is the reason why the settings that were set at run time do not fit this version or
	// the configuration file, or nil.
	Settings error
}

// Problem returns the reason why the store needs attention, or nil.
func (r Report) Problem() error {
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
func (t *Tool) Check(ctx context.Context) (Report, error) {
	r := Report{Where: t.where, Spaces: t.Client.Spaces(ctx)}

	var err error
	if r.Records, r.Unreadable, err = store.CheckRecords(ctx, t.Client, t.kinds); err != nil {
		return r, err
	}

	overlay, err := t.Settings(ctx)
	if err == nil {
		r.Settings = t.fits(overlay)
	}

	return r, err
}

// Spaces returns the state of the databases.
func (t *Tool) Spaces(ctx context.Context) []etcd.Space { return t.Client.Spaces(ctx) }

// Compact discards all old revisions.
func (t *Tool) Compact(ctx context.Context) error {
	newest := int64(0)
	for _, s := range t.Client.Spaces(ctx) {
		newest = max(newest, s.Revision)
	}

	return t.Client.CompactTo(ctx, newest)
}

// Defragment gives free pages back to the file system, one member at a time. Beside other instances it is refused
// without a daemon: it would stop their members, too, while they work.
func (t *Tool) Defragment(ctx context.Context) error {
	if t.others {
		return inventory.Errorf(inventory.KindRefused,
			"this instance is stopped, and the other members of its store are not").
			Do("start clusterm: the leader defragments one member after the other by itself; with clusterm running, " +
				"this command defragments the member of this host")
	}

	return t.Client.DefragmentAll(ctx)
}

// Disarm clears the alarms of etcd and returns those that were raised.
func (t *Tool) Disarm(ctx context.Context) ([]etcd.Alarm, error) {
	var cleared []etcd.Alarm
	for _, alarm := range etcd.Alarms {
		raised := func(s etcd.Space) bool { return s.Raised(alarm) }
		if !slices.ContainsFunc(t.Client.Spaces(ctx), raised) {
			continue
		}

		if err := t.Client.Disarm(ctx, alarm); err != nil {
			return cleared, err
		}

		cleared = append(cleared, alarm)
	}

	return cleared, nil
}

// Remove removes an unreadable record by its key below the prefix.
func (t *Tool) Remove(ctx context.Context, key string) error {
	return store.RemoveUnreadable(ctx, t.Client, t.kinds, key)
}
