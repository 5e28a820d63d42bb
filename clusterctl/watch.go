// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
)

func watchFlag() cli.Flag {
	return switchFlag("watch", "print a row for every change, until Ctrl-C; for tables only", "w")
}

// checkWatch refuses --watch with a format other than a table.
func (c *call) checkWatch() error {
	if c.format == print.FormatTable || c.format == print.FormatWide {
		return nil
	}

	return exit.Usagef("--watch works with tables only, not with -o %s", c.format).
		Try("drop one of the two options; for programs: clusterctl nodes watch -o json")
}

// columnFlags are the options of a command that prints a table with columns.
func columnFlags(all []string) []cli.Flag {
	return []cli.Flag{
		listFlag("columns", "the `COLUMNS` of the table, separated by commas: "+strings.Join(all, ", ")),
		listFlag("sort", "sort by these `COLUMNS`, separated by commas; a leading - reverses one"),
	}
}

// layoutOf reads the options of columnFlags.
func layoutOf[T any](c *call, all print.Columns[T]) (print.Layout[T], error) {
	return all.Layout(values(c, "columns"), values(c, "sort"), c.format)
}
