// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// The library's own help flag would show help of its own wording.
func init() { cli.HelpFlag = nil }

// Options are what a process gives to Run.
type Options struct {
	Stdin  io.Reader // nil: os.Stdin
	Stdout io.Writer // nil: os.Stdout
	Stderr io.Writer // nil: os.Stderr
	// Version is what this program is.
	Version api.Version
}

// Run runs one command line, args[0] being the program's name, and returns its
// exit code. It never ends the process. When ctx is cancelled while it waits for
// a job it detaches from the job and returns ExitInterrupted.
func Run(ctx context.Context, args []string, o Options) int {
	if o.Stdin == nil {
		o.Stdin = os.Stdin
	}

	if o.Stdout == nil {
		o.Stdout = os.Stdout
	}

	if o.Stderr == nil {
		o.Stderr = os.Stderr
	}

	a := &app{Options: o, outTTY: isTerminal(o.Stdout), errTTY: isTerminal(o.Stderr)}
	if len(args) > 1 && args[1] == completeWord {
		return a.complete(ctx, args[2:])
	}

	err := a.root().Run(ctx, args)
	if err != nil && !a.began {
		// What fails before a command begins is the library's word on the command line.
		if _, ok := errors.AsType[*failure](err); !ok {
			err = usagef("%v", err).do("clusterctl --help lists the commands and options")
		}
	}

	if err != nil && ctx.Err() != nil {
		if _, ok := errors.AsType[*failure](err); !ok {
			err = context.Cause(ctx)
		}
	}

	return report(o.Stderr, err)
}

// app is one run of the command line.
type app struct {
	Options
	outTTY, errTTY bool
	began          bool // the command line was understood and a command was begun
}

func (a *app) root() *cli.Command {
	root := &cli.Command{
		Name:  "clusterctl",
		Usage: "commission and care for the hosts of a cluster",
		Description: "It talks to clusterm, the cluster manager, through the Unix socket " + api.DefaultSocket +
			" unless --url says otherwise. Names of nodes are LABEL-SERIAL, as `clusterctl nodes get` lists them.",
		HideHelp:        true,
		HideHelpCommand: true,
		HideVersion:     true,
		Writer:          a.Stdout,
		ErrWriter:       a.Stderr,
		ExitErrHandler:  func(context.Context, *cli.Command, error) {},

		Flags: []cli.Flag{
			&cli.StringFlag{
				Name:    "url",
				Aliases: []string{"u"},
				Sources: cli.EnvVars("CLUSTERM_URL"),
				Usage:   "the manager's `URL`: http://HOST:PORT, HOST:PORT or unix:///PATH (default: the Unix socket " + api.DefaultSocket + ")",
			},
			&cli.StringFlag{
				Name:    "output",
				Aliases: []string{"o"},
				Value:   formatTable,
				Usage:   "`FORMAT` of what is printed: table, wide (more columns, for lists), long (everything), json, yaml or name",
			},
			&cli.BoolFlag{Name: "help", Aliases: []string{"h"}, Usage: "show help; after a command, for that command"},
			&cli.BoolFlag{Name: "version", Local: true, Usage: "print the version of clusterctl"},
		},
		Commands: []*cli.Command{
			a.nodes(),
			a.discover(),
			a.job(),
			a.vars(),
			a.global(),
			a.config(),
			a.instance(),
			a.health(),
			a.version(),
			a.supportBundle(),
			a.completion(),
			a.man(),
			a.help(),
		},
	}
	root.Metadata = map[string]any{metaExamples: []string{
		"clusterctl discover 192.168.2.11 192.168.2.12",
		"clusterctl nodes get",
		"clusterctl nodes commission web-1-AB12 -g service-master -e '{\"env\": {\"proxy\": \"http://proxy:3128\"}}'",
		"clusterctl nodes maintenance web-1-AB12 --no-wait",
		"clusterctl job logs -f last",
	}}
	root.Action = func(ctx context.Context, c *cli.Command) error {
		if c.Bool("version") && !c.Args().Present() {
			a.began = true
			return a.write([]byte(versionLine(a.Version) + "\n"))
		}

		return a.group(ctx, c)
	}
	a.prepare(root, nil)

	return root
}

