// SPDX-License-Identifier: Apache-2.0

// Command clusterm is the cluster manager's daemon, the agent that runs on every
// node, and the monitor that reports to managers elsewhere. It translates flags
// to options, signals to a context, and errors to an exit status.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/sirupsen/logrus"
	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/configuration/ansible"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
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
	defaultConfig  = "/etc/clusterm/clusterm.yaml"
	defaultAgent   = "/etc/clusterm/agent.yaml"
	defaultMonitor = "/etc/clusterm/monitor.yaml"
)

// The exit statuses besides 0 and 1. The second is EX_CONFIG of sysexits(3).
const (
	exitUsage  = 2  // an invalid command line
	exitConfig = 78 // the daemon cannot start: its configuration is invalid
)

func main() {
	// The first signal stops the process in order; a second one ends it at once.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args))
}

func run(ctx context.Context, args []string) int {
	status := 0
	root := rootCommand(func(code int) error { status = code; return nil })

	for _, c := range root.Commands {
		c.OnUsageError = root.OnUsageError
		for _, sub := range c.Commands {
			sub.OnUsageError = root.OnUsageError
		}

		if !c.Hidden && len(c.Commands) == 0 && c.Name != "restore" && c.Name != "join" {
			c.Action = withoutArguments(c.Action)
		}
	}

	// The daemon's children handle signals themselves: one that is meant for the
	// daemon must not end them.
	if len(args) > 1 && (args[1] == "runner" || args[1] == "etcd") {
		ctx = context.WithoutCancel(ctx)
	}

	cli.HelpPrinter = func(w io.Writer, template string, data any) {
		printHelp(w, template, data, min(helpColumns, cmp.Or(columns(os.Stdout), helpColumns)))
	}

	err := unknownCommand(root, args[1:])
	if err == nil {
		err = root.Run(ctx, args)
	}

	if err != nil {
		printError(err)

		if _, ok := errors.AsType[usageError](err); ok {
			return exitUsage
		}

		if _, ok := errors.AsType[configError](err); ok {
			return exitConfig
		}

		return 1
	}

	return status
}

// rootCommand is the daemon with all other commands. The hidden ones, which the
// daemon starts itself, set an exit status of their own.
func rootCommand(setStatus func(int) error) *cli.Command {
	config := &cli.StringFlag{
		Name:    "config",
		Aliases: []string{"c"},
		Usage:   "configuration `FILE` (default: " + defaultConfig + " if it exists, else every key at its default)",
	}

	return &cli.Command{
		Name:  "clusterm",
		Usage: "take machines from \"a host appeared\" to \"a host in service\", and keep them there",
		UsageText: "clusterm [--config FILE]\n" +
			"clusterm agent [--config FILE]\n" +
			"clusterm monitor [--config FILE]\n" +
			"clusterm check [--config FILE]\n" +
			"clusterm reload [--config FILE] [--socket PATH]\n" +
			"clusterm join URL --fingerprint FINGERPRINT [--token-file FILE] [--config FILE]\n" +
			"clusterm store check|compact|defragment|disarm|remove [--config FILE]\n" +
			"clusterm restore FILE [--replace] [--verify] [--config FILE]\n" +
			"clusterm recover --yes [--config FILE]\n" +
			"clusterm audit [verify] [--config FILE]\n" +
			"clusterm playbooks export|check DIR\n" +
			"clusterm ca fingerprint|show|issue [--config FILE]\n" +
			"clusterm example > clusterm.yaml",
		Description: "Without a command it is the manager's daemon: it serves the API, runs jobs and is a member of " +
			"the gossip until SIGTERM. On SIGHUP it reloads its configuration file. clusterctl is its command line.",
		Version:     version,
		HideVersion: true,
		Flags: []cli.Flag{
			config,
			&cli.BoolFlag{
				Name:  "accept-empty-store",
				Local: true,
				Usage: "begin with no nodes and no jobs although the data directory belongs to a former store; " +
					"without it, a missing store is an error",
			},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			return serve(ctx, c.String("config"), c.Bool("accept-empty-store"))
		},
		Commands: []*cli.Command{
			agentCommand(),
			monitorCommand(),
			checkCommand(config),
			reloadCommand(config),
			joinCommand(config),
			playbooksCommand(config),
			exampleCommand(),
			storeCommand(),
			restoreCommand(config),
			recoverCommand(config),
			caCommand(config),
			auditCommand(),
			versionCommand(),
			manCommand(),
			childCommand("runner", "one run of ansible-playbook; started by the daemon", ansible.Main, setStatus),
			childCommand("etcd", "the embedded etcd; started by the daemon", etcd.Main, setStatus),
		},
		OnUsageError:   func(_ context.Context, _ *cli.Command, err error, _ bool) error { return usageError{err} },
		ExitErrHandler: func(context.Context, *cli.Command, error) {},
		Writer:         os.Stdout,
		ErrWriter:      io.Discard,
	}
}

