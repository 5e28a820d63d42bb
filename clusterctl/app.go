// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/urfave/cli/v3"
	"golang.org/x/term"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// The help of this package replaces that of the library.
func init() { cli.HelpFlag = nil }

// Options are the environment of one command line.
type Options struct {
	Stdin   io.Reader   // nil: os.Stdin
	Stdout  io.Writer   // nil: os.Stdout
	Stderr  io.Writer   // nil: os.Stderr
	Version api.Version // of this program
}

// Run runs one command line, args[0] being the program's name, and returns its
// exit code. It never ends the process. If ctx is cancelled while a command waits
// for a job, the command detaches from the job and Run returns ExitInterrupted.
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

	// A file or a pipe gets neither colours nor rows that change in place.
	a := &app{Options: o, outTTY: isTerminal(o.Stdout), errTTY: isTerminal(o.Stderr)}
	if len(args) > 1 && args[1] == completeCommand {
		return a.complete(ctx, args[2:])
	}
	err := a.run(ctx, args)

	return report(o.Stderr, cmp.Or(a.program, "clusterctl"), err)
}

// app is one run of the command line.
type app struct {
	Options
	outTTY, errTTY bool
	began          bool   // the command line was valid, and a command began
	program        string // the command that reaches the same manager again; empty before a command began

	saying sync.Mutex // held during a line of say: requests that run at once report themselves
}

// run runs the command line, and turns errors of the library into usage errors.
func (a *app) run(ctx context.Context, args []string) error {
	err := a.root().Run(ctx, args)
	if err == nil {
		return nil
	}

	// An error of this package has its exit code and remedy already.
	if _, ok := errors.AsType[*exit.Error](err); ok {
		return err
	}

	// A client reports a cancelled context in its own words: return the cause instead.
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case !a.began:
		return exit.Usagef("%v", err).Try("see: clusterctl --help")
	}

	return err
}

func (a *app) root() *cli.Command {
	program := commandBook().at[""]
	root := &cli.Command{
		Name:            "clusterctl",
		Usage:           program.usage,
		Description:     strings.Join(program.text, "\n"),
		HideHelp:        true,
		HideHelpCommand: true,
		HideVersion:     true,
		Writer:          a.Stdout,
		ErrWriter:       a.Stderr,
		ExitErrHandler:  func(context.Context, *cli.Command, error) {},
		Flags:           rootFlags(),
		Commands:        append(a.commands(), a.help()),
		Metadata:        map[string]any{metaExamples: program.examples},
	}
	root.Action = func(ctx context.Context, c *cli.Command) error {
		if c.Bool("version") && !c.Args().Present() {
			a.began = true
			return a.write([]byte(print.VersionLine("clusterctl", a.Version) + "\n"))
		}

		return a.group(ctx, c)
	}
	addFormer(root, root.Name)
	a.prepare(root, nil)

	return root
}

// rootFlags returns the options of every command.
func rootFlags() []cli.Flag {
	flags := flagsAt("")

	for _, f := range flags {
		switch f := f.(type) {
		case *cli.StringFlag:
			switch f.Name {
			case "url":
				f.Sources = cli.EnvVars("CLUSTERM_URL")
			case "output":
				f.Value = print.FormatTable
			}
		case *cli.BoolFlag:
			f.Local = f.Name == "version"
		}
	}

	return flags
}

// prepare sets the properties that the library does not pass on to subcommands.
func (a *app) prepare(c *cli.Command, path []string) {
	path = append(slices.Clone(path), c.Name)
	// A value of -e contains commas.
	c.DisableSliceFlagSeparator = true
	takeOnce(c.Flags)
	c.OnUsageError = func(_ context.Context, cmd *cli.Command, err error, _ bool) error {
		return a.flagError(cmd, path, err)
	}

	// Every command accepts --help, even with missing or invalid arguments. The word
	// after a group of commands is a command, though, and not an argument.
	action := c.Action
	if action == nil {
		action = a.group
	}

	c.Action = func(ctx context.Context, cmd *cli.Command) error {
		unknown := len(cmd.Commands) > 0 && cmd.Args().Present() && cmd.Args().First() != "help"
		if cmd.Bool("help") && !unknown {
			a.began = true
			return a.printHelp(cmd)
		}

		return action(ctx, cmd)
	}
	for _, sub := range c.Commands {
		a.prepare(sub, path)
	}
}

// takeOnce refuses the repetition of every option that has room for one value: the
// library otherwise keeps the last value and drops the others without a message.
func takeOnce(flags []cli.Flag) {
	for _, f := range flags {
		switch f := f.(type) {
		case *cli.StringFlag:
			f.OnlyOnce = true
		case *cli.BoolFlag:
			f.OnlyOnce = true
		case *cli.BoolWithInverseFlag:
			f.OnlyOnce = true
		}
	}
}

