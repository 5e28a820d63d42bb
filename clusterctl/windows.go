// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"time"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

func windowsRows() rows {
	return rows{
		"windows": {
			formats: namelessFormats,
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
		},
		"freeze on": {formats: namelessFormats, run: freezeOn},
		"freeze off": {
			formats: namelessFormats,
			run: func(ctx context.Context, c *call) error {
				return c.showFreeze(c.manager.LiftFreeze(ctx, c.String("reason")))
			},
		},
		"freeze status": {formats: namelessFormats, run: one((*client.Client).Freeze, (*print.Printer).Freeze)},
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
