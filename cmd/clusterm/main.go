// SPDX-License-Identifier: Apache-2.0

// Command clusterm is the cluster manager's daemon, the agent that runs on every
// node, and the monitor that reports to managers elsewhere. This file translates: flags to options, signals to a context,
// errors to an exit status.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/sirupsen/logrus"
	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/configuration/ansible"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/daemon"
	"github.com/contiv/cluster/monitor/report"
	"github.com/contiv/cluster/monitor/serf"
)

// Set by the Makefile through -ldflags.
var (
	version = "devel"
	commit  = ""
)

const (
	defaultConfig = "/etc/clusterm/clusterm.yaml"
	defaultAgent  = "/etc/clusterm/agent.yaml"
	defaultWatch  = "/etc/clusterm/monitor.yaml"
)

// exitUsage is the status of a command line that makes no sense.
const exitUsage = 2

func main() {
	// The first signal stops; a second one ends the process at once.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args))
}

func run(ctx context.Context, args []string) int {
	status := 0
	set := func(code int) error { status = code; return nil }
	config := &cli.StringFlag{
		Name:    "config",
		Aliases: []string{"c"},
		Usage:   "configuration `FILE` (default: " + defaultConfig + " if it exists, else every key at its default)",
	}

	root := &cli.Command{
		Name:      "clusterm",
		Usage:     "take machines from \"a host appeared\" to \"a host in service\", and keep them there",
		UsageText: "clusterm [--config FILE]\n   clusterm agent [--config FILE]\n   clusterm monitor [--config FILE]\n   clusterm check [--config FILE]\n   clusterm example > clusterm.yaml",
		Description: "Without a command it is the manager's daemon: it serves the API, runs jobs and takes part in the gossip until SIGTERM.\n" +
			"SIGHUP has it read its configuration file again. clusterctl is its command line.",
		Version:     version,
		HideVersion: true,
		Flags:       []cli.Flag{config},
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.Args().Present() {
				return usage(fmt.Errorf("there is no command %q", c.Args().First()))
			}

			return serve(ctx, c.String("config"))
		},
		Commands: []*cli.Command{
			{
				Name:      "agent",
				Usage:     "take part in the gossip as a node; runs on every host",
				UsageText: "clusterm agent [--config FILE]",
				Flags: []cli.Flag{
					&cli.StringFlag{
						Name:    "config",
						Aliases: []string{"c"},
						Value:   defaultAgent,
						Usage:   "configuration `FILE`",
					},
				},
				Action: func(ctx context.Context, c *cli.Command) error {
					cfg, err := serf.LoadAgentConfig(c.String("config"))
					if err != nil {
						return err
					}

					return serf.RunAgent(ctx, cfg, logger(), ready)
				},
			},
			{
				Name:      "monitor",
				Usage:     "say to managers elsewhere who is there",
				UsageText: "clusterm monitor [--config FILE]\n   clusterm monitor --check [--config FILE]\n   clusterm monitor --example > " + defaultWatch,
				Description: "It watches a serf agent on this host, or has an agent of its own join the gossip, and reports what it sees to\n" +
					"POST /monitor/event of the managers in report_to, until SIGTERM. Those need no gossip (gossip: off).\n\n" +
					"Report what the serf agent on this host sees to the manager on HOST, with an ssh tunnel between them:\n\n" +
					"   ssh -N -L 127.0.0.1:9007:127.0.0.1:9007 root@HOST &      # there: plain_http: 127.0.0.1:9007\n" +
					"   printf 'report_to: [\"http://127.0.0.1:9007\"]\\ngossip: {rpc: \"127.0.0.1:7373\"}\\n' > " + defaultWatch + "\n" +
					"   clusterm monitor\n\n" +
					"The same with an agent of its own:\n\n" +
					"   gossip: {key_file: /etc/clusterm/gossip.key, join: [\"192.0.2.10:7946\"]}",
				Flags: []cli.Flag{
					&cli.StringFlag{
						Name:    "config",
						Aliases: []string{"c"},
						Value:   defaultWatch,
						Usage:   "configuration `FILE`",
					},
					&cli.BoolFlag{Name: "check", Usage: "check the configuration and do nothing else"},
					&cli.BoolFlag{Name: "example", Usage: "print a configuration file with every key and its meaning"},
				},
				Action: func(ctx context.Context, c *cli.Command) error {
					if c.Bool("example") {
						_, err := os.Stdout.Write(report.Example)
						return err
					}

					cfg, err := report.Load(c.String("config"))
					if err != nil {
						return err
					}

					if c.Bool("check") {
						fmt.Fprintln(os.Stderr, "ok:", c.String("config"))
						return nil
					}

					return report.Run(ctx, report.Options{Config: cfg, Log: logger()}, ready)
				},
			},
			{
				Name: "check", Usage: "check a configuration file and change nothing",
				UsageText: "clusterm check --config /etc/clusterm/clusterm.yaml", Flags: []cli.Flag{config},
				Action: func(ctx context.Context, c *cli.Command) error {
					path := daemon.Options{ConfigPath: c.String("config"), UsualPath: defaultConfig}.Path()
					if err := daemon.CheckFile(ctx, path); err != nil {
						return err
					}

					fmt.Fprintln(os.Stderr, "ok:", cmp.Or(path, "no file, every key at its default"))

					return nil
				},
			},
			{
				Name: "example", Usage: "print a configuration file with every key, its default and its meaning",
				UsageText: "clusterm example > /etc/clusterm/clusterm.yaml",
				Action: func(context.Context, *cli.Command) error {
					_, err := os.Stdout.Write(daemon.Example)
					return err
				},
			},
			{
				Name: "version", Usage: "print the version",
				Action: func(context.Context, *cli.Command) error {
					_, err := fmt.Printf("clusterm %s %s (etcd %s)\n", version, commit, etcd.Version)
					return err
				},
			},
			{
				Name: "runner", Hidden: true, Usage: "one run of ansible-playbook; started by the daemon",
				Action: func(_ context.Context, c *cli.Command) error { return set(ansible.Main(c.Args().First())) },
			},
			{
				Name: "etcd", Hidden: true, Usage: "the etcd inside; started by the daemon",
				Action: func(_ context.Context, c *cli.Command) error { return set(etcd.Main(c.Args().First())) },
			},
		},
		OnUsageError:   func(_ context.Context, _ *cli.Command, err error, _ bool) error { return usage(err) },
		ExitErrHandler: func(context.Context, *cli.Command, error) {},
		Writer:         os.Stdout,
		ErrWriter:      io.Discard,
	}
	for _, c := range root.Commands {
		c.OnUsageError = root.OnUsageError
		if !c.Hidden {
			c.Action = alone(c.Action)
		}
	}

	if len(args) > 1 && (args[1] == "runner" || args[1] == "etcd") {
		// These outlive signals that are meant for the daemon: they handle their own.
		ctx = context.WithoutCancel(ctx)
	}

	if err := root.Run(ctx, args); err != nil {
		printError(err)

		if _, ok := errors.AsType[usageError](err); ok {
			return exitUsage
		}

		return 1
	}

	return status
}

