// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/step/playbook/program"
)

// TestHelpFits prints the help of every command for a terminal of 80 columns.
func TestHelpFits(t *testing.T) {
	const columns = 80

	var check func(path string, c *cli.Command)
	check = func(path string, c *cli.Command) {
		var whole, folded bytes.Buffer

		template := cli.CommandHelpTemplate
		if len(c.Commands) > 0 {
			template = cli.SubcommandHelpTemplate
		}
		printHelp(&whole, template, c, 0)
		printHelp(&folded, template, c, columns)

		if a, b := strings.Fields(whole.String()), strings.Fields(
			folded.String(),
		); strings.Join(a, " ") != strings.Join(b, " ") {
			t.Errorf("%s: the words of the help change:\n%s", path, folded.String())
		}

		for line := range strings.Lines(folded.String()) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > columns {
				t.Errorf("%s: a line of %d columns: %s", path, n, line)
			}
		}

		for _, sub := range c.Commands {
			check(path+" "+sub.Name, sub)
		}
	}

	check("clusterm", rootCommand(func(int) error { return nil }))
}

func TestFoldHelp(t *testing.T) {
	t.Parallel()

	const help = "OPTIONS:\n   --config FILE, -c FILE  configuration FILE (default: none)\n\n" +
		"   One sentence of prose here.\n"

	const want = "OPTIONS:\n   --config FILE, -c FILE  configuration FILE\n" +
		"                           (default: none)\n\n   One sentence of prose here.\n"
	if got := foldHelp(help, 47); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestPrintPlaybooks: the lines of Ansible's message stay apart, because they show where
// the error is; those that a terminal cannot hold are broken between words.
func TestPrintPlaybooks(t *testing.T) {
	t.Parallel()

	r := program.Report{
		Playbooks: []program.CheckedPlaybook{
			{File: "site.yml", Plays: []program.CheckedPlay{{Name: "Nodes", Groups: []string{"web"}}}},
			{File: "cleanup.yml", Missing: true},
			{File: "rolling-upgrade.yml", Broken: true},
		},
		Groups: []program.CheckedGroup{{Name: "web", Playbooks: []string{"site.yml"}}},
		Problems: []program.Problem{
			{Severity: "error", File: "cleanup.yml", Message: "it is missing", Remedy: "add it"},
			{
				Severity: "error",
				File:     "rolling-upgrade.yml",
				Remedy:   "correct it",
				Message: "it does not parse:\nERROR! did not find the expected\x1b[2J key\n\n" +
					"      nonsense: {{ b }}\n   ^ here\n",
			},
		},
	}

	const head = "site.yml:\n  Nodes (acts on web)\ncleanup.yml: missing\nrolling-upgrade.yml: does not parse\n" +
		"groups of the configuration:\n  web: site.yml\nerror: cleanup.yml: it is missing\n  add it\n"

	for width, want := range map[int]string{
		0: head + "error: rolling-upgrade.yml: it does not parse:\n  ERROR! did not find the expected key\n" +
			"        nonsense: {{ b }}\n     ^ here\n  correct it\n",
		35: head + "error: rolling-upgrade.yml: it\n  does not parse:\n  ERROR! did not find the expected\n  key\n" +
			"        nonsense: {{ b }}\n     ^ here\n  correct it\n",
	} {
		var out strings.Builder
		errtest.None(t, printPlaybooks(&out, r, width))

		if out.String() != want {
			t.Errorf("width %d: got\n%swant\n%s", width, out.String(), want)
		}
	}
}
