// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/term"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/follow"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// The keys of a command's Metadata.
const (
	metaExamples = "examples" // []string: complete command lines
	metaFormats  = "formats"  // []string: the values of --output besides table
	metaColumns  = "columns"  // []string: the values of --columns and --sort
	metaComplete = "complete" // positional: the completion of the arguments
)

var (
	// objectFormats are the formats of a command that prints objects.
	objectFormats = []string{print.FormatLong, print.FormatJSON, print.FormatYAML, print.FormatName}
	// tableFormats are the formats of a command with selectable columns.
	tableFormats = append([]string{print.FormatWide}, objectFormats...)
	// namelessFormats are the formats of a command with an answer without names.
	namelessFormats = []string{print.FormatLong, print.FormatJSON, print.FormatYAML}
)

// impatient makes a client fail at once while the manager is unreachable.
const impatient = -1

// leaf is a command, or without run a group of further commands. commandsText has the name, the text, the options and
// the examples of most of them.
type leaf struct {
	name, usage string
	args        string // the positional arguments in the help, e.g. "NAME…"
	min, max    int    // the number of positional arguments; max -1: unlimited; both 0: as args says
	about       string
	examples    []string
	flags       []cli.Flag
	needs       string   // the option that must be given
	formats     []string // the values of --output besides table; nil: objectFormats
	columns     []string // of the table, for --columns and --sort; nil: they cannot be chosen
	complete    positional
	aliases     []string
	hidden      bool
	selects     bool   // --selector can replace the arguments
	all         string // the selector that --all stands for; empty: there is no such option
	names       bool   // the arguments are names of nodes
	readsJob    bool   // the argument is a job, by default the newest one
	local       bool   // the command needs no manager
	changesJob  bool   // the argument is a job, and its number needs no confirmation
	run         func(ctx context.Context, c *call) error
}

// call is one invocation of a leaf.
type call struct {
	*app
	*cli.Command
	manager *client.Client
	args    []string
	format  string

	abbreviated bool // the operator did not type the whole name of a node
	answered    bool // stdout has its one document already
}

func (a *app) leaf(l leaf) *cli.Command {
	if l.run == nil {
		return &cli.Command{
			Name: l.name, Aliases: l.aliases, Usage: l.usage, Description: l.about, Hidden: l.hidden,
			Metadata: map[string]any{metaExamples: l.examples},
		}
	}

	if l.formats == nil {
		l.formats = objectFormats
	}

	if l.columns != nil {
		l.flags = append(l.flags, columnFlags(l.columns)...)
	}

	if l.min == 0 && l.max == 0 {
		l.min, l.max = arity(l.args)
	}

	if l.complete == nil {
		l.complete = l.completion()
	}

	return &cli.Command{
		Name:        l.name,
		Aliases:     l.aliases,
		Usage:       l.usage,
		ArgsUsage:   l.args,
		Description: l.about,
		Flags:       l.flags,
		Hidden:      l.hidden,
		Metadata: map[string]any{
			metaExamples: l.examples, metaFormats: l.formats, metaColumns: l.columns, metaComplete: l.complete,
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			c := &call{app: a, Command: cmd, args: cmd.Args().Slice(), format: formatOf(cmd)}
			// From here on, errors are those of the command.
			a.began, a.program = true, c.self()

			if err := c.check(l); err != nil {
				return err
			}

			if l.local {
				return l.run(ctx, c)
			}

			m, err := c.dial(follow.Patience)
			if err != nil {
				return err
			}
			c.manager = m

			if err := c.resolve(ctx, l); err != nil {
				return err
			}

			return l.run(ctx, c)
		},
	}
}

// arity returns the number of arguments in the help of a command: NAME, [NAME], NAME…; most -1:
// unlimited.
func arity(args string) (least, most int) {
	optional := 0

	for word := range strings.FieldsSeq(args) {
		optional += strings.Count(word, "[")

		if optional == 0 {
			least++
		}

		switch {
		case strings.Contains(word, "…"):
			most = -1
		case most >= 0:
			most++
		}

		optional -= strings.Count(word, "]")
	}

	return least, most
}