// alone refuses arguments: 'check FILE' must not check another file.
func alone(action cli.ActionFunc) cli.ActionFunc {
	return func(ctx context.Context, c *cli.Command) error {
		if c.Args().Present() {
			return usage(fmt.Errorf("%s takes no argument %q; a file is given with --config", c.Name, c.Args().First()))
		}

		return action(ctx, c)
	}
}

type usageError struct{ error }

func usage(err error) error { return usageError{err} }

// printError writes the error, and on a second line the remedy.
func printError(err error) {
	if e, ok := errors.AsType[*inventory.Error](err); ok && e.Remedy != "" {
		fmt.Fprintf(os.Stderr, "clusterm: %s\n  %s\n", e.Message, e.Remedy)
		return
	}

	fmt.Fprintf(os.Stderr, "clusterm: %v\n", err)

	if _, ok := errors.AsType[usageError](err); ok {
		fmt.Fprintln(os.Stderr, "  see clusterm --help")
	}
}

func logger() *logrus.Logger {
	log := logrus.New()
	log.SetFormatter(
		&logrus.TextFormatter{
			DisableColors:    true,
			FullTimestamp:    os.Getenv("JOURNAL_STREAM") == "",
			DisableTimestamp: os.Getenv("JOURNAL_STREAM") != "",
		},
	)

	return log
}

// ready reports to systemd that the service has started.
func ready() { notify(sd.SdNotifyReady) }

// notify reports a state to systemd. A process that systemd did not start has
// nobody to notify, and that is no error.
func notify(state string) { _, _ = sd.SdNotify(false, state) }

// serve is the daemon. An empty path is the usual one.
func serve(ctx context.Context, path string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}

	d, err := daemon.New(daemon.Options{
		ConfigPath: path,
		UsualPath:  defaultConfig,
		Command:    []string{self},
		Logger:     logger(),
		Version:    api.Version{Version: version, Commit: commit},
		Ready:      ready,
	})
	if err != nil {
		return err
	}

	hup := make(chan os.Signal, 1)

	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	defer notify(sd.SdNotifyStopping)

	return d.Run(ctx, hup)
}
