// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	_ "embed" // for the example file
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/monitor"
	"github.com/contiv/cluster/monitor/serf"
)

// MonitorExample is a configuration file of a monitor, with what each key means.
//
//go:embed monitor.yaml
var MonitorExample []byte

// MonitorConfig is the configuration of `clusterm monitor`. The example file
// says what each key means.
type MonitorConfig struct {
	ReportTo []string `yaml:"report_to"`
	DataDir  string   `yaml:"data_dir"`
	Gossip   Gossip   `yaml:"gossip"`
	LogLevel string   `yaml:"log_level"`
}

// LoadMonitorConfig reads a configuration file.
func LoadMonitorConfig(path string) (MonitorConfig, error) {
	c := MonitorConfig{DataDir: "/var/lib/clusterm-monitor", LogLevel: "info"}

	const remedy = "'clusterm monitor --example' prints every key with its meaning"
	if _, err := load(path, &c, remedy); err != nil {
		return MonitorConfig{}, err
	}

	if c.Gossip.Bind == "" && c.Gossip.RPC == "" {
		c.Gossip.Bind = Default().Gossip.Bind
	}

	if err := c.Check(); err != nil {
		return MonitorConfig{}, wrong(path, err, remedy)
	}

	return c, nil
}

// Check refuses values that make no sense. It looks at nothing outside c.
func (c *MonitorConfig) Check() error {
	bad := func(key, format string, args ...any) error {
		return inventory.Errorf(inventory.KindInvalid, "%s: %w", key, fmt.Errorf(format, args...))
	}
	if len(c.ReportTo) == 0 {
		return bad(
			"report_to",
			"it is empty; name the manager to report to, such as unix:///run/clusterm/clusterm.sock",
		)
	}

	for i, u := range c.ReportTo {
		if slices.Contains(c.ReportTo[:i], u) {
			return bad("report_to", "%s is there twice", u)
		}

		if err := checkTarget(u); err != nil {
			return bad("report_to", "%w", err)
		}
	}

	if !filepath.IsAbs(c.DataDir) {
		return bad("data_dir", "%q is not an absolute path", c.DataDir)
	}

	switch g := c.Gossip; {
	case g.Off:
		return bad("gossip", "a monitor without it sees nobody")
	case g.RPC == "" && g.KeyFile == "":
		return bad(
			"gossip",
			"name the rpc of a serf agent on this host, or the key_file for an agent of the monitor's own, and whom to join",
		)
	case g.RPC == "" && len(g.Join) == 0:
		return bad("gossip.join", "it is empty; name members for the monitor's agent to join")
	case g.RPC != "" && g.KeyFile != "":
		return bad(
			"gossip.key_file",
			"gossip.rpc names an existing serf agent, which has the key already; leave one of them out",
		)
	case g.RPC != "" && len(g.Join) > 0:
		return bad(
			"gossip.join",
			"gossip.rpc names an existing serf agent, which joins by itself; leave one of them out",
		)
	}

	if err := c.Gossip.check(); err != nil {
		return err
	}

	if _, err := logrus.ParseLevel(c.LogLevel); err != nil {
		return bad("log_level", "%q is not error, warning, info or debug", c.LogLevel)
	}

	return nil
}

// checkTarget refuses what reports cannot be sent to, or must not be.
func checkTarget(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "unix" && u.Scheme != "http" {
		return fmt.Errorf("%q is neither unix:///PATH nor http://ADDRESS:PORT", s)
	}

	if u.Scheme == "http" {
		ip, err := netip.ParseAddr(u.Hostname())
		if u.Hostname() != "localhost" && (err != nil || !ip.IsLoopback()) {
			return fmt.Errorf(
				"%s is not on this host, and nothing would protect what is sent; use a tunnel: ssh -N -L 127.0.0.1:9007:127.0.0.1:9007 root@HOST, and http://127.0.0.1:9007",
				s,
			)
		}
	}

	_, err = client.New(client.Options{URL: s})

	return err
}

// RunMonitor is the whole of `clusterm monitor`: it reports until ctx is done.
// ready is called once it watches, whether or not a manager answers; it may be
// nil. It returns early where it cannot begin, or the agent of its own fails.
func RunMonitor(ctx context.Context, c MonitorConfig, log *logrus.Logger, ready func()) error {
	return runMonitor(ctx, c, serf.Timing{}, log, ready)
}

func runMonitor(ctx context.Context, c MonitorConfig, t serf.Timing, log *logrus.Logger, ready func()) error {
	if level, err := logrus.ParseLevel(c.LogLevel); err == nil {
		log.SetLevel(level)
	}

	release, err := takeDir(c.DataDir)
	if err != nil {
		return err
	}
	defer release()

	told, err := openTold(filepath.Join(c.DataDir, "told.json"), c.ReportTo)
	if err != nil {
		return err
	}

	var sinks []monitor.Sink
	for _, target := range c.ReportTo {
		to, err := client.New(client.Options{URL: target, UserAgent: "clusterm-monitor"})
		if err != nil {
			return err
		}

		sinks = append(
			sinks,
			&reporter{
				to:      to,
				target:  target,
				told:    told,
				refused: map[string]string{},
				doubled: map[string]string{},
				log:     log.WithField("manager", target),
			},
		)
	}

	if c.Gossip.RPC != "" {
		r, err := serf.WatchRemote(ctx, serf.RemoteOptions{
			Addr: c.Gossip.RPC, AuthFile: c.Gossip.RPCAuthFile, Sinks: sinks, Before: told.names(), Timing: t, Log: log,
		})
		if err != nil {
			return ended(ctx, err, log)
		}

		if ready != nil {
			ready()
		}

		<-ctx.Done()

		return r.Close()
	}

	a, err := serf.Start(ctx, serf.Options{
		Bind: c.Gossip.Bind, Advertise: c.Gossip.Advertise, KeyFile: c.Gossip.KeyFile, Join: c.Gossip.Join,
		DataDir: filepath.Join(c.DataDir, "gossip"), Sinks: sinks, Timing: t, Log: log,
	})
	if err != nil {
		return ended(ctx, err, log)
	}

	return a.Serve(ctx, ready)
}

// ended is nil where a start did not succeed and the process was told to stop
// meanwhile: then that is no failure.
func ended(ctx context.Context, err error, log logrus.FieldLogger) error {
	if ctx.Err() == nil {
		return err
	}

	if !errors.Is(err, ctx.Err()) {
		log = log.WithError(err) // what it was waiting for
	}

	log.Info("stopped before it had started")

	return nil
}

// takeDir takes a directory for this process, until release is called.
func takeDir(dir string) (release func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, inventory.Errorf(inventory.KindUnavailable, "the data directory %s cannot be made: %w", dir, err).
			Do("run as root, or configure another data_dir")
	}

	f, err := os.Open(dir)
	if err != nil {
		return nil, inventory.Errorf(inventory.KindUnavailable, "the data directory cannot be used: %w", err)
	}

	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()

		return nil, inventory.Errorf(inventory.KindUnavailable, "the data directory %s is in use by another clusterm monitor", dir).
			Do("stop that one, or configure another data_dir")
	}

	return func() {
		// By word: a process that is just being started may share the file still.
		_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
		f.Close()
	}, nil
}
