// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"strconv"
	"time"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/follow"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// auditTail is the default of audit --tail.
const auditTail = 50

func auditRows() rows {
	return rows{
		"audit": {
			formats:  []string{print.FormatWide, print.FormatJSON, print.FormatYAML, print.FormatLines},
			complete: func(context.Context, *completer, string) []candidate { return words("verify") },
			run:      showAudit,
		},
	}
}

// auditFilter reads the filters of the command line.
func auditFilter(c *call) (f client.AuditFilter, err error) {
	if f.Since, err = c.since(); err != nil {
		return f, err
	}

	if c.IsSet("until") {
		if f.Until, err = parseTime("until", c.String("until"), time.Now()); err != nil {
			return f, err
		}
	}

	f.Who, f.Verb, f.Node, f.Result = c.String("who"), c.String("verb"), c.String("node"), c.String("result")
	f.Job, f.Request = c.String("job"), c.String("request")

	return f, nil
}

// auditNumber returns the number of newest entries to show; 0: all.
func auditNumber(c *call, f client.AuditFilter) (int, error) {
	switch {
	case c.IsSet("tail") && !f.Since.IsZero():
		return 0, exit.Usagef("--tail and --since exclude each other")
	case c.IsSet("tail"):
		n, err := strconv.Atoi(c.String("tail"))
		if err != nil || n < 1 || n > api.MaxAuditPage {
			return 0, exit.Usagef("--tail needs a number from 1 to %d, not %q", api.MaxAuditPage, c.String("tail"))
		}
		return n, nil
	case !f.Since.IsZero():
		return 0, nil
	default:
		return auditTail, nil
	}
}

func showAudit(ctx context.Context, c *call) error {
	if len(c.args) > 0 {
		return verifyAudit(ctx, c)
	}

	f, err := auditFilter(c)
	if err != nil {
		return err
	}
	tail, err := auditNumber(c, f)
	if err != nil {
		return err
	}

	lines := c.format == print.FormatLines

	switch {
	case c.Bool("follow") && !f.Until.IsZero():
		return exit.Usagef("--follow and --until exclude each other")
	case c.Bool("follow") && c.format == print.FormatYAML:
		return exit.Usagef("--follow cannot print yaml").Try("use -o jsonl")
	case c.Bool("follow"):
		o := client.AuditOptions{AuditFilter: f, Tail: tail}
		return follow.Audit(ctx, c.manager, o, lines || c.format == print.FormatJSON, c.output())
	case lines && !c.IsSet("tail"):
		return c.manager.ExportAudit(ctx, f, writerFunc(c.write))
	}

	list, err := c.manager.Audit(ctx, f, tail)
	if err != nil {
		return err
	}
	if lines {
		return follow.AuditLines(list.Items, c.output())
	}

	if c.isEmpty(len(list.Items)) {
		c.say("no entry matches the filters")
		return nil
	}

	answer := print.Answer{Wire: list, Table: func(p *print.Printer) {
		for _, e := range list.Items {
			p.AuditEntry(e)
		}
	}}

	return c.show(answer)
}

// writerFunc makes a writer of a function.
type writerFunc func([]byte) error

func (f writerFunc) Write(p []byte) (int, error) {
	if err := f(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

func verifyAudit(ctx context.Context, c *call) error {
	if c.args[0] != "verify" {
		return exit.Usagef("audit cannot %s", c.args[0]).Try("the only word is verify; filters are options: --node %s",
			api.ShellQuote(c.args[0]))
	}

	// It checks the whole trail.
	for _, name := range c.LocalFlagNames() {
		return exit.Usagef("audit verify takes no --%s", name).
			Try("it checks the whole trail: %s audit verify", c.self())
	}

	if c.format == print.FormatLines {
		return exit.Usagef("audit verify cannot print jsonl").Try("use -o json")
	}

	r, err := c.manager.VerifyAudit(ctx)
	if err != nil {
		return err
	}
	if err := view(c, (*print.Printer).AuditReport)(r, nil); err != nil {
		return err
	}

	if len(r.Problems) > 0 {
		return exit.Errorf(exit.Failed, "the audit trail is damaged").
			Try("compare it with the log of the manager, and with an export that you have kept")
	}

	return nil
}
