// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/localfile"
	"github.com/contiv/cluster/monitor"
	"github.com/contiv/cluster/monitor/serf"
)

// Options describe a monitor.
type Options struct {
	Config Config
	Timing serf.Timing    // zero: LAN
	Log    *logrus.Logger // required; gets the level of the configuration
}

// Monitor is a running monitor.
type Monitor struct {
	serf.Source

	unlock func()
}

// Start runs a monitor until Leave. It does not wait for a manager, nor for an
// existing serf agent to answer. A data directory in use and an agent that cannot
// start are errors. ctx bounds the start only.
func Start(ctx context.Context, o Options) (*Monitor, error) {
	level, err := logrus.ParseLevel(o.Config.LogLevel)
	if err != nil {
		return nil, err
	}
	o.Log.SetLevel(level)

	unlock, err := lock(o.Config.DataDir)
	if err != nil {
		return nil, err
	}

	source, err := o.start(ctx)
	if err != nil {
		unlock()
		return nil, err
	}

	return &Monitor{Source: source, unlock: unlock}, nil
}

// Leave stops the monitor: its own agent leaves the gossip, an existing one goes
// on. The managers keep the last report.
func (m *Monitor) Leave(ctx context.Context) error {
	defer m.unlock()
	return m.Source.Leave(ctx)
}

// Run is the whole of `clusterm monitor`: it starts a monitor, calls ready, which
// may be nil, and leaves when ctx is done.
func Run(ctx context.Context, o Options, ready func()) error {
	start := func(ctx context.Context) (serf.Source, error) {
		m, err := Start(ctx, o)
		if err != nil {
			return nil, err
		}
		return m, nil
	}

	return serf.Run(ctx, start, o.Log, ready)
}

// start starts the source of membership with one reporter per manager.
func (o Options) start(ctx context.Context) (serf.Source, error) {
	c := o.Config

	reported, err := openReported(filepath.Join(c.DataDir, "reported.json"), c.urls())
	if err != nil {
		return nil, err
	}

	var sinks []monitor.Sink
	for _, m := range c.ReportTo {
		manager, err := m.connect()
		if err != nil {
			return nil, err
		}
		sinks = append(sinks, newReporter(manager, m.URL, c.observer(), reported, o.Log.WithField("manager", m.URL)))
	}

	if c.Gossip.RPC != "" {
		r, err := serf.WatchRemote(ctx, serf.RemoteOptions{
			Addr: c.Gossip.RPC, AuthFile: c.Gossip.RPCAuthFile,
			Sinks: sinks, Before: reported.names(),
			Timing: o.Timing, Log: o.Log,
		})
		if err != nil {
			return nil, err
		}
		return r, nil
	}

	a, err := serf.Start(ctx, serf.Options{
		Bind: c.Gossip.Bind, Advertise: c.Gossip.Advertise, KeyFile: c.Gossip.KeyFile, Join: c.Gossip.Join,
		DataDir: filepath.Join(c.DataDir, "gossip"),
		Sinks:   sinks,
		Timing:  o.Timing, Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	return a, nil
}

// lock takes the data directory for this process.
func lock(dir string) (unlock func(), err error) {
	unlock, err = localfile.Lock(dir, "")
	switch {
	case errors.Is(err, localfile.ErrLocked):
		return nil, inventory.Errorf(
			inventory.KindUnavailable, "the data directory %s is in use by another clusterm monitor", dir,
		).Do("stop that one, or configure another data_dir")
	case err != nil:
		return nil, inventory.Errorf(inventory.KindUnavailable, "cannot use the data directory: %w", err).
			Do("run as root, or configure another data_dir")
	}

	return unlock, nil
}
