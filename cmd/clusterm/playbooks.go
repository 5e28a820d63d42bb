// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/daemon"
	"github.com/contiv/cluster/management/step/playbook/program"
)

// errPlaybooks ends a check that found errors, which it has printed.
var errPlaybooks = errors.New("the playbooks have errors")

func playbooksCommand(config cli.Flag) *cli.Command {
	return &cli.Command{
		Name:  "playbooks",
		Usage: "export the bundled playbooks, and check a folder of playbooks",
		UsageText: "clusterm playbooks export DIR\n" +
			"clusterm playbooks check [DIR]",
		Description: "They need no manager; a check uses the groups that were set at run time if one runs. " +
			"docs/playbooks.md describes what a folder of playbooks contains.",
		Commands: []*cli.Command{exportPlaybooksCommand(), checkPlaybooksCommand(config)},
		Action: func(context.Context, *cli.Command) error {
			return usageError{errors.New("playbooks needs a command: export or check")}
		},
	}
}

func exportPlaybooksCommand() *cli.Command {
	return &cli.Command{
		Name:      "export",
		Usage:     "write the bundled playbooks into a folder, to edit them",
		UsageText: "clusterm playbooks export [--force] DIR",
		Flags: []cli.Flag{&cli.BoolFlag{
			Name: "force", Usage: "write into a folder that is not empty, and replace files of the same name",
		}},
		Action: func(_ context.Context, c *cli.Command) error {
			if c.Args().Len() != 1 {
				return usageError{errors.New("playbooks export takes one folder")}
			}

			folder, err := filepath.Abs(c.Args().First())
			if err != nil {
				return err
			}
			files, err := program.Export(folder, c.Bool("force"))
			if err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "ok: wrote %d files to %[2]s\n"+
				"  edit them, then check them:    clusterm playbooks check %[2]s\n"+
				"  have the manager use them:     clusterctl config set playbooks=%[2]s\n", files, folder)

			return nil
		},
	}
}

func checkPlaybooksCommand(config cli.Flag) *cli.Command {
	return &cli.Command{
		Name:      "check",
		Usage:     "check a folder of playbooks as the manager would use it; contacts no host",
		UsageText: "clusterm playbooks check [-o json] [--config FILE] [DIR]",
		Description: "It checks the syntax with ansible-playbook, lists the plays with the groups of the " +
			"configuration that they act on, and names missing files, risky permissions, and encrypted variables " +
			"without a password in vault_ids. Without DIR it checks the folder of the configuration, " +
			"or the bundled playbooks. It fails if the manager would refuse the folder.",
		Flags: []cli.Flag{config, &cli.StringFlag{
			Name: "output", Aliases: []string{"o"}, Value: "text", Usage: "`FORMAT`: text or json",
		}},
		Action: checkPlaybooks,
	}
}

func checkPlaybooks(ctx context.Context, c *cli.Command) error {
	format := c.String("output")
	if format != "text" && format != "json" {
		return usageError{fmt.Errorf("the format is text or json, not %q", format)}
	}

	if c.Args().Len() > 1 {
		return usageError{errors.New("playbooks check takes one folder")}
	}

	folder := c.Args().First()
	if folder != "" {
		var err error
		if folder, err = filepath.Abs(folder); err != nil {
			return err
		}
	}

	path := daemon.Options{ConfigPath: c.String("config"), UsualPath: defaultConfig}.Path()

	report, err := daemon.CheckPlaybooks(ctx, path, folder)
	if err != nil {
		return err
	}

	if format == "json" {
		out := json.NewEncoder(os.Stdout)
		out.SetIndent("", "  ")
		err = out.Encode(report)
	} else {
		err = printPlaybooks(os.Stdout, report, columns(os.Stdout))
	}

	if err == nil && !report.OK {
		err = errPlaybooks
	}

	return err
}

// printPlaybooks prints a report for people, in lines that fit a terminal of the width;
// 0: whole lines.
func printPlaybooks(w io.Writer, r program.Report, width int) error {
	var b strings.Builder

	for _, p := range r.Playbooks {
		switch {
		case p.Missing:
			fmt.Fprintf(&b, "%s: missing\n", p.File)
			continue
		case p.Broken:
			fmt.Fprintf(&b, "%s: does not parse\n", p.File)
			continue
		}

		fmt.Fprintf(&b, "%s:\n", p.File)

		for _, play := range p.Plays {
			acts := strings.Join(play.Groups, ", ")
			if play.Helpers {
				acts = strings.TrimPrefix(acts+", the helper of a job", ", ")
			}
			fmt.Fprintf(&b, "  %s (acts on %s)\n", print.Line(play.Name), cmp.Or(acts, "nothing"))
		}
	}

	b.WriteString("groups of the configuration:\n")

	for _, g := range r.Groups {
		fmt.Fprintf(&b, "  %s: %s\n", g.Name, cmp.Or(strings.Join(g.Playbooks, ", "), "no playbook acts on it"))
	}

	for _, p := range r.Problems {
		message := fmt.Sprintf("%s: %s: %s", p.Severity, cmp.Or(p.File, "the folder"), print.Text(p.Message))

		// The lines of Ansible show where the error is.
		for i, line := range strings.Split(strings.TrimSpace(message), "\n") {
			switch {
			case i == 0:
				b.WriteString(strings.TrimSpace(print.Fold("  "+line, width)) + "\n")
			case strings.TrimSpace(line) != "":
				b.WriteString(print.Fold("  "+line, width) + "\n")
			}
		}

		if p.Remedy != "" {
			b.WriteString(print.Fold("  "+p.Remedy, width) + "\n")
		}
	}

	if r.OK {
		fmt.Fprintf(&b, "ok: %s\n", cmp.Or(r.Folder, "the bundled playbooks"))
	}

	_, err := io.WriteString(w, b.String())

	return err
}
