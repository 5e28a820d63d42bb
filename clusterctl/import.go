// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/facts"
	"github.com/contiv/cluster/management/api"
)

func importRows() rows {
	return rows{
		"nodes import": {formats: namelessFormats, complete: fileNames, run: importNodes},
		"nodes imports": {
			formats: objectFormats, run: showImports,
			complete: imports.offer(func(i api.ImportRun) candidate { return candidate{i.ID, i.Actor} }),
		},
		"nodes add": {formats: namelessFormats, complete: nothing, run: addNode},
		"nodes configure": {
			selects: true, names: true, all: "status=" + string(inventory.Manageable), formats: namelessFormats,
			run: configureNodes,
		},
		"nodes expected": expected.list(leaf{}),
		"nodes merge": {
			names: true, formats: namelessFormats, complete: anyNodes,
			run: func(ctx context.Context, c *call) error {
				_, err := c.manager.Merge(ctx, api.Merge{
					Machine: c.args[0], Node: c.args[1], Force: c.Bool("force"), Reason: c.String("reason"),
				})
				if err == nil {
					c.say("%s and %s are one node: %s", c.args[0], c.args[1], c.args[1])
				}

				return err
			},
		},
		"nodes split": {
			names: true, formats: namelessFormats, needs: "as", complete: anyNodes,
			run: func(ctx context.Context, c *call) error {
				_, err := c.manager.Split(ctx, api.Split{
					Node: c.args[0], As: c.String("as"), Reason: c.String("reason"),
				})
				if err == nil {
					c.say("the registration of %s is the node %s", c.args[0], c.String("as"))
				}

				return err
			},
		},
		"nodes export": {formats: []string{print.FormatJSON, print.FormatYAML}, run: exportNodes},
	}
}

