// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/audit"
	"github.com/contiv/cluster/management/daemon"
)

// auditCommand reads the audit trail, with or without a running daemon.
func auditCommand() *cli.Command {
	return &cli.Command{
		Name:  "audit",
		Usage: "print the audit trail: changes, refusals, and decisions of the manager",
		UsageText: "clusterm audit --since 24h\n" +
			"clusterm audit --target web-1 --action nodes --json\n" +
			"clusterm audit verify",
		Description: "One line for each entry, the oldest first: time, principal, action, targets, job, and the " +
			"error if it was refused. With --json the entries are JSON lines, to export. Run it as root on the " +
			"manager's host; the daemon need not run. docs/operating/security.md explains the trail.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "since", Usage: "entries since `TIME`: an age such as 24h, or 2026-01-02T15:04:05Z"},
			&cli.StringFlag{Name: "principal", Usage: "entries of this `NAME`"},
			&cli.StringFlag{Name: "action", Usage: "entries of this `ACTION`, such as jobs or jobs.cancel"},
			&cli.StringFlag{Name: "target", Usage: "entries about this `NODE`, job or level of variables"},
			&cli.StringFlag{Name: "job", Usage: "entries about the job `NUMBER`"},
			&cli.BoolFlag{Name: "json", Usage: "print JSON lines"},
		},
		Commands: []*cli.Command{auditVerifyCommand()},
		Action: func(_ context.Context, c *cli.Command) error {
			if word := c.Args().First(); word != "" {
				return usageError{fmt.Errorf("there is no command \"audit %s\"", word)}
			}

			since, err := sinceTime(c.String("since"), time.Now())
			if err != nil {
				return usageError{err}
			}

			out := c.Root().Writer
			encoder := json.NewEncoder(out)

			return daemon.ReadAudit(auditConfig(c), audit.Filter{
				Since: since, Principal: c.String("principal"), Action: c.String("action"), Target: c.String("target"),
				Job: c.String("job"),
			}, func(e audit.Entry) error {
				if c.Bool("json") {
					return encoder.Encode(e)
				}

				_, err := fmt.Fprintln(out, auditLine(e))

				return err
			})
		},
	}
}

func auditConfig(c *cli.Command) string {
	return daemon.Options{ConfigPath: c.String("config"), UsualPath: defaultConfig}.Path()
}

// sinceTime parses --since: an age or a time. Empty is the zero time.
func sinceTime(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}

	if age, err := time.ParseDuration(text); err == nil && age >= 0 {
		return now.Add(-age), nil
	}

	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf(
			"--since %q is neither an age such as 24h nor a time such as 2026-01-02T15:04:05Z", text)
	}

	return at, nil
}

// auditLine is an entry for people. The trail holds no control characters.
func auditLine(e audit.Entry) string {
	words := []string{e.Time.Local().Format("2006-01-02 15:04:05"), e.Principal, e.Action}
	if len(e.Targets) > 0 {
		words = append(words, strings.Join(e.Targets, ","))
	}

	if e.Job != "" {
		words = append(words, "job="+e.Job)
	}

	if e.Replayed {
		words = append(words, "replayed")
	}

	if e.Reason != "" {
		words = append(words, fmt.Sprintf("reason=%q", e.Reason))
	}

	if e.Kind != "" {
		words = append(words, e.Kind+": "+e.Error)
	}

	return strings.Join(words, "  ")
}

func auditVerifyCommand() *cli.Command {
	return &cli.Command{
		Name:      "verify",
		Usage:     "check the chain of hashes; change nothing",
		UsageText: "clusterm audit verify [--config FILE]",
		Description: "Exit status 1 if an entry is missing or was changed. Compare the last number and hash with " +
			"those that you have kept elsewhere: the chain alone cannot show entries that were cut off at its end.",
		Action: func(_ context.Context, c *cli.Command) error {
			r, err := daemon.VerifyAudit(auditConfig(c))
			if err != nil {
				return err
			}

			out := c.Root().Writer
			fmt.Fprintf(out, "entries  %d, from %d to %d\n", r.Entries, r.First, r.Last)
			fmt.Fprintf(out, "hash     %s\n", r.LastHash)

			if r.Lost > 0 {
				fmt.Fprintf(out, "gaps     %d, each with the number of its entries: clusterm audit --action %s\n",
					r.Lost, audit.ActionLost)
			}

			for _, p := range r.Problems {
				fmt.Fprintf(out, "problem  %s\n", p)
			}

			if len(r.Problems) > 0 {
				return inventory.Errorf(inventory.KindRefused, "the audit trail is damaged").
					Do("compare it with the journal: journalctl -u clusterm; and keep a copy of data_dir/audit")
			}

			return nil
		},
	}
}
