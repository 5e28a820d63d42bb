// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

func takesNodes(row inventory.Transition) bool { return !row.TakesAddrs }

// verbRows returns the commands that request a job, one for each row of the lifecycle table.
func verbRows() rows {
	all := rows{}
	for _, row := range inventory.Lifecycle {
		all[verbPath(row)] = verb(row)
	}

	return all
}

// verbPath returns the path of a verb's command.
func verbPath(row inventory.Transition) string {
	if row.TakesAddrs {
		return string(row.Verb)
	}
	return "nodes " + string(row.Verb)
}

// verbAt returns the row of the verb with a command at the path.
func verbAt(path string) (inventory.Transition, bool) {
	i := slices.IndexFunc(inventory.Lifecycle, func(row inventory.Transition) bool { return verbPath(row) == path })
	if i < 0 {
		return inventory.Transition{}, false
	}
	return inventory.Lifecycle[i], true
}

// verb returns the command that requests a job of the verb.
func verb(row inventory.Transition) leaf { return verbAs(row, verbPath(row)) }

// verbAs is verb for a command at another path.
func verbAs(row inventory.Transition, path string) leaf {
	l := leaf{
		min: 1, max: -1, usage: row.Meaning, hidden: row.Verb == inventory.VerbReapply,
		flags: append(flagsOf(row), flagsAt(path)...),
		run:   func(ctx context.Context, c *call) error { return c.submit(ctx, row) },
	}

	switch row.Verb {
	case inventory.VerbApply:
		l.run = func(ctx context.Context, c *call) error { return applyNodes(ctx, c, row) }
	case inventory.VerbInspect:
		l.run = func(ctx context.Context, c *call) error {
			if c.Bool("provide") {
				return introspectAndProvide(ctx, c, row)
			}

			return c.submit(ctx, row)
		}
	case inventory.VerbForget:
		l.run = func(ctx context.Context, c *call) error { return forgetNodes(ctx, c, row) }
	}

	var about []string

	e := commandBook().at[path]
	if e != nil {
		about = e.text
	}

	example := "clusterctl " + path + " web-1-AB12"

	if row.TakesAddrs {
		l.args, example = "ADDR…", "clusterctl "+path+" 192.168.2.11"
		l.min = 0 // --file may name all of them
		l.complete = nothing
	} else {
		l.args, l.selects, l.names, l.complete = "NAME…", true, true, nodesFor(row)
		l.flags = append(l.flags, shared("selector", "yes")...)

		if row.All != "" {
			l.all = "status=" + string(row.All)
		}

		about = append(about[:len(about):len(about)], phrase("choose"))
	}

	// The common parts of the help follow the description of the verb.
	about = append(about, "", phrase("wait"), phrase("plan"))
	if row.Accepts(inventory.FieldCheck) {
		about[len(about)-1] += " " + phrase("plan check")
	}
	l.about = strings.TrimSpace(strings.Join(about, "\n"))
	l.flags = append(l.flags, jobFlags(row)...)

	if e == nil || len(e.examples) == 0 {
		l.examples = []string{example}
	}

	return l
}

// applyNodes requests an apply, or with --clean the verb that cleans before.
func applyNodes(ctx context.Context, c *call, row inventory.Transition) error {
	if !c.Bool("clean") {
		if c.IsSet("playbooks") {
			return exit.Usagef("--playbooks chooses the playbooks of a cleanup, and nodes apply makes none").
				Try("add --clean, or leave out --playbooks")
		}

		return c.submit(ctx, row)
	}

	for _, partial := range []string{"check", "tags", "skip-tags"} {
		if c.IsSet(partial) {
			return exit.Usagef("--clean and --%s exclude each other: a cleanup is always whole", partial).
				Try("give one of them")
		}
	}

	row, _ = inventory.TransitionOf(inventory.VerbReapply)

	return c.submit(ctx, row)
}

// jobFlags are the options of every command that requests a job.
func jobFlags(row inventory.Transition) []cli.Flag {
	flags := append(shared("timeout"), optionFlags(everyTaken(row))...)
	return append(flags, shared("no-wait", "wait-timeout", "plan")...)
}

// submit requests the job that the command line describes, and waits for it.
func (c *call) submit(ctx context.Context, row inventory.Transition) error {
	return c.submitAs(ctx, row, api.VerbWords(row.Verb), nil)
}