// unknownCommand returns an error for a word in the place of a command that does not
// exist. The library would search help for it instead if --help is given too.
func unknownCommand(c *cli.Command, args []string) error {
	path := ""

	for i := 0; i < len(args) && len(c.Commands) > 0; i++ {
		word := args[i]

		switch {
		case word == "--config" || word == "-c":
			i++ // its value
			continue
		case strings.HasPrefix(word, "-") || word == "help" || word == "h":
			continue
		}

		sub := c.Command(word)
		if sub == nil {
			names := make([]string, 0, len(c.Commands))
			for _, known := range c.Commands {
				if !known.Hidden {
					names = append(names, known.Name)
				}
			}

			if near := inventory.Closest(word, names); near != "" {
				return usageError{fmt.Errorf("there is no command %q; did you mean %q?", path+word, path+near)}
			}

			return usageError{fmt.Errorf("there is no command %q", path+word)}
		}

		c, path = sub, path+sub.Name+" "
	}

	return nil
}

// childCommand is a hidden command that the daemon runs as a child process. Its exit
// status is the result of run.
func childCommand(name, usage string, run func(arg string) int, setStatus func(int) error) *cli.Command {
	return &cli.Command{
		Name:   name,
		Hidden: true,
		Usage:  usage,
		Action: func(_ context.Context, c *cli.Command) error { return setStatus(run(c.Args().First())) },
	}
}

func agentCommand() *cli.Command {
	return &cli.Command{
		Name:      "agent",
		Usage:     "be a member of the gossip as a node; runs on every host",
		UsageText: "clusterm agent [--config FILE]",
		Flags:     []cli.Flag{configFlag(defaultAgent)},
		Action: func(ctx context.Context, c *cli.Command) error {
			cfg, err := serf.LoadAgentConfig(c.String("config"))
			if err != nil {
				return err
			}
			return serf.RunAgent(ctx, cfg, logger(), ready)
		},
	}
}

func monitorCommand() *cli.Command {
	return &cli.Command{
		Name:  "monitor",
		Usage: "report the members of a gossip to managers elsewhere",
		UsageText: "clusterm monitor [--config FILE]\n" +
			"clusterm monitor --check [--config FILE]\n" +
			"clusterm monitor --example > " + defaultMonitor,
		Description: "It watches a serf agent on this host, or has an agent of its own join the gossip, and reports " +
			"the nodes to the managers in report_to, until SIGTERM. Those need no gossip (gossip: off).\n\n" +
			"Report the members of the serf agent on this host to the manager on HOST, with a certificate that " +
			"`clusterm ca issue --role monitor rack1 rack1.pem` made there. " + defaultMonitor + ":\n\n" +
			"   report_to:\n" +
			"     - manager: https://HOST:9443\n" +
			"       fingerprint: sha256:…            # there: clusterm ca fingerprint\n" +
			"       cert_file: /etc/clusterm/rack1.pem\n" +
			"   observer: rack1                      # the name of the certificate\n" +
			"   gossip: {rpc: \"127.0.0.1:7373\"}\n\n" +
			"The same with an agent of its own:\n\n" +
			"   gossip: {key_file: /etc/clusterm/gossip.key, join: [\"192.0.2.10:7946\"]}",
		Flags: []cli.Flag{
			configFlag(defaultMonitor),
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
				if err := cfg.CheckFiles(); err != nil {
					return err
				}

				fmt.Fprintln(os.Stderr, "ok:", c.String("config"))
				return nil
			}

			return report.Run(ctx, report.Options{Config: cfg, Log: logger()}, ready)
		},
	}
}