// prepare gives every command what the library does not hand down.
func (a *app) prepare(c *cli.Command, path []string) {
	path = append(slices.Clone(path), c.Name)
	c.DisableSliceFlagSeparator = true
	c.OnUsageError = func(_ context.Context, cmd *cli.Command, err error, _ bool) error {
		return a.flagError(cmd, path, err)
	}

	action := c.Action
	if action == nil {
		action = a.group
	}

	c.Action = func(ctx context.Context, cmd *cli.Command) error {
		if cmd.Bool("help") {
			a.began = true
			return a.printHelp(cmd)
		}

		return action(ctx, cmd)
	}
	for _, sub := range c.Commands {
		a.prepare(sub, path)
	}
}

// group is what a command does that is there for its subcommands.
func (a *app) group(_ context.Context, c *cli.Command) error {
	path := c.FullName()

	a.began = true
	if c.Args().First() == "help" {
		return a.printHelp(c)
	}

	var names, all []string
	for _, sub := range c.VisibleCommands() {
		names = append(names, sub.Name)
		all = append(all, sub.Names()...)
	}

	if !c.Args().Present() {
		return usagef(
			"%s needs a command",
			short(path),
		).do("%s --help lists the commands: %s", path, strings.Join(names, ", "))
	}

	word := c.Args().First()

	f := usagef("there is no command %q", strings.TrimPrefix(path+" "+word, "clusterctl "))
	if near := inventory.Closest(word, all); near != "" {
		f.message += fmt.Sprintf("; did you mean %q?", near)
	}

	return f.do("%s --help lists the commands: %s", path, strings.Join(names, ", "))
}

// short is a command's path without the program's name, which starts every error anyway.
func short(path string) string {
	if path = strings.TrimPrefix(path, "clusterctl"); path == "" {
		return "clusterctl"
	}

	return path[1:]
}

// flagError words what the library says of an option.
func (a *app) flagError(c *cli.Command, path []string, err error) error {
	if _, ok := errors.AsType[*failure](err); ok {
		return err
	}

	name := strings.Join(path, " ")
	text := err.Error()

	var f *failure
	if flag, ok := strings.CutPrefix(text, "flag provided but not defined: -"); ok {
		f = usagef("%s has no option %s", short(name), dashed(flag))

		var all []string
		for _, l := range c.Lineage() {
			for _, fl := range l.Flags {
				all = append(all, fl.Names()...)
			}
		}

		if near := inventory.Closest(flag, all); near != "" {
			f.message += fmt.Sprintf("; did you mean %s?", dashed(near))
		}
	} else if flag, ok := strings.CutPrefix(text, "flag needs an argument: "); ok {
		f = usagef("the option %s needs a value", dashed(strings.TrimLeft(flag, "-")))
	} else if m := badValue.FindStringSubmatch(text); m != nil && strings.Contains(m[3], "cannot set both") {
		f = usagef("%s and --no-%s exclude each other", dashed(m[2]), m[2])
	} else if m != nil {
		f = usagef("%q is no value for %s", m[1], dashed(m[2]))
	} else {
		f = usagef("%s", text)
	}

	return f.do("%s --help shows what it takes", name)
}

// badValue takes apart what the library says of a value that does not parse.
var badValue = regexp.MustCompile(`^invalid value "(.*)" for flag -(?:no-)?([^:]*): (.*)$`)

func dashed(flag string) string {
	if len([]rune(flag)) == 1 {
		return "-" + flag
	}

	return "--" + flag
}

// metaExamples is the key of a command's Metadata under which its examples are.
const metaExamples = "examples"

// metaFormats is the key under which the values of its --output beside table are.
const metaFormats = "formats"

// leaf is a command that does something.
type leaf struct {
	name, usage string
	args        string // the positional arguments as the help shows them, e.g. "NAME…"
	min, max    int    // how many; max -1: any number
	about       string
	examples    []string
	flags       []cli.Flag
	formats     []string // the values of --output it takes beside table; nil: all
	aliases     []string
	hidden      bool
	selects     bool // --selector may stand for the arguments
	run         func(ctx context.Context, c *call) error
}

// call is one leaf being run.
type call struct {
	*app
	*cli.Command
	manager *client.Client
	args    []string
	format  string
}

