// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/contiv/cluster/inventory"
)

// Opening describes the store of a daemon.
type Opening struct {
	Server   ServerOptions // of the embedded etcd
	Existing Existing      // used in its place if it has endpoints
	// Traces are those of a former store, outside of it.
	Traces []string
	// AcceptEmpty begins with an empty store although there are traces of a former one.
	AcceptEmpty bool
}

// Opened is a connection to the store of a daemon.
type Opened struct {
	*Client
	Embedded *Server // nil: an existing etcd is used
	close    []func() error
}

// Open connects to the store, and makes one of an empty prefix. It starts the embedded etcd. In an existing store it
// writes nothing. Without records, it refuses to begin if there are traces of a former store.
func Open(ctx context.Context, o Opening) (opened *Opened, err error) {
	c := &Opened{}
	defer func() {
		if err != nil {
			_ = c.Close() // the error is that of the start
		}
	}()

	connect := c.startEmbedded
	if o.Existing.Used() {
		connect = c.dialExisting
	}
	if err := connect(ctx, o); err != nil {
		return nil, err
	}
	c.close = append(c.close, c.Client.Close)

	if !c.Empty() {
		return c, nil
	}

	if len(o.Traces) > 0 {
		where := o.Server.Dir
		if o.Existing.Used() {
			where = "the prefix " + o.Existing.Prefix + " of etcd"
		}
		if !o.AcceptEmpty {
			return nil, o.missing(where)
		}

		o.Server.Log.Warnf("%s contains no records; beginning with an empty store, as asked", where)
	}

	return c, c.Initialize(ctx)
}

// Close ends the connection, and then the embedded etcd.
func (c *Opened) Close() error {
	var errs []error
	for len(c.close) > 0 {
		last := len(c.close) - 1
		errs = append(errs, c.close[last]())
		c.close = c.close[:last]
	}

	return errors.Join(errs...)
}

// dialExisting connects to the configured etcd.
func (c *Opened) dialExisting(ctx context.Context, o Opening) error {
	dir, log := o.Server.Dir, o.Server.Log

	// The embedded etcd would lock the data directory; the other files in it
	// belong to one daemon as well.
	lock, err := LockDir(ctx, dir, log)
	if err != nil {
		return err
	}
	c.close = append(c.close, lock.Close)

	if _, err := os.Stat(o.Server.dataDir()); err == nil {
		log.Warnf("%s has data of the embedded etcd; they are ignored because etcd.endpoints is set", filepath.Dir(dir))
	}

	c.Client, err = DialExisting(ctx, o.Existing, log)

	return err
}

// startEmbedded starts the embedded etcd and connects to it.
func (c *Opened) startEmbedded(ctx context.Context, o Opening) (err error) {
	member, err := o.Server.member()
	if err != nil {
		return err
	}

	// A member that joins gets its data from the others. One that has done so may not begin anew beside them.
	joins := member != nil && len(member.InitialCluster) > 0
	several := member != nil && len(member.Others()) > 0
	o.Server.MustExist = !joins && (several || len(o.Traces) > 0 && !o.AcceptEmpty)

	c.Embedded, err = StartServer(ctx, o.Server)

	switch {
	case errors.Is(err, ErrNoData) && several:
		return lost(o.Server.dataDir())
	case errors.Is(err, ErrNoData):
		return o.missing(o.Server.dataDir())
	case err != nil:
		return err
	}
	c.close = append(c.close, c.Embedded.Close)

	c.Client, err = c.Embedded.Dial(ctx, Keys(DefaultPrefix))

	return err
}

// missing refuses to begin with an empty store.
func (o Opening) missing(where string) error {
	return inventory.Errorf(inventory.KindRefused,
		"the store is missing: %s contains no records, but %s has traces of a former one: %s",
		where, filepath.Dir(o.Server.Dir), strings.Join(o.Traces, ", ")).
		Do("restore a backup: clusterm restore FILE; or, to begin with no nodes and no jobs, run " +
			"clusterm --accept-empty-store once, end it with Ctrl-C, and start the service")
}
