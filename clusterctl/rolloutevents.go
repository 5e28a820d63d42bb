// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
)

func (a *app) rolloutEvents() leaf {
	return leaf{
		name: "events", args: "ID", hidden: true, formats: namelessFormats,
		usage: "show who did what with a rollout, and what it decided, oldest first", complete: rolloutIDs,
		about: "The manager keeps the last 200 events of a rollout. With -f the command also prints each new one, " +
			"until the rollout has ended; with -o json as well, one object per line. Ctrl-C stops the display only.",
		flags: []cli.Flag{
			switchFlag("follow", "print new events, too, until the end", "f"),
			valueFlag("limit", "at most the last `N` events"),
		},
		examples: []string{
			"clusterctl rollout events r7b1e44d2",
			"clusterctl rollout events r7b1e44d2 --limit 5 -o long",
			"clusterctl rollout events -f r7b1e44d2",
		},
		run: rolloutEvents,
	}
}

func rolloutEvents(ctx context.Context, c *call) error {
	limit, err := number(c, "limit", 1)
	if err != nil {
		return err
	}

	// A manager that cannot be reached at all is an error at once, and not waited for.
	r, err := c.manager.Rollout(ctx, c.args[0])
	if err != nil {
		return err
	}

	// The manager lists the newest first.
	slices.Reverse(r.Events)

	if limit > 0 {
		r.Events = r.Events[max(0, len(r.Events)-limit):]
	}

	if c.Bool("follow") {
		return c.followEvents(ctx, r)
	}

	return noun[api.RolloutEvent]{
		columns: print.RolloutEventColumns, long: print.RolloutEventDetails.Blocks,
		empty: "rollout " + r.ID + " has no events",
		all: func(context.Context, *call) (listing[api.RolloutEvent], error) {
			return listingOf(api.List[api.RolloutEvent]{Items: r.Events}, nil)
		},
	}.showAll(ctx, c)
}

// followEvents prints the events of the rollout, and each new one until it has ended.
func (c *call) followEvents(ctx context.Context, r api.Rollout) error {
	if c.format != print.FormatTable && c.format != print.FormatJSON {
		return exit.Usagef("--follow prints one event per line, which -o %s cannot do", c.format).
			Try("leave out -o, or use -o json")
	}

	if err := c.printEvents(r.Events); err != nil || r.Status.Ended() {
		return err
	}

	var failed error

	// A watch shows the whole rollout each time.
	shown := r.Events
	_, err := c.manager.WatchRollout(ctx, r.ID, func(now api.Rollout) bool {
		slices.Reverse(now.Events)
		failed = c.printEvents(newEvents(shown, now.Events))
		shown = now.Events

		return failed == nil
	})

	switch {
	case failed != nil:
		return failed
	case err != nil && ctx.Err() != nil:
		return exit.Errorf(exit.Interrupted, "detached; the rollout %s goes on", r.ID).
			Try("to follow it again: %s rollout show --events -f %s", c.self(), r.ID)
	}

	return err
}

// newEvents returns the events after the last of those that were shown. The manager drops the
// oldest.
func newEvents(shown, now []api.RolloutEvent) []api.RolloutEvent {
	if len(shown) == 0 {
		return now
	}

	last := shown[len(shown)-1]
	same := func(e api.RolloutEvent) bool {
		return e.Time.Equal(last.Time) && e.Kind == last.Kind && e.Node == last.Node && e.Text == last.Text
	}

	return now[slices.IndexFunc(now, same)+1:]
}

// printEvents prints events, one per line.
func (c *call) printEvents(events []api.RolloutEvent) error {
	for _, e := range events {
		line := []byte(print.RolloutEventLine(e))

		if c.format == print.FormatJSON {
			var err error
			if line, err = json.Marshal(e); err != nil {
				return err
			}
		}

		if err := c.write(append(line, '\n')); err != nil {
			return err
		}
	}

	return nil
}
