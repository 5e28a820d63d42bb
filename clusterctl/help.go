// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/mattn/go-runewidth"
	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
)

// The widths of help, in columns. It is narrower on a narrow terminal.
const (
	helpWidth  = 100
	leastWidth = 60
	termWidth  = 28
)

// help is the command `clusterctl help [COMMAND…]`.
func (a *app) help() *cli.Command {
	return &cli.Command{
		Name: "help", Usage: "show help for a command", ArgsUsage: "[COMMAND…]", Hidden: true,
		Action: func(ctx context.Context, c *cli.Command) error {
			at := c.Root()
			for _, word := range c.Args().Slice() {
				next := at.Command(word)
				if next == nil {
					var names []string
					for _, sub := range at.VisibleCommands() {
						names = append(append(names, sub.Name), shownAliases(sub)...)
					}

					return unknownCommand(at.FullName(), word, names).Try("see: %s --help", at.FullName())
				}

				at = next
			}

			a.began = true

			return a.printHelp(at)
		},
	}
}

// printHelp prints the help of a command to stdout.
func (a *app) printHelp(c *cli.Command) error {
	var b bytes.Buffer
	path, subs, width := c.FullName(), c.VisibleCommands(), helpWidth

	if columns := a.columns(); columns > 0 {
		width = max(leastWidth, min(width, columns))
	}

	fmt.Fprintf(&b, "%s - %s\n\nUsage:\n  %s\n", path, c.Usage, synopsis(c, path))

	if aliases := shownAliases(c); len(aliases) > 0 {
		fmt.Fprintf(&b, "\nAliases: %s\n", strings.Join(aliases, ", "))
	}

	if c.Description != "" {
		b.WriteByte('\n')

		for line := range strings.SplitSeq(strings.TrimSpace(c.Description), "\n") {
			fmt.Fprintln(&b, print.Fold(line, width-2))
		}
	}

	// A command with subcommands shows them with an ellipsis.
	if len(subs) > 0 {
		var rows [][2]string
		for _, s := range subs {
			rows = append(rows, [2]string{strings.TrimSpace(s.Name + " " + s.ArgsUsage), s.Usage})
			if len(s.VisibleCommands()) > 0 {
				rows[len(rows)-1][0] = s.Name + " …"
			}
		}

		section(&b, "Commands", rows, width)
	}

	// Global options and exit codes appear once, in the help of the program.
	if c == c.Root() {
		section(&b, "Global options", flagRows(c.Flags), width)
		section(&b, "Exit codes", exitRows(), width)
	} else {
		section(&b, "Options", flagRows(c.Flags), width)
	}

	if examples := examplesOf(c); len(examples) > 0 {
		b.WriteString("\nExamples:\n")

		for _, e := range examples {
			fmt.Fprintf(&b, "  %s\n", e)
		}
	}

	if c != c.Root() {
		b.WriteString("\nFor global options and exit codes, see: clusterctl --help\n")
	}

	return a.write(b.Bytes())
}

// examplesOf returns the examples of a command, or else the first example of each
// of its subcommands.
func examplesOf(c *cli.Command) []string {
	examples, _ := c.Metadata[metaExamples].([]string)
	if len(examples) > 0 {
		return examples
	}

	for _, s := range c.VisibleCommands() {
		if some, _ := s.Metadata[metaExamples].([]string); len(some) > 0 {
			examples = append(examples, some[0])
		}
	}

	return examples
}

// exitRows returns the exit codes with their meanings.
func exitRows() [][2]string {
	var rows [][2]string
	for _, e := range exit.Codes {
		rows = append(rows, [2]string{fmt.Sprint(e.Code), e.Meaning})
	}

	return rows
}

// flagRows returns the visible options with their usage.
func flagRows(flags []cli.Flag) [][2]string {
	var rows [][2]string
	for _, f := range flags {
		if v, ok := f.(cli.VisibleFlag); ok && !v.IsVisible() {
			continue
		}

		doc, ok := f.(cli.DocGenerationFlag)
		if !ok {
			continue
		}
		usage, value := placeholder(doc.GetUsage())

		name := dashed(f.Names()[0])
		// Shown as one option, --[no-]NAME.
		if inverse, ok := f.(*cli.BoolWithInverseFlag); ok {
			name = "--[no-]" + inverse.Name
		} else {
			for _, alias := range f.Names()[1:] {
				name += ", " + dashed(alias)
			}
		}

		// A switch has no value to show.
		if doc.TakesValue() {
			name += " " + value
		}

		if env := doc.GetEnvVars(); len(env) > 0 {
			usage += " [$" + strings.Join(env, ", $") + "]"
		}

		rows = append(rows, [2]string{name, usage})
	}

	return rows
}

// placeholder returns a usage without its backquotes, and the word between them:
// the name of the value.
func placeholder(usage string) (text, value string) {
	before, rest, ok := strings.Cut(usage, "`")
	if !ok {
		return usage, "VALUE"
	}
	value, after, _ := strings.Cut(rest, "`")

	return before + value + after, value
}

// section writes a titled list of terms and texts in two columns, in lines of at most
// width columns.
func section(b *bytes.Buffer, title string, rows [][2]string, width int) {
	if len(rows) == 0 {
		return
	}

	terms := 0
	for _, r := range rows {
		terms = max(terms, min(runewidth.StringWidth(r[0]), termWidth))
	}

	fmt.Fprintf(b, "\n%s:\n", title)

	for _, r := range rows {
		lines := strings.Split(print.Fold(r[1], width-4-terms), "\n")

		// A long term gets a line of its own.
		if runewidth.StringWidth(r[0]) > terms {
			fmt.Fprintf(b, "  %s\n", r[0])
		} else {
			fmt.Fprintf(b, "  %s  %s\n", runewidth.FillRight(r[0], terms), lines[0])
			lines = lines[1:]
		}

		for _, l := range lines {
			fmt.Fprintf(b, "  %s  %s\n", strings.Repeat(" ", terms), l)
		}
	}
}