// completion returns the usual completion of the arguments; nil: there is none.
func (l leaf) completion() positional {
	switch {
	case l.names && l.max == 1:
		return oneNode
	case l.names:
		return anyNodes
	case l.readsJob:
		return jobsThat(nil, jobActive, jobLast)
	}

	return nil
}

// resolve replaces words in the arguments by the objects that they stand for.
func (c *call) resolve(ctx context.Context, l leaf) (err error) {
	switch {
	case l.names:
		c.args, err = c.expand(ctx, c.args)
	case l.readsJob:
		err = c.resolveJob(ctx)
	case l.changesJob:
		err = c.chooseJob(ctx)
	}

	return err
}

// check refuses a wrong number of arguments and an unsupported format.
func (c *call) check(l leaf) error {
	if l.all != "" && c.Bool("all") {
		if c.IsSet("selector") || len(c.args) > 0 {
			return exit.Usagef("%s takes --all, names or a selector, and not several of them", short(c.FullName())).
				Try("give one of them")
		}

		if err := c.Set("selector", l.all); err != nil {
			return err
		}
	}

	if l.selects && c.IsSet("selector") {
		if err := c.checkSelector(); err != nil {
			return err
		}

		// The selector provides the names.
		l.min = 0
	}

	if err := c.checkArgs(l); err != nil {
		return err
	}

	if l.needs != "" && !c.IsSet(l.needs) {
		return exit.Usagef("%s needs --%s", short(c.FullName()), l.needs).Try("give it; see: %s --help", c.FullName())
	}

	// Before a job is requested.
	if _, err := c.waitTimeout(); err != nil {
		return err
	}

	// Each command that prints JSON can print parts of it.
	if print.IsExtract(c.format) && slices.Contains(l.formats, print.FormatJSON) && l.name != "watch" {
		return print.CheckExtract(c.format)
	}

	// Every command can print a table.
	if c.format != print.FormatTable && !slices.Contains(l.formats, c.format) {
		formats := append([]string{print.FormatTable}, l.formats...)
		if slices.Contains(formats, print.FormatJSON) && l.name != "watch" {
			formats = append(formats, "jsonpath=PATH", "go-template=TEMPLATE")
		}
		return exit.Usagef("%s cannot print %q", short(c.FullName()), c.format).
			Try("the values of --output are %s", strings.Join(formats, ", "))
	}

	return nil
}

func (c *call) checkSelector() error {
	switch {
	case !c.hasSelector():
		return exit.Usagef("the selector is empty").Try("drop --selector, or give a condition: -l status=Allocated")
	case len(c.args) > 0:
		return exit.Usagef("%s takes names or a selector, not both", short(c.FullName())).
			Try("put the names into the selector: -l 'name in (%s)'", strings.Join(c.args, ","))
	}

	return nil
}

func (c *call) checkArgs(l leaf) error {
	n, name := len(c.args), short(c.FullName())
	// NAME instead of NAME… or [NAME]
	one := strings.Trim(l.args, "[…]")

	var err *exit.Error
	switch {
	case n < l.min && l.selects:
		err = exit.Usagef("%s needs at least one %s, or --selector", name, one)
	case n < l.min && l.max < 0:
		err = exit.Usagef("%s needs at least one %s", name, one)
	case n < l.min:
		err = exit.Usagef("%s needs %s", name, l.args)
	case l.max < 0 || n <= l.max:
		return nil
	case l.max == 0:
		err = exit.Usagef("%s takes no arguments: %q", name, c.args[0])
	default:
		err = exit.Usagef("%s takes one %s only: %q is too many", name, one, c.args[l.max])
	}

	return err.Try("see: %s --help", c.FullName())
}

// forPeople reports whether the format is for people. They get a sentence where
// an answer is empty; a program gets an empty answer.
func (c *call) forPeople() bool {
	return c.format == print.FormatTable || c.format == print.FormatWide || c.format == print.FormatLong
}