// group is the action of a command that only has subcommands.
func (a *app) group(_ context.Context, c *cli.Command) error {
	path := c.FullName()

	a.began = true
	if c.Args().First() == "help" {
		return a.printHelp(c)
	}

	// Suggestions include aliases; the list of commands does not.
	var names, all []string
	for _, sub := range c.VisibleCommands() {
		names = append(names, sub.Name)
		all = append(append(all, sub.Name), shownAliases(sub)...)
	}

	remedy := fmt.Sprintf("the commands are %s; see: %s --help", strings.Join(names, ", "), path)
	if !c.Args().Present() {
		return exit.Usagef("%s needs a command", short(path)).Try("%s", remedy)
	}
	return unknownCommand(path, c.Args().First(), all).Try("%s", remedy)
}

// unknownCommand returns the error about a word after path that is none of names.
func unknownCommand(path, word string, names []string) *exit.Error {
	err := exit.Usagef("unknown command %q", strings.TrimPrefix(path+" "+word, "clusterctl "))
	if near := inventory.Closest(word, names); near != "" {
		err.Message += fmt.Sprintf("; did you mean %q?", near)
	}
	return err
}

// short returns the path of a command without the program's name, which starts
// every error message anyway.
func short(path string) string {
	if path = strings.TrimPrefix(path, "clusterctl"); path == "" {
		return "clusterctl"
	}
	return path[1:]
}

// badValue matches the library's error about a value that does not parse.
var badValue = regexp.MustCompile(`^invalid value "(.*)" for flag -([^:]*): (.*)$`)

// flagError translates an error of the library about an option.
func (a *app) flagError(c *cli.Command, path []string, err error) error {
	if _, ok := errors.AsType[*exit.Error](err); ok {
		return err
	}

	name := strings.Join(path, " ")
	text := err.Error()

	// The library exports no error types: recognise its errors by their text.
	var e *exit.Error
	if flag, ok := strings.CutPrefix(text, "flag provided but not defined: -"); ok {
		e = exit.Usagef("%s has no option %s", short(name), dashed(flag))
		if near := inventory.Closest(flag, optionNames(c)); near != "" {
			e.Message += fmt.Sprintf("; did you mean %s?", dashed(near))
		}
	} else if flag, ok := strings.CutPrefix(text, "flag needs an argument: "); ok {
		e = exit.Usagef("the option %s needs a value", dashed(strings.TrimLeft(flag, "-")))
	} else if m := badValue.FindStringSubmatch(text); m != nil && strings.Contains(m[3], "duplicate") {
		e = a.repeated(c, m[2])
	} else if m != nil {
		e = exit.Usagef("%q is not a valid value for %s", m[1], dashed(m[2]))
	} else {
		e = exit.Usagef("%s", text)
	}

	return e.Try("see: %s --help", name)
}

// repeated returns the error about an option given more than once.
func (a *app) repeated(c *cli.Command, name string) *exit.Error {
	for _, l := range c.Lineage() {
		for _, f := range l.Flags {
			if inverse, ok := f.(*cli.BoolWithInverseFlag); ok && slices.Contains(f.Names(), name) {
				return exit.Usagef("--%[1]s and --no-%[1]s exclude each other, and each is given once", inverse.Name)
			}
		}
	}

	return exit.Usagef("the option %s is given more than once", dashed(name))
}

// optionNames returns the options of a command and of the commands above it.
func optionNames(c *cli.Command) []string {
	var all []string
	for _, l := range c.Lineage() {
		for _, f := range l.Flags {
			all = append(all, f.Names()...)
		}
	}

	return all
}

func dashed(flag string) string {
	if len([]rune(flag)) == 1 {
		return "-" + flag
	}
	return "--" + flag
}

// say prints one line to stderr.
func (a *app) say(format string, args ...any) {
	a.saying.Lock()
	defer a.saying.Unlock()
	fmt.Fprintf(a.Stderr, "%s\n", print.Text(fmt.Sprintf(format, args...)))
}

// sayInPlace replaces the last line of a terminal.
func (a *app) sayInPlace(text string) {
	a.saying.Lock()
	defer a.saying.Unlock()
	fmt.Fprintf(a.Stderr, "\r\x1b[K%s", print.Text(text))
}

// write writes to stdout in one call. A failure to write is an error of its own:
// a script must not take a truncated answer for a complete one.
func (a *app) write(b []byte) error {
	_, err := a.Stdout.Write(b)
	return wrote(err)
}

func wrote(err error) error {
	if err != nil {
		return exit.Errorf(exit.Failed, "cannot write to stdout: %v", err)
	}
	return nil
}

func (a *app) outPaint() print.Paint { return print.Paint(a.outTTY && wantsColour()) }
func (a *app) errPaint() print.Paint { return print.Paint(a.errTTY && wantsColour()) }

// wantsColour follows https://no-color.org.
func wantsColour() bool { return os.Getenv("NO_COLOR") == "" && !isDumb() }

// isDumb reports whether the terminal cannot move its cursor.
func isDumb() bool { t := os.Getenv("TERM"); return t == "dumb" || t == "" }

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