var expected = noun[api.ExpectedMachine]{
	columns: print.ExpectedColumns,
	name:    api.ExpectedMachine.Key,
	empty:   "nothing is registered, and nothing is seen",
	all: func(ctx context.Context, c *call) (listing[api.ExpectedMachine], error) {
		results := []api.Expectation{api.ExpectedSeen, api.ExpectedMissing, api.ExpectedUnknown}
		for _, r := range values(c, "result") {
			if !slices.Contains(results, api.Expectation(r)) {
				return listing[api.ExpectedMachine]{}, exit.Usagef("--result: %q is no result", r).
					Try("write %s", inventory.Choices(results))
			}
		}

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

	r := api.Import{File: string(data), Prune: c.Bool("prune")}

	if r.Prune && !c.Bool("dry-run") {
		if err := c.approvePrune(ctx, r); err != nil {
			return err
		}
	}

	return c.importList(ctx, r)
}

// approvePrune asks about the nodes that an import would forget. Those that come into use meanwhile are kept all the
// same.
func (c *call) approvePrune(ctx context.Context, r api.Import) error {
	r.DryRun = true

	would, err := c.manager.Import(ctx, r)
	if err != nil {
		return listAtFault(err)
	}

	var names []string
	for _, m := range would.Machines {
		if m.Action == api.ImportRemoved {
			names = append(names, m.Node)
		}
	}

	if len(names) == 0 {
		return nil
	}

	nodes := inventory.Count(len(names), "node", "nodes")

	return c.approve(ctx, fmt.Sprintf("forget %s that the list does not name: %s", nodes, strings.Join(names, ", ")),
		exit.Usagef("the list does not name %s, which --prune would forget: %s", nodes, strings.Join(names, ", ")).
			Try("to confirm it here: add --yes"))
}

// listAtFault leaves the number of the request out of an error for which the list is at fault: no log of the manager
// tells more about it.
func listAtFault(err error) error {
	if e, ok := errors.AsType[*inventory.Error](err); ok && e.Kind == inventory.KindInvalid {
		e.Request = ""
	}

	return err
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

	then, err := c.then()
	if err != nil {
		return err
	}

	r.Then = then

	done, err := c.manager.Import(ctx, r)
	if err != nil {
		return listAtFault(err)
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
	if err != nil || done.ID == "" || len(then) == 0 || done.DryRun {
		return err
	}

	// A job may wait, or may have been refused for all.
	if len(done.Jobs) == 0 {
		run, err := c.manager.ImportRun(ctx, done.ID)
		if err != nil || !slices.ContainsFunc(run.Nodes, func(n api.ImportedNode) bool { return n.Step != "" }) {
			return err
		}
	}

	// The answer of the import is all that is printed for programs.
	c.answered = !c.forPeople()

	return c.goesOn(ctx, done.ID)
}

// then returns the verbs that follow an import, by the options.
func (c *call) then() ([]inventory.Verb, error) {
	var then []inventory.Verb

	for _, v := range []struct {
		verb  inventory.Verb
		asked bool
	}{
		{inventory.VerbManage, !c.Bool("no-manage")},
		{inventory.VerbInspect, c.Bool("introspect")},
		{inventory.VerbProvide, c.Bool("provide")},
	} {
		switch {
		case !v.asked:
		case c.Bool("no-manage"):
			return nil, exit.Usagef("--no-manage leaves the machines Enrolled, and %s takes Manageable ones", v.verb).
				Try("drop one of the two options")
		default:
			then = append(then, v.verb)
		}
	}

	return then, nil
}

// introspectAndProvide takes Manageable nodes to Unallocated, as the import of a list would.
func introspectAndProvide(ctx context.Context, c *call, row inventory.Transition) error {
	for _, other := range []string{"plan", "concurrency", "timeout", "reason"} {
		if c.IsSet(other) {
			return exit.Usagef("--provide and --%s exclude each other", other).Try("give the verbs one by one")
		}
	}

	if err := c.chooseTargets(ctx, row, "introspect and provide"); err != nil {
		return err
	}

	done, err := c.manager.Import(ctx, api.Import{
		Nodes: c.args, Then: []inventory.Verb{inventory.VerbInspect, inventory.VerbProvide},
	})
	if err != nil {
		return err
	}

	for _, w := range done.Warnings {
		c.say("warning: %s", w)
	}

	return c.goesOn(ctx, done.ID)
}

// goesOn follows an import to the end of what follows it, or says how to.
func (c *call) goesOn(ctx context.Context, id string) error {
	if c.Bool("no-wait") {
		c.say("the manager goes on; to see how far: %s nodes imports %s", c.self(), id)
		return nil
	}

	bounded, limit, cancel, err := c.waits(ctx)
	if err != nil {
		return err
	}
	defer cancel()

	run, err := c.followImport(bounded, id)
	remedy := fmt.Sprintf("to see how far: %[1]s nodes imports %[2]s\nto follow it:   %[1]s nodes imports %[2]s --wait",
		c.self(), id)

	switch {
	case err != nil && ctx.Err() == nil && errors.Is(context.Cause(bounded), errWaited):
		return exit.Errorf(exit.Failed, "after %s, the nodes have not come to the end; the manager goes on",
			inventory.ShortDuration(limit)).Try("%s", remedy)
	case err != nil && ctx.Err() != nil:
		return exit.Errorf(exit.Interrupted, "detached; the manager goes on").Try("%s", remedy)
	case err != nil && exit.Code(err) == exit.Unreachable:
		message, first := exit.Explain(c.self(), err)
		return exit.Errorf(exit.Unreachable, "%s; the manager may still go on", message).Try("%s\n%s", first, remedy)
	case err != nil:
		return err
	}

	return cmp.Or(c.showImport(run), c.stopped(run))
}

// followImport shows the jobs of an import one after the other, until nothing follows any more.
func (c *call) followImport(ctx context.Context, id string) (api.ImportRun, error) {
	for followed := 0; ; {
		run, err := c.manager.ImportRun(ctx, id)

		switch {
		case err != nil:
			return run, err
		case followed < len(run.Jobs):
			j, err := c.manager.Job(ctx, run.Jobs[followed])
			if err != nil {
				return run, err
			}

			c.say("job %s: %s", j.ID, print.Title(j))

			if _, err := c.follow(ctx, j); err != nil {
				return run, err
			}

			followed++

			continue
		case run.Done:
			return run, nil
		}

		select {
		case <-ctx.Done():
			return run, context.Cause(ctx)
		case <-time.After(scanPoll):
		}
	}
}

// showImport prints how far the nodes of an import came.
func (c *call) showImport(run api.ImportRun) error {
	if !c.answered {
		err := c.show(print.Answer{
			Wire: run, Names: []string{run.ID},
			Table: func(p *print.Printer) { print.ImportedNodeColumns.Table(p, run.Nodes) },
		})
		if err != nil {
			return err
		}
	}

	if run.Waits != "" {
		c.say("%s; it is asked for again", run.Waits)
	}

	if !run.Done {
		c.say("the manager goes on; to follow it: %s nodes imports %s --wait", c.self(), run.ID)
	}

	return nil
}

// stopped returns an error if nodes of an import stopped on the way.
func (c *call) stopped(run api.ImportRun) error {
	if run.Failed == 0 {
		return nil
	}

	var remedies []string

	for _, n := range run.Nodes {
		if n.Error == "" || n.Step == "" {
			continue
		}

		remedy := fmt.Sprintf("to see the cause and a remedy: %s nodes explain %s", c.self(), n.Node)
		if n.Job != "" {
			remedy = fmt.Sprintf("to see the cause and a remedy: %s job why %s", c.self(), n.Job)
		}

		if !slices.Contains(remedies, remedy) {
			remedies = append(remedies, remedy)
		}
	}

	const most = 5

	return exit.Errorf(exit.JobFailed, "%d of %s stopped on the way", run.Failed,
		inventory.Count(run.Total, "node", "nodes")).
		Try("%s", strings.Join(remedies[:min(most, len(remedies))], "\n"))
}

// imports are the imports of the last day.
var imports = noun[api.ImportRun]{
	columns: print.ImportRunColumns,
	name:    func(i api.ImportRun) string { return i.ID },
	empty:   "nothing was imported in the last day",
	all: func(ctx context.Context, c *call) (listing[api.ImportRun], error) {
		return listingOf(c.manager.Imports(ctx))
	},
}

// showImports lists the imports, or shows how far one came.
func showImports(ctx context.Context, c *call) error {
	switch {
	case len(c.args) == 0 && c.Bool("wait"):
		return exit.Usagef("nodes imports --wait needs the number of an import").
			Try("to list them: %s nodes imports", c.self())
	case len(c.args) == 0:
		return imports.showAll(ctx, c)
	case c.Bool("wait"):
		return c.goesOn(ctx, c.args[0])
	}

	run, err := c.manager.ImportRun(ctx, c.args[0])
	if err != nil {
		return err
	}

	return c.showImport(run)
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
	{"cpus", "cpu"},
	{"memory", "memory"},
	{"disk", "disk"},
	{"arch", "arch"},
	{"profile", "profile"},
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

	capabilities, err := pairs(c, "capability", "for example --capability boot_mode=uefi")
	if err != nil {
		return err
	}

	if capabilities != nil {
		e["capabilities"] = capabilities
	}

	hints, err := rootDevice(c)
	if err != nil {
		return err
	}

	if hints != nil {
		e["root_device"] = hints
	}

	if c.IsSet("bmc-password-file") {
		if e["pm_password"], err = c.bmcPassword(ctx, "bmc-password-file", c.String("bmc-password-file")); err != nil {
			return err
		}
	}

	data, err := json.Marshal([]any{e})
	if err != nil {
		return err
	}

	return c.importList(ctx, api.Import{File: string(data)})
}

// bmcPassword reads the password for a BMC from the file of an option, from stdin, or from a terminal without echo.
func (c *call) bmcPassword(ctx context.Context, option, name string) (string, error) {
	if name == "-" && c.atTerminal() {
		text, err := c.typeSecret(ctx, "password for the BMC: ")
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}

		return strings.TrimRight(text, "\r\n"), err
	}

	data, _, err := c.readInput(ctx, name, "the password", "give --"+option+" FILE, or - for stdin")

	return strings.TrimRight(string(data), "\r\n"), err
}

// pairs returns the values of an option that is repeated for each KEY=VALUE, or nil without it.
func pairs(c *call, option, remedy string) (map[string]string, error) {
	var all map[string]string

	for _, pair := range values(c, option) {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, exit.Usagef("--%s: %q is not KEY=VALUE", option, pair).Try("%s", remedy)
		}

		if all == nil {
			all = map[string]string{}
		}

		all[key] = value
	}

	return all, nil
}