// self returns the command prefix that reaches the same manager again.
func (c *call) self() string {
	program := "clusterctl"

	// The environment variables apply to the next command as well.
	for _, l := range c.Lineage() {
		for _, f := range l.Flags {
			switch name := f.Names()[0]; {
			case name == "url" && f.IsSet() && urlOnCommandLine(c.String("url")):
				program = "clusterctl -u " + api.ShellQuote(c.String("url"))
			case name == "context" && f.IsSet():
				program = "clusterctl --context " + api.ShellQuote(c.String("context"))
			}
		}
	}

	if file := c.String("token-file"); file != "" {
		program += " --token-file " + api.ShellQuote(file)
	}

	return program
}

// show prints an answer in the requested format.
func (c *call) show(a print.Answer) error {
	if a.Stale {
		c.say("warning: the manager has lost contact with its store; this answer may be outdated")
	}

	// Render everything first: an error must not leave half an answer on stdout.
	b, err := a.Render(c.format, c.outStyle())
	if err != nil {
		return err
	}
	return c.write(b)
}

// outStyle returns the style of stdout. A terminal gets rows that fit it, and -o wide
// whole text everywhere.
func (c *call) outStyle() print.Style {
	s := print.Style{Paint: c.outPaint(), NoHeaders: c.Bool("no-headers")}

	if c.format != print.FormatWide {
		s.Width = c.columns()
	}
	return s
}

// columns returns the width of the terminal at stdout; 0 if stdout is no terminal, or one
// without a known size, such as some serial consoles.
func (a *app) columns() int {
	f, isFile := a.Stdout.(*os.File)
	if !isFile || !a.outTTY {
		return 0
	}
	columns, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return columns
}

// output returns the destination of everything that is followed.
func (c *call) output() follow.Output {
	// Somebody reads a file or a pipe at a terminal later.
	safe := print.Terminal(c.Stdout)
	text := func(text []byte) error {
		_, err := safe.Write(text)
		return wrote(err)
	}

	return follow.Output{Write: c.write, Text: text, Say: c.say, Style: c.outStyle()}
}

// dial returns a client of the selected manager. patience bounds its retries
// after a connection breaks in the middle of a stream.
func (c *call) dial(patience time.Duration) (*client.Client, error) {
	url := c.String("url")

	o, err := place(url, c.String("context"), urlOnCommandLine(url))
	if err != nil {
		return nil, err
	}
	if err := useBearer(&o, c.String("token-file")); err != nil {
		return nil, err
	}

	o.Actor, o.UserAgent, o.Patience = actor(), "clusterctl/"+c.app.Version.Version, patience
	o.Observe = c.observer(o.URL)

	return client.New(o)
}

// observer returns the function that shows each request to the URLs with --verbose, or nil. Of several, it shows which
// one the request went to.
func (c *call) observer(urls string) func(client.Exchange) {
	if !c.Bool("verbose") {
		return nil
	}

	return func(e client.Exchange) {
		if len(client.URLs(urls)) > 1 {
			e.URI = e.Where + e.URI
		}

		result := fmt.Sprint(e.Status)
		if e.Err != nil {
			result = "no answer"
		}
		c.say("%s %s: %s, %d ms, request %s", e.Method, e.URI, result, e.Took.Milliseconds(), e.RequestID)
	}
}

// actor returns the person behind root, as sudo reports it, or "".
func actor() string {
	name := os.Getenv("SUDO_USER")

	// The name becomes a header, which allows printable ASCII only.
	invalid := func(r rune) bool { return r <= ' ' || r > '~' }
	if len(name) > api.MaxActor || strings.ContainsFunc(name, invalid) {
		return ""
	}
	return name
}

// text returns the value of an option, or the other text if it is not given.
func (c *call) text(flag, otherwise string) string {
	if c.IsSet(flag) {
		return c.String(flag)
	}
	return otherwise
}

// valueFlag is an option with a value, the name of which stands between backquotes in the usage.
func valueFlag(name, usage string, aliases ...string) cli.Flag {
	return &cli.StringFlag{Name: name, Aliases: aliases, Usage: usage}
}

// listFlag is an option with several values, repeated or separated by commas.
func listFlag(name, usage string, aliases ...string) cli.Flag {
	return &cli.StringSliceFlag{Name: name, Aliases: aliases, Usage: usage}
}

// switchFlag is an option without a value.
func switchFlag(name, usage string, aliases ...string) cli.Flag {
	return &cli.BoolFlag{Name: name, Aliases: aliases, Usage: usage}
}
