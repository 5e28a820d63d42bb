// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/sirupsen/logrus"
	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/daemon"
	"github.com/contiv/cluster/management/etcd/tool"
)

// storeCommand groups the commands for the store. They work beside a running daemon,
// and without one.
func storeCommand() *cli.Command {
	return &cli.Command{
		Name:  "store",
		Usage: "check the store and make room in it, whether or not the daemon runs",
		UsageText: "clusterm store check\n" +
			"clusterm store compact && clusterm store defragment\n" +
			"clusterm store disarm\n" +
			"clusterm store remove v/nodes/web-1",
		Description: "The daemon does all of this by itself where it can. These commands are for the rest: see " +
			"docs/operating/store.md. Run them as root on the manager's host. On one of several instances they " +
			"work on the store of all, also while that instance is stopped.",
		Commands: []*cli.Command{
			storeCheckCommand(),
			storeSizeCommand("compact", "discard old revisions of records, so that their space can be used again",
				"Make room in the file, then give it back to the file system:\n\n"+
					"   clusterm store compact && clusterm store defragment",
				(*tool.Tool).Compact),
			storeSizeCommand("defragment", "give free space in the database back to the file system",
				"One member after another copies its database and answers nothing meanwhile, about a second for "+
					"each 100 MB. The daemon defragments by itself while no job runs. By hand:\n\n"+
					"   clusterm store compact && clusterm store defragment",
				(*tool.Tool).Defragment),
			storeDisarmCommand(),
			storeRemoveCommand(),
		},
		Action: func(context.Context, *cli.Command) error {
			return usageError{errors.New("store needs a command: check, compact, defragment, disarm or remove")}
		},
	}
}

func storeCheckCommand() *cli.Command {
	return &cli.Command{
		Name:      "check",
		Usage:     "check files, space, alarms, records and settings; change nothing",
		UsageText: "clusterm store check [--config FILE]",
		Description: "Exit status 1 if there is a problem. Without the daemon, it checks the files of the embedded " +
			"etcd first, and runs that for as long:\n\n" +
			"   systemctl stop clusterm; clusterm store check",
		Action: withStore(func(ctx context.Context, t *tool.Tool, c *cli.Command) error {
			out := c.Root().Writer

			r, err := t.Check(ctx)
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "store    %s\n", r.Where)

			for _, s := range r.Spaces {
				fmt.Fprintf(out, "space    %s\n", s)

				for _, alarm := range s.Alarms {
					fmt.Fprintf(out, "alarm    %s\n", alarm)
				}
			}

			fmt.Fprintf(out, "records  %d, of these %d unreadable\n", r.Records, len(r.Unreadable))

			for _, u := range r.Unreadable {
				fmt.Fprintf(out, "   %s: %v\n", u.Key, u.Reason)
			}

			if r.Settings != nil {
				fmt.Fprintf(out, "settings %v\n", r.Settings)
			}

			if problem := r.Problem(); problem != nil {
				return inventory.Errorf(inventory.KindRefused, "%w", problem).
					Do("see docs/operating/store.md for the way out")
			}

			return nil
		}),
	}
}

// storeSizeCommand is a command that prints the sizes before and after.
func storeSizeCommand(
	name, usage, description string, do func(*tool.Tool, context.Context) error,
) *cli.Command {
	return &cli.Command{
		Name:        name,
		Usage:       usage,
		UsageText:   "clusterm store " + name + " [--config FILE]",
		Description: description,
		Action: withStore(func(ctx context.Context, t *tool.Tool, c *cli.Command) error {
			printSpaces(ctx, c.Root().Writer, "before", t)

			if err := do(t, ctx); err != nil {
				return err
			}

			printSpaces(ctx, c.Root().Writer, "now", t)

			return nil
		}),
	}
}

func printSpaces(ctx context.Context, out io.Writer, when string, t *tool.Tool) {
	for _, s := range t.Spaces(ctx) {
		fmt.Fprintf(out, "%-7s  %s\n", when, s)
	}
}

func storeDisarmCommand() *cli.Command {
	return &cli.Command{
		Name:      "disarm",
		Usage:     "clear the alarms with which etcd refuses changes",
		UsageText: "clusterm store disarm [--config FILE]",
		Description: "The alarm NOSPACE returns as soon as the database reaches its quota again, so make room " +
			"first, or right after it:\n\n" +
			"   clusterm store disarm && clusterctl config set jobs.keep=100\n\n" +
			"The alarm CORRUPT is raised for damaged data. Clear it only if 'clusterm store check' finds no damage.",
		Action: withStore(func(ctx context.Context, t *tool.Tool, c *cli.Command) error {
			out := c.Root().Writer

			cleared, err := t.Disarm(ctx)
			for _, alarm := range cleared {
				fmt.Fprintf(out, "cleared  %s\n", alarm)
			}

			if err == nil && len(cleared) == 0 {
				fmt.Fprintln(out, "no alarm is raised")
			}

			return err
		}),
	}
}

func storeRemoveCommand() *cli.Command {
	return &cli.Command{
		Name:      "remove",
		Usage:     "remove a record that cannot be read; refuses any other",
		UsageText: "clusterm store remove KEY [--config FILE]",
		Description: "'clusterm store check' and the check \"records\" of 'clusterctl status' list the keys. A node " +
			"without its record is unknown until it is seen again, and then Quarantined, like the nodes that a " +
			"removed job held; a backup is better, if there is one:\n\n" +
			"   clusterm store remove v/nodes/web-1",
		Action: withStore(func(ctx context.Context, t *tool.Tool, c *cli.Command) error {
			if c.Args().Len() != 1 {
				return usageError{errors.New("remove needs one key, e.g. v/nodes/web-1")}
			}

			if err := t.Remove(ctx, c.Args().First()); err != nil {
				return err
			}

			fmt.Fprintf(c.Root().Writer, "removed  %s\n", c.Args().First())

			return nil
		}),
	}
}

// withStore opens the store for an action.
func withStore(do func(context.Context, *tool.Tool, *cli.Command) error) cli.ActionFunc {
	return func(ctx context.Context, c *cli.Command) (err error) {
		if c.Name != "remove" && c.Args().Present() {
			return usageError{fmt.Errorf("store %s takes no argument %q", c.Name, c.Args().First())}
		}

		t, err := openStore(ctx, c)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, t.Close()) }()

		return do(ctx, t, c)
	}
}

// openStore connects to the store, and runs it if no daemon does.
func openStore(ctx context.Context, c *cli.Command) (*tool.Tool, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}

	log := logger()
	log.SetLevel(logrus.ErrorLevel)

	return daemon.OpenStoreTool(ctx, daemon.Options{
		ConfigPath: c.String("config"), UsualPath: defaultConfig, Command: []string{self}, Logger: log,
	})
}
