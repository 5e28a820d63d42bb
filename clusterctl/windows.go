// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

func (a *app) windows() leaf {
	return leaf{
		name: "windows", formats: namelessFormats,
		usage: "list the maintenance windows, and whether changes are frozen",
		about: "A job that would change a node outside of its maintenance windows waits in the queue, as does every " +
			"such job during a freeze. Nodes without a window may always change. The windows are a setting, windows; " +
			"`clusterctl window set` changes one of them.",
		examples: []string{"clusterctl windows", "clusterctl windows -o json"},
		run: func(ctx context.Context, c *call) error {
			windows, err := c.manager.Windows(ctx)
			if err != nil {
				return err
			}
			if c.isEmpty(len(windows.Windows)) {
				c.say("no maintenance windows are configured")
			}

			return view(c, (*print.Printer).Windows)(windows, nil)
		},
	}
}

func (a *app) freeze() leaf {
	return leaf{
		name: "freeze", usage: "hold back every change of hosts",
		commands: []leaf{
			{
				name: "on", formats: namelessFormats, usage: "hold back every job that would change a host",
				about: "Jobs wait in the queue; those that run go on. Verifications and checks are not held back, " +
					"nor a job with --override-window. A second freeze takes the place of the first one.",
				flags: []cli.Flag{
					valueFlag("until", "the end: a `TIME` such as 2026-01-05T08:00:00Z or \"2026-01-05 08:00:00\", "+
						"or a time from now such as 72h (default: until it is lifted)"),
					valueFlag("reason", "the `REASON`, which everyone who waits is shown"),
				},
				examples: []string{
					"clusterctl freeze on --until 2027-01-04T08:00:00Z --reason 'the end of the year'",
					"clusterctl freeze on --until 2h --reason 'an incident'",
				},
				run: freezeOn,
			},
			{
				name: "off", formats: namelessFormats, usage: "end the freeze",
				flags:    []cli.Flag{valueFlag("reason", "the `REASON` for the audit trail")},
				examples: []string{"clusterctl freeze off", "clusterctl freeze off --reason 'the incident is over'"},
				run: func(ctx context.Context, c *call) error {
					return c.showFreeze(c.manager.LiftFreeze(ctx, c.String("reason")))
				},
			},
			{
				name: "status", formats: namelessFormats, usage: "show whether changes are frozen, until when and why",
				examples: []string{"clusterctl freeze status", "clusterctl freeze status -o json"},
				run:      one((*client.Client).Freeze, (*print.Printer).Freeze),
			},
		},
	}
}

func freezeOn(ctx context.Context, c *call) error {
	if c.String("reason") == "" {
		return exit.Usagef("a freeze needs a reason").Try("add --reason TEXT")
	}

	request := api.FreezeRequest{Reason: c.String("reason")}

	if c.IsSet("until") {
		until, err := parseUntil("until", c.String("until"), time.Now())
		if err != nil {
			return err
		}
		request.Until = &until
	}

	before, err := c.manager.Freeze(ctx)
	if err != nil {
		return err
	}

	now, err := c.manager.SetFreeze(ctx, request)
	if err == nil && before.Active {
		c.say("%s", replacedFreeze(before))
	}
	return c.showFreeze(now, err)
}

// replacedFreeze describes a freeze that another one has replaced, which may end earlier.
func replacedFreeze(f api.Freeze) string {
	until := "until it was lifted"
	if f.Until != nil {
		until = "until " + print.Time(*f.Until)
	}
	return print.Line("it takes the place of the freeze by " + f.Actor + " " + until + ": " + f.Reason)
}

// parseUntil parses the value of an option for a time to come.
func parseUntil(option, text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return now.Add(d), nil
	}

	for _, layout := range []string{time.RFC3339, time.DateTime} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil && t.After(now) {
			return t, nil
		}
	}

	return time.Time{}, exit.Usagef("--%s: %q is not a time to come", option, text).
		Try("write a time from now such as 72h, or a time such as %s", now.Add(24*time.Hour).Format(time.RFC3339))
}

// showFreeze prints the freeze, unless the request failed.
func (c *call) showFreeze(f api.Freeze, err error) error {
	return view(c, (*print.Printer).Freeze)(f, err)
}