func checkCommand(config cli.Flag) *cli.Command {
	return &cli.Command{
		Name:      "check",
		Usage:     "check a configuration file and change nothing",
		UsageText: "clusterm check --config /etc/clusterm/clusterm.yaml",
		Description: "It also finds what the manager would refuse to reload, if that runs: settings that were set at " +
			"run time\nand no longer fit, and nodes of groups that are gone.",
		Flags: []cli.Flag{config},
		Action: func(ctx context.Context, c *cli.Command) error {
			path := daemon.Options{ConfigPath: c.String("config"), UsualPath: defaultConfig}.Path()
			if err := daemon.CheckFile(ctx, path); err != nil {
				return err
			}
			if err := checkReload(ctx, path); err != nil {
				return err
			}

			fmt.Fprintln(os.Stderr, "ok:", cmp.Or(path, "no file, every key at its default"))

			return nil
		},
	}
}

// checkReload asks the running manager about what a reload of the file depends on.
func checkReload(ctx context.Context, path string) error {
	m, err := client.New(client.Options{Socket: daemon.Socket(path), UserAgent: "clusterm/" + version})
	if err != nil {
		return err
	}
	now, err := m.Config(ctx)
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		fmt.Fprintln(os.Stderr, "no manager answers, so it is not known whether one would reload the file")
		return nil
	}

	if err != nil {
		return err
	}

	nodes, err := m.Nodes(ctx, client.NodeFilter{})
	if err != nil {
		return err
	}
	keys, err := daemon.CheckReload(ctx, path, now, nodes.Items)
	if len(keys) > 0 {
		fmt.Fprintf(
			os.Stderr,
			"a reload is refused: %s cannot change while clusterm runs: systemctl restart clusterm\n",
			strings.Join(keys, ", "),
		)
	}

	return err
}

func reloadCommand(config cli.Flag) *cli.Command {
	return &cli.Command{
		Name:      "reload",
		Usage:     "have the running daemon read its configuration file again",
		UsageText: "clusterm reload [--config FILE] [--socket PATH]",
		Description: "It waits for the result, and fails if the daemon refuses the file; the former configuration\n" +
			"then stays in force. systemctl reload clusterm runs it. FILE names the socket of the daemon, unless " +
			"--socket does; the daemon reads the file that it was started with. SIGHUP to the daemon does the " +
			"same, with the result in its log.",
		Flags: []cli.Flag{config, &cli.StringFlag{
			Name: "socket", Usage: "the `PATH` of the daemon's socket (default: as in FILE)",
		}},
		Action: func(ctx context.Context, c *cli.Command) error {
			path := daemon.Options{ConfigPath: c.String("config"), UsualPath: defaultConfig}.Path()

			socket := cmp.Or(c.String("socket"), daemon.Socket(path))

			m, err := client.New(client.Options{Socket: socket, UserAgent: "clusterm/" + version})
			if err != nil {
				return err
			}
			now, err := m.ReloadConfig(ctx)
			if err != nil {
				return notReloaded(err)
			}

			fmt.Fprintln(os.Stderr, "ok: the configuration was reloaded")

			if former := now["playbooks"].Former; len(former) > 0 {
				fmt.Fprintf(os.Stderr,
					"  still cleaned with the playbooks that configured them, until 'clusterctl nodes %s': %s\n",
					inventory.VerbApply, print.List(former))
			}

			return nil
		},
	}
}

// notReloaded returns the error of a reload. If nothing answers at the socket, the file
// may name another one than the daemon was started with.
func notReloaded(err error) error {
	dial, ok := errors.AsType[*net.OpError](err)
	if !ok || dial.Op != "dial" {
		return err
	}
	e, ok := errors.AsType[*inventory.Error](err)
	if !ok {
		return err
	}
	out := *e

	return out.Do("%s; if it runs, it has another configuration file or was started before the key socket changed: "+
		"to reload it: systemctl kill -s HUP clusterm; for another socket: systemctl restart clusterm", e.Remedy)
}