// rootDevice returns the hints of --root-device, or nil without them.
func rootDevice(c *call) (map[string]any, error) {
	texts, err := pairs(c, "root-device",
		"write for example --root-device 'model=<in> SAMSUNG' --root-device 'size=>= 400'")
	if err != nil || texts == nil {
		return nil, err
	}

	hints := map[string]any{}
	for hint, value := range texts {
		hints[hint] = value
	}

	return hints, nil
}

func configureNodes(ctx context.Context, c *call) error {
	r := api.Configure{RootDeviceStrategy: facts.Strategy(c.String("root-device-strategy"))}
	if err := c.fill(&r); err != nil {
		return err
	}

	var err error
	if r.RootDevice, err = rootDevice(c); err != nil {
		return err
	}

	r.Labels, err = pairs(c, "label", fmt.Sprintf("to remove a label: %s nodes label NAME KEY-", c.self()))
	if err != nil {
		return err
	}

	var connection api.Connection
	if err := setConnection(c, &connection); err != nil {
		return err
	}

	if connection != (api.Connection{}) {
		r.Connection = &connection
	}

	choose := c.selectNodes
	if !r.DryRun {
		choose = func(ctx context.Context) error { return c.choose(ctx, "configure") }
	}

	if err := choose(ctx); err != nil {
		return err
	}
	r.Nodes = c.args

	done, err := c.manager.Configure(ctx, r)
	if err != nil {
		return err
	}

	for _, w := range done.Warnings {
		c.say("warning: %s", w)
	}

	if r.DryRun {
		c.say("nothing was changed; without --dry-run:")
	}

	return c.show(print.Answer{
		Wire:  done,
		Table: func(p *print.Printer) { print.ImportColumns.Table(p, done.Machines) },
	})
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