// submitAs is submit with the words of the question for a confirmation, and with variables of the command itself.
func (c *call) submitAs(ctx context.Context, row inventory.Transition, words string, own api.Vars) error {
	options, err := c.jobOptions()
	if err != nil {
		return err
	}

	// The operator confirms names, so that a selector cannot surprise.
	if takesNodes(row) {
		choose := func(ctx context.Context, row inventory.Transition) error { return c.chooseTargets(ctx, row, words) }

		switch {
		case c.Bool("plan"):
			choose = func(ctx context.Context, _ inventory.Transition) error { return c.selectNodes(ctx) }
		case row.Success == "":
			choose = c.chooseForgotten
		}

		if err := choose(ctx, row); err != nil {
			return err
		}
	}

	vars, err := c.extraVars(ctx)
	if err != nil {
		return err
	}
	if own != nil {
		vars = own
	}
	if err := c.askToTakeBack(ctx, row, vars); err != nil {
		return err
	}

	r := api.JobRequest{Verb: row.Verb, Group: c.String("host-group"), JobOptions: options}
	if r.ExtraVars, err = raw(vars); err != nil {
		return err
	}

	// Hosts have no names before their discovery.
	if row.TakesAddrs {
		if r.Addrs, r.Ranges, err = c.addresses(ctx); err != nil {
			return err
		}

		if r.HostKeys, err = c.hostKeys(r.Addrs); err != nil {
			return err
		}
	} else {
		r.Nodes = c.args
	}

	if r.Timeout, err = c.duration("timeout"); err != nil {
		return err
	}

	var j api.Job

	request := func() (err error) {
		if c.Bool("plan") {
			return c.makePlan(ctx, r)
		}
		j, err = c.manager.Submit(ctx, r)

		return err
	}

	// All nodes are those that the manager does not refuse.
	err = request()
	for rest := c.others(r.Nodes, err); len(rest) > 0; rest = c.others(r.Nodes, err) {
		c.say("left out: %s", inventory.Printable(err.Error()))
		r.Nodes = rest
		err = request()
	}

	if err = c.asAsked(ctx, row, r, err); c.Bool("plan") {
		return err
	}

	return c.accepted(ctx, j, err)
}

// others returns what --all has chosen besides the nodes that a refusal is about; none if it is about all of them, or
// about none.
func (c *call) others(chosen []string, err error) []string {
	e, refused := errors.AsType[*inventory.Error](err)
	if !refused || e.Kind != inventory.KindRefused || !c.Bool("all") {
		return nil
	}

	refusals := make(map[string]bool, len(e.Nodes))
	for _, name := range e.Nodes {
		refusals[name] = true
	}

	rest := slices.DeleteFunc(slices.Clone(chosen), func(name string) bool { return refusals[name] })
	if len(rest) == len(chosen) {
		return nil
	}

	return rest
}

// asAsked returns the refusal of the request. Its actions for the same verb and the same nodes remain a
// plan if the request was one, and keep the confirmation of the command line. Other actions serve another
// end, such as the repair of one node, and stay as they are.
func (c *call) asAsked(ctx context.Context, row inventory.Transition, r api.JobRequest, err error) error {
	e, ok := errors.AsType[*inventory.Error](err)
	if !ok {
		return err
	}
	asked := *e
	asked.Actions = slices.Clone(e.Actions)

	if c.hasSelector() && e.Kind == inventory.KindRefused {
		asked.Remedy += c.leaveOut(ctx, row, e, r.Nodes)
	}

	for i, a := range asked.Actions {
		if a.Name == inventory.ActionForgetNodes && row.Success == "" {
			asked.Actions[i].Confirmed = c.Bool("yes")
		}

		if a.Name != inventory.ActionSubmit || a.Verb != r.Verb || !sameNames(a.Nodes, r.Nodes) {
			continue
		}

		if c.Bool("plan") {
			a = a.Planned()
		}

		a.Confirmed = c.Bool("yes")
		asked.Actions[i] = a
	}

	return &asked
}

// leaveOut returns the line with the selector that leaves out the refused nodes, or "". chosen are the names that
// the selector of the command line chose.
func (c *call) leaveOut(ctx context.Context, row inventory.Transition, e *inventory.Error, chosen []string) string {
	const most = 5

	refused := slices.DeleteFunc(slices.Clone(chosen),
		func(name string) bool { return !slices.Contains(e.Nodes, name) })
	if len(refused) == 0 {
		return ""
	}

	line := func(what, condition string) string {
		return "\nto leave out " + what + ": -l " + api.ShellQuote(c.String("selector")+","+condition)
	}

	list, _ := c.manager.Nodes(ctx, client.NodeFilter{Names: refused})
	away := func(n api.Node) bool { return n.State != inventory.Discovered }

	switch {
	case row.NeedsDiscover && slices.ContainsFunc(list.Items, away):
		return line("nodes that are away", "state="+string(inventory.Discovered))
	case len(e.Actions) == 0 && len(refused) < len(chosen) && len(refused) <= most:
		return line(strings.Join(refused, ", "), "name!="+strings.Join(refused, ",name!="))
	}

	return ""
}

func sameNames(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// cleanVerb returns the verb that --clean makes of another one.
func cleanVerb(v inventory.Verb) (inventory.Verb, bool) {
	return inventory.VerbReapply, v == inventory.VerbApply
}
