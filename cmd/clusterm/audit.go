// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/audit"
)

// auditCommand reads the audit trail, with or without a running daemon.
func auditCommand() *cli.Command {
	return &cli.Command{
		Name:  "audit",
		Usage: "print the audit trail: changes, refusals, and decisions of the manager",
		UsageText: "clusterm audit --since 24h\n" +
			"clusterm audit --node web-1 --verb nodes --json\n" +
			"clusterm audit verify",
		Description: "One line for each entry, the oldest first: time, who, verb, targets, job, and the error if it " +
			"was refused. With --json the entries are JSON lines with their hashes, to export. Run it as root on the " +
			"manager's host; the daemon need not run. docs/operating/security.md explains the trail.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "since", Usage: "entries since `TIME`: an age such as 24h, or 2026-01-02T15:04:05Z"},
			&cli.StringFlag{Name: "until", Usage: "entries before `TIME`, in the same forms"},
			&cli.StringFlag{Name: "who", Usage: "entries of this `NAME`"},
			&cli.StringFlag{Name: "verb", Usage: "entries of this `VERB`, such as jobs or jobs.cancel"},
			&cli.StringFlag{Name: "node", Usage: "entries about this `NODE`, address, job or level of variables"},
			&cli.StringFlag{
				Name:  "result",
				Usage: "entries with this `RESULT`: done, failed, or a kind such as forbidden",
			},
			&cli.StringFlag{Name: "job", Usage: "entries about the job `NUMBER`"},
			&cli.StringFlag{Name: "request", Usage: "entries of the request `ID`"},
			&cli.BoolFlag{Name: "json", Usage: "print JSON lines"},
		},
		Commands: []*cli.Command{auditVerifyCommand()},
		Action:   printAudit,
	}
}

func printAudit(ctx context.Context, c *cli.Command) error {
	if word := c.Args().First(); word != "" {
		return usageError{fmt.Errorf("there is no command \"audit %s\"", word)}
	}

	now := time.Now()

	since, err := timeOf("since", c.String("since"), now)
	if err != nil {
		return usageError{err}
	}

	until, err := timeOf("until", c.String("until"), now)
	if err != nil {
		return usageError{err}
	}

	out := c.Root().Writer

	filter := audit.Filter{
		Since: since, Until: until, Who: c.String("who"), Verb: c.String("verb"), Target: c.String("node"),
		Result: c.String("result"), Job: c.String("job"), Request: c.String("request"),
	}

	return withTrail(ctx, c, func(r audit.Reader) error {
		return r.Read(ctx, filter, func(e audit.Entry) error {
			line := auditLine(e)
			if c.Bool("json") {
				line = string(e.Export())
			}
			_, err := fmt.Fprintln(out, line)
			return err
		})
	})
}

// withTrail reads the trail in the store.
func withTrail(ctx context.Context, c *cli.Command, read func(audit.Reader) error) (err error) {
	t, err := openStore(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Close()) }()

	r, err := t.Trail(ctx)
	if err != nil {
		return err
	}
	return read(r)
}

// timeOf parses an option: an age or a time. Empty is the zero time.
func timeOf(option, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}

	if age, err := time.ParseDuration(text); err == nil && age >= 0 {
		return now.Add(-age), nil
	}

	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf(
			"--%s %q is neither an age such as 24h nor a time such as 2026-01-02T15:04:05Z", option, text)
	}

	return at, nil
}

// auditLine is an entry for people. The trail holds no control characters.
func auditLine(e audit.Entry) string {
	words := []string{e.Time.Local().Format("2006-01-02 15:04:05"), e.Who, e.Verb}
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

	if e.Result != audit.Done {
		words = append(words, e.Result+": "+e.Error)
	}

	if e.From != "" {
		words = append(words, "from="+e.From)
	}

	if e.Request != "" {
		words = append(words, "request="+e.Request)
	}

	return strings.Join(words, "  ")
}

func auditVerifyCommand() *cli.Command {
	return &cli.Command{
		Name:  "verify",
		Usage: "check the chain of hashes; change nothing",
		UsageText: "clusterm audit verify [--config FILE]\n" +
			"clusterm audit verify --export audit.jsonl",
		Description: "Exit status 1 if an entry is missing or was changed, also one between two of an export. " +
			"Compare the last number and hash with those that you have kept elsewhere: the chain alone cannot " +
			"show entries that were cut off at its end.",
		Flags: []cli.Flag{
			&cli.StringFlag{
				Name:  "export",
				Usage: "check a `FILE` instead, on any host: the output of clusterctl audit -o jsonl",
			},
			&cli.BoolFlag{Name: "selected", Usage: "the export was made with filters, so it may leave entries out"},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			r, err := verifyAudit(ctx, c)
			if err != nil {
				return err
			}
			return printReport(c.Root().Writer, r, c.Bool("selected"))
		},
	}
}

func verifyAudit(ctx context.Context, c *cli.Command) (r audit.Report, err error) {
	path := c.String("export")
	if path == "" {
		err = withTrail(ctx, c, func(t audit.Reader) error {
			r, err = t.Verify(ctx)
			return err
		})

		return r, err
	}
	f, err := os.Open(path)
	if err != nil {
		return audit.Report{}, usageError{err}
	}
	defer f.Close()

	return audit.VerifyExport(ctx, f)
}

// printReport prints the result of a check, and returns an error about a damaged trail.
func printReport(out io.Writer, r audit.Report, selected bool) error {
	fmt.Fprintf(out, "entries  %d, from %d to %d\n", r.Entries, r.First, r.Last)
	fmt.Fprintf(out, "hash     %s\n", r.LastHash)

	if r.Lost > 0 {
		fmt.Fprintf(out, "gaps     %d, each with the number of its entries: clusterm audit --verb %s\n",
			r.Lost, audit.VerbLost)
	}

	if r.Missing > 0 {
		fmt.Fprintf(out, "left out %d entries between the first and the last one\n", r.Missing)
	}

	for _, d := range r.Dropped {
		fmt.Fprintf(out, "dropped  %s\n", d)
	}

	for _, p := range r.Problems {
		fmt.Fprintf(out, "problem  %s\n", p)
	}

	if len(r.Problems) > 0 {
		return inventory.Errorf(inventory.KindRefused, "the audit trail is damaged").
			Do("compare it with the journal: journalctl -u clusterm; and keep a copy of the data directory")
	}

	if r.Missing > 0 && !selected {
		return inventory.Errorf(inventory.KindRefused, "the export leaves out %d entries", r.Missing).
			Do("compare it with the trail; if it was made with filters, say so with --selected")
	}

	return nil
}