func (a *app) leaf(l leaf) *cli.Command {
	if l.formats == nil {
		l.formats = []string{formatLong, formatJSON, formatYAML, formatName}
	}

	return &cli.Command{
		Name:        l.name,
		Aliases:     l.aliases,
		Usage:       l.usage,
		ArgsUsage:   l.args,
		Description: l.about,
		Flags:       l.flags,
		Hidden:      l.hidden,
		Metadata:    map[string]any{metaExamples: l.examples, metaFormats: l.formats},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			c := &call{app: a, Command: cmd, args: cmd.Args().Slice(), format: cmd.String("output")}
			a.began = true

			if err := c.check(l); err != nil {
				return err
			}

			m, err := c.dial(patience)
			if err != nil {
				return err
			}

			c.manager = m

			return l.run(ctx, c)
		},
	}
}

// check refuses a wrong number of arguments and a format that means nothing here.
func (c *call) check(l leaf) error {
	n, name, path := len(c.args), short(c.FullName()), c.FullName()
	if l.selects && c.IsSet("selector") {
		switch {
		case !c.selects():
			return usagef("the selector is empty").do("leave it out, or say what it is to meet: -l status=Allocated")
		case n > 0:
			return usagef(
				"%s takes names or a selector, and got both",
				name,
			).do("put the names into the selector: -l 'name in (%s)'", strings.Join(c.args, ","))
		}

		l.min = 0
	}

	switch {
	case n < l.min && l.selects:
		return usagef(
			"%s needs at least one %s, or --selector",
			name,
			strings.TrimSuffix(l.args, "…"),
		).do("%s --help shows what it takes", path)
	case n < l.min && l.max < 0:
		return usagef(
			"%s needs at least one %s",
			name,
			strings.TrimSuffix(l.args, "…"),
		).do("%s --help shows what it takes", path)
	case n < l.min:
		return usagef("%s needs %s", name, l.args).do("%s --help shows what it takes", path)
	case l.max >= 0 && n > l.max && l.max == 0:
		return usagef("%s takes no arguments, and got %q", name, c.args[0]).do("%s --help shows what it takes", path)
	case l.max >= 0 && n > l.max:
		return usagef(
			"%s takes one %s, and got %q as well",
			name,
			strings.Trim(l.args, "[]"),
			c.args[l.max],
		).do("%s --help shows what it takes", path)
	}

	if c.format != formatTable && !slices.Contains(l.formats, c.format) {
		return usagef("%s cannot print %q", name, c.format).
			do("the values of --output are %s", strings.Join(append([]string{formatTable}, l.formats...), ", "))
	}

	return nil
}

// forPeople tells whether the answer is printed for people, who are told in
// words where there is nothing to print.
func (c *call) forPeople() bool {
	return c.format == formatTable || c.format == formatWide || c.format == formatLong
}

// self is how to call this program again for the same manager.
func (c *call) self() string {
	for _, l := range c.Lineage() {
		for _, f := range l.Flags {
			if f.Names()[0] == "url" && f.IsSet() && os.Getenv("CLUSTERM_URL") != c.String("url") {
				return "clusterctl -u " + shellWord(c.String("url"))
			}
		}
	}

	return "clusterctl"
}

// say prints a line to stderr.
func (a *app) say(format string, args ...any) {
	fmt.Fprintf(a.Stderr, "%s\n", printable(fmt.Sprintf(format, args...), true))
}

// write writes to stdout in one go; that it failed is worth an exit code.
func (a *app) write(b []byte) error {
	if _, err := a.Stdout.Write(b); err != nil {
		return failf(ExitFailed, "cannot write to stdout: %v", err)
	}

	return nil
}

// dial makes a client of the manager that --url names. patience bounds how long
// it waits for a manager that has gone in the middle of a stream.
func (c *call) dial(patience time.Duration) (*client.Client, error) {
	return client.New(client.Options{
		URL: c.String("url"), Actor: actor(), UserAgent: "clusterctl/" + c.app.Version.Version, Patience: patience,
	})
}

// actor is the person that root acts for, as far as sudo says so.
func actor() string {
	name := os.Getenv("SUDO_USER")
	if len(name) > api.MaxActor || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return ""
	}

	return name
}
