// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

func importRows() rows {
	return rows{
		"nodes import":   {formats: namelessFormats, complete: fileNames, run: importNodes},
		"nodes add":      {formats: namelessFormats, complete: nothing, run: addNode},
		"nodes expected": expected.list(leaf{}),
		"nodes export":   {formats: []string{print.FormatJSON, print.FormatYAML}, run: exportNodes},
	}
}

var expected = noun[api.ExpectedMachine]{
	columns: print.ExpectedColumns,
	name:    api.ExpectedMachine.Key,
	empty:   "nothing is registered, and nothing is seen",
	all: func(ctx context.Context, c *call) (listing[api.ExpectedMachine], error) {
		if c.Bool("scan") {
			if err := c.scan(ctx); err != nil {
				return listing[api.ExpectedMachine]{}, err
			}
		}

		l, err := c.manager.Expected(ctx)

		if only := values(c, "result"); len(only) > 0 {
			l.Items = slices.DeleteFunc(l.Items, func(e api.ExpectedMachine) bool {
				return !slices.Contains(only, string(e.Result))
			})
			l.Total = len(l.Items)
		}

		return listingOf(l, err)
	},
}

// scanPoll is the time between two looks at a scan that runs.
const scanPoll = 200 * time.Millisecond

// scan asks for a scan for BMCs, and waits for its end.
func (c *call) scan(ctx context.Context) error {
	s, err := c.manager.StartScan(ctx)
	if err != nil {
		return err
	}

	c.say("asking %d addresses for BMCs", s.Addresses)

	for s.Running() {
		select {
		case <-ctx.Done():
			c.say("the scan goes on; its result: %s nodes expected", c.self())
			return context.Cause(ctx)
		case <-time.After(scanPoll):
		}

		if s, err = c.manager.Scan(ctx); err != nil {
			return err
		}
	}

	c.say("%d answers", s.Found)

	return nil
}

func importNodes(ctx context.Context, c *call) error {
	data, err := c.list(ctx, c.args[0])
	if err != nil {
		return err
	}

	return c.importList(ctx, api.Import{File: string(data), Prune: c.Bool("prune")})
}

// list reads a list of machines. A larger one than the manager takes is not read to its end.
func (c *call) list(ctx context.Context, name string) ([]byte, error) {
	data, err := until(ctx, func() ([]byte, error) {
		if name == "-" {
			return io.ReadAll(io.LimitReader(c.Stdin, api.MaxImportBytes+1))
		}

		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()

		return io.ReadAll(io.LimitReader(f, api.MaxImportBytes+1))
	})

	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, exit.Usagef("cannot read the list: %v", err).Try("give a file, or - for stdin")
	case len(data) > api.MaxImportBytes:
		return nil, exit.Usagef("the list is larger than %d MiB", api.MaxImportBytes>>20).Try("split it")
	}

	return data, nil
}

func (c *call) importList(ctx context.Context, r api.Import) error {
	r.DryRun = c.Bool("dry-run")
	if !c.Bool("no-manage") {
		r.Then = []inventory.Verb{inventory.VerbManage}
	}

	done, err := c.manager.Import(ctx, r)

	// The list is at fault, and no log of the manager tells more about it.
	if e, ok := errors.AsType[*inventory.Error](err); ok && e.Kind == inventory.KindInvalid {
		e.Request = ""
	}

	if err != nil {
		return err
	}

	for _, w := range done.Warnings {
		c.say("warning: %s", w)
	}

	if r.DryRun {
		c.say("nothing was changed; without --dry-run:")
	}

	err = c.show(print.Answer{
		Wire:  done,
		Table: func(p *print.Printer) { print.ImportColumns.Table(p, done.Machines) },
	})
	if err != nil || len(done.Jobs) == 0 {
		return err
	}

	return c.afterImport(ctx, done.Jobs[0])
}

// afterImport waits for the job that follows an import. The answer of the import is all that is printed for programs.
func (c *call) afterImport(ctx context.Context, id string) error {
	j, err := c.manager.Job(ctx, id)
	if err != nil {
		return err
	}

	if c.Bool("no-wait") {
		c.say("job %s: %s", j.ID, print.Title(j))
		return nil
	}

	c.answered = !c.forPeople()

	return c.accepted(ctx, j, nil)
}

// addFields are the options of nodes add, with the fields of a list that they set.
var addFields = []struct{ option, field string }{
	{"addr", "addr"},
	{"bmc", "pm_type"},
	{"bmc-addr", "pm_addr"},
	{"bmc-port", "pm_port"},
	{"bmc-user", "pm_user"},
	{"bmc-system", "pm_system_id"},
	{"uuid", "uuid"},
	{"arch", "arch"},
}

// addNode imports a list of one machine.
func addNode(ctx context.Context, c *call) error {
	e := map[string]any{"name": c.args[0]}

	for _, f := range addFields {
		if c.IsSet(f.option) {
			e[f.field] = c.String(f.option)
		}
	}

	if macs := values(c, "mac"); len(macs) > 0 {
		e["ports"] = macs
	}

	if name := c.String("bmc-password-file"); name != "" {
		data, err := c.list(ctx, name)
		if err != nil {
			return err
		}

		e["pm_password"] = strings.TrimRight(string(data), "\r\n")
	}

	data, err := json.Marshal([]any{e})
	if err != nil {
		return err
	}

	return c.importList(ctx, api.Import{File: string(data)})
}

func exportNodes(ctx context.Context, c *call) error {
	list, err := c.manager.Newest().Export(ctx)
	if err != nil {
		return err
	}

	if c.format == print.FormatTable {
		c.format = print.FormatYAML
	}

	return c.show(print.Answer{Wire: list})
}