func exampleCommand() *cli.Command {
	return &cli.Command{
		Name:      "example",
		Usage:     "print a configuration file with every key, its default and its meaning",
		UsageText: "clusterm example > /etc/clusterm/clusterm.yaml",
		Action: func(context.Context, *cli.Command) error {
			_, err := os.Stdout.Write(daemon.Example)
			return err
		},
	}
}

// manCommand is for the build of the packages.
func manCommand() *cli.Command {
	return &cli.Command{
		Name:   "man",
		Hidden: true,
		Usage:  "print the manual page clusterm.yaml(5)",
		Action: func(context.Context, *cli.Command) error {
			page, err := daemon.ManualPage()
			if err == nil {
				_, err = os.Stdout.Write(page)
			}
			return err
		},
	}
}

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "print the version",
		Action: func(context.Context, *cli.Command) error {
			_, err := fmt.Printf("clusterm %s %s (etcd %s)\n", version, commit, etcd.Version)
			return err
		},
	}
}

func configFlag(path string) cli.Flag {
	return &cli.StringFlag{Name: "config", Aliases: []string{"c"}, Value: path, Usage: "configuration `FILE`"}
}

// withoutArguments refuses arguments, so that 'check FILE' does not check the
// default file.
func withoutArguments(action cli.ActionFunc) cli.ActionFunc {
	return func(ctx context.Context, c *cli.Command) error {
		if c.Args().Present() {
			return usageError{
				fmt.Errorf("%s takes no argument %q; give a file with --config", c.Name, c.Args().First()),
			}
		}

		return action(ctx, c)
	}
}

// usageError marks an invalid command line.
type usageError struct{ error }

// configError marks an invalid configuration of the daemon.
type configError struct{ error }

func (e configError) Unwrap() error { return e.error }

// printError writes the error, its remedy on a second line, and the commands of that. In the journal it is
// one line, because systemctl status shows the last lines only.
func printError(err error) {
	if e, ok := errors.AsType[*inventory.Error](err); ok && e.Remedy != "" && !inJournal() {
		fmt.Fprintf(os.Stderr, "clusterm: %s\n  %s\n", e.Message, e.Remedy)

		for _, command := range api.CommandsOf("clusterctl", e.Actions) {
			fmt.Fprintf(os.Stderr, "  %s\n", command)
		}

		return
	}

	fmt.Fprintf(os.Stderr, "clusterm: %v\n", err)

	if _, ok := errors.AsType[usageError](err); ok {
		fmt.Fprintln(os.Stderr, "  see clusterm --help")
	}
}

func logger() *logrus.Logger {
	log := logrus.New()
	log.SetFormatter(&logrus.TextFormatter{
		DisableColors:    true,
		FullTimestamp:    !inJournal(),
		DisableTimestamp: inJournal(),
	})

	return log
}

// inJournal reports whether the output goes to the journal, which has timestamps of
// its own.
func inJournal() bool { return os.Getenv("JOURNAL_STREAM") != "" }

// moreTime asks systemd not to end a start within the next two minutes.
const moreTime = "EXTEND_TIMEOUT_USEC=120000000"

// ready reports to systemd that the service has started.
func ready() { notify(sd.SdNotifyReady) }

// notify reports a state to systemd, if systemd started this process.
func notify(state string) { _, _ = sd.SdNotify(false, state) }

// serve runs the daemon. An empty path means the default file, if it exists.
func serve(ctx context.Context, path string, acceptEmpty bool) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}

	hup := make(chan os.Signal, 1)

	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)

	err = daemon.Main(ctx, daemon.Options{
		ConfigPath:       path,
		UsualPath:        defaultConfig,
		Command:          []string{self},
		AcceptEmptyStore: acceptEmpty,
		Logger:           logger(),
		Version:          api.Version{Version: version, Commit: commit},
		Ready:            ready,
		Status:           func(text string) { notify("STATUS=" + text + "\n" + moreTime) },
	}, hup)
	if inventory.KindOf(err) == inventory.KindInvalid {
		return configError{err}
	}

	// After a failure, systemd keeps the reason as the status.
	if err == nil {
		notify(sd.SdNotifyStopping)
	}

	return err
}
