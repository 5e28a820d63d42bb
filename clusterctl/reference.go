// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/management/api"
)

func referenceRows() rows {
	return rows{
		"man": {
			hidden:   true,
			local:    true,
			formats:  []string{},
			complete: fileNames,
			run: func(_ context.Context, c *call) error {
				//nolint:gosec // manual pages are for everybody
				if err := os.MkdirAll(c.args[0], 0o755); err != nil {
					return exit.Errorf(exit.Failed, "cannot create the directory: %v", err)
				}

				for name, page := range Man(c.app.Version) {
					//nolint:gosec // manual pages are for everybody
					if err := os.WriteFile(filepath.Join(c.args[0], name), page, 0o644); err != nil {
						return exit.Errorf(exit.Failed, "cannot write the page: %v", err)
					}
				}

				return nil
			},
		},
	}
}

// each calls do for a command and for every visible command below it.
func each(c *cli.Command, path string, do func(c *cli.Command, path string)) {
	do(c, path)

	for _, sub := range c.VisibleCommands() {
		each(sub, path+" "+sub.Name, do)
	}
}

// synopsis returns the form of a command line.
func synopsis(c *cli.Command, path string) string {
	switch {
	case len(c.VisibleCommands()) > 0:
		return path + " COMMAND [OPTION…] [ARGUMENT…]"
	case c.ArgsUsage == "":
		return path + " [OPTION…]"
	}

	return path + " [OPTION…] " + c.ArgsUsage
}

// sentence returns a usage as a sentence.
func sentence(usage string) string {
	return strings.ToUpper(usage[:1]) + usage[1:] + "."
}

// Man returns the manual pages by file name: one for the program, and one for
// every command.
func Man(v api.Version) map[string][]byte {
	// The pages need the command tree only, and no manager.
	root := (&app{}).root()
	pages := map[string][]byte{}
	each(root, "clusterctl", func(c *cli.Command, path string) {
		name := strings.ReplaceAll(path, " ", "-")
		var b bytes.Buffer
		fmt.Fprintf(&b, ".\\\" SPDX-License-Identifier: Apache-2.0\n.TH %s 1 \"\" \"clusterctl %s\" \"clusterm\"\n",
			strings.ToUpper(roff(name)), roff(v.Version))
		fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n.SH SYNOPSIS\n.B %s\n", roff(name), roff(c.Usage),
			roff(synopsis(c, path)))
		b.WriteString(".SH DESCRIPTION\n")

		// A page needs a description, even where the usage is enough.
		text := c.Description
		if text == "" {
			text = sentence(c.Usage)
		}

		for line := range strings.SplitSeq(text, "\n") {
			if line != "" {
				fmt.Fprintf(&b, "%s\n.PP\n", roff(line))
			}
		}

		if aliases := shownAliases(c); len(aliases) > 0 {
			fmt.Fprintf(&b, "Aliases: %s\n", roff(strings.Join(aliases, ", ")))
		}

		// A group lists all commands below it.
		if len(c.VisibleCommands()) > 0 {
			b.WriteString(".SH COMMANDS\n")
			each(c, path, func(sub *cli.Command, at string) {
				if len(sub.VisibleCommands()) == 0 {
					fmt.Fprintf(
						&b,
						".TP\n.B %s\n%s\n",
						roff(strings.TrimSpace(strings.TrimPrefix(at, "clusterctl ")+" "+sub.ArgsUsage)),
						roff(sub.Usage),
					)
				}
			})
		}

		terms(&b, "OPTIONS", flagRows(c.Flags))

		if c == root {
			terms(&b, "EXIT STATUS", exitRows())
		}

		b.WriteString(".SH EXAMPLES\n.nf\n")

		for _, e := range examplesOf(c) {
			fmt.Fprintf(&b, "%s\n", roff(e))
		}

		b.WriteString(".fi\n.SH SEE ALSO\n")

		if c == root {
			fmt.Fprintf(&b, "%s, clusterm(8)\n", roff("clusterctl-nodes-get(1) and the pages of the other commands"))
		} else {
			b.WriteString("clusterctl(1) for global options and the exit status\n")
		}

		pages[name+".1"] = b.Bytes()
	})

	return pages
}

// terms writes a titled list of terms and texts.
func terms(b *bytes.Buffer, title string, rows [][2]string) {
	if len(rows) == 0 {
		return
	}

	fmt.Fprintf(b, ".SH %s\n", title)

	for _, r := range rows {
		fmt.Fprintf(b, ".TP\n.B %s\n%s\n", roff(r[0]), roff(r[1]))
	}
}

// roff escapes text for troff.
func roff(text string) string {
	// Unescaped, - is a hyphen instead of a minus, and breaks copied options.
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}
