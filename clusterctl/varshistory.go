// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"fmt"
	"strconv"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
)

func (a *app) varsHistory() leaf {
	return leaf{
		name: "history", usage: "show the changes of the variables of a level, oldest first",
		about: "The manager keeps the newest 50 changes of each level, within 64 KiB. -o long shows whole values.",
		flags: append(scopeFlags(), valueFlag("limit", "at most the last `N` changes")),
		examples: []string{
			"clusterctl vars history --global",
			"clusterctl vars history --node web-1-AB12 --limit 1 -o long",
		},
		run: func(ctx context.Context, c *call) error {
			s, err := c.scope(ctx)
			if err != nil {
				return err
			}

			limit, err := number(c, "limit", 1)
			if err != nil {
				return err
			}

			return noun[api.VarsChange]{
				columns: print.VarsChangeColumns, long: print.VarsChangeDetails.Blocks,
				name:  func(change api.VarsChange) string { return strconv.FormatInt(change.Revision, 10) },
				empty: "no change of the variables of " + s.title + " is recorded",
				all: func(ctx context.Context, c *call) (listing[api.VarsChange], error) {
					return listingOf(c.manager.VarsHistory(ctx, s.Scope, limit))
				},
			}.showAll(ctx, c)
		},
	}
}

func (a *app) varsUndo() leaf {
	return leaf{
		name: "undo", usage: "undo the last change of the variables of a level, or all changes after a revision",
		about: "It sets all variables of the level to their values at that time, hidden ones included. The undo is a " +
			"change of its own, so it can be undone too. If somebody changes the variables meanwhile, it fails.",
		flags:    append(scopeFlags(), valueFlag("to", "return to the variables as of `REVISION`, from vars history")),
		examples: []string{"clusterctl vars undo --global", "clusterctl vars undo --group service-worker --to 412"},
		run:      varsUndo,
	}
}

func varsUndo(ctx context.Context, c *call) error {
	s, err := c.scope(ctx)
	if err != nil {
		return err
	}

	// The tag comes before the history, so that an undo of an unseen change fails.
	_, tag, err := c.manager.TaggedVars(ctx, s.Scope)
	if err != nil {
		return err
	}

	to, err := c.undoTarget(ctx, s)
	if err != nil {
		return err
	}

	done, err := c.manager.IfMatch(tag).UndoVars(ctx, s.Scope, to)
	if err != nil {
		return err
	}

	return c.changed(done, nil, "the variables of %s are as of revision %d again", s.title, to)
}

// undoTarget returns the revision of --to, or the one before the last change.
func (c *call) undoTarget(ctx context.Context, s scope) (int64, error) {
	if text := c.String("to"); text != "" {
		to, err := strconv.ParseInt(text, 10, 64)
		if err != nil || to < 0 {
			return 0, exit.Usagef("--to is %q, not a revision", text).
				Try("list the revisions: clusterctl vars history")
		}

		return to, nil
	}

	last, err := c.manager.VarsHistory(ctx, s.Scope, 1)
	if err != nil {
		return 0, err
	}

	if len(last.Items) == 0 {
		return 0, exit.Errorf(exit.Refused, "no change of the variables of %s is recorded", s.title)
	}

	change := last.Items[0]
	c.say("undoing the change of revision %d by %s: %s", change.Revision, print.Line(change.Actor), keysOf(change))

	return change.Revision - 1, nil
}

// keysOf lists the variables of a change.
func keysOf(change api.VarsChange) string {
	all := api.Vars{}
	for _, side := range []api.Vars{change.Before, change.After} {
		for k := range side {
			all[k] = nil
		}
	}

	return fmt.Sprint(keys(all))
}
