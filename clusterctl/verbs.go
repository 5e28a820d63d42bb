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

// verbHelp is the part of a verb's command that the lifecycle table does not
// provide. A verb without an entry still has a complete command.
type verbHelp struct {
	about    string
	examples []string
	aliases  []string
	hidden   bool              // another command has taken its place
	flags    func() []cli.Flag // besides those of the table; new ones for each command line, which they keep
	// run replaces the request for a job. nil: call.submit.
	run func(ctx context.Context, c *call, row inventory.Transition) error
}

// inPlaceHelp describes the options that only verbs in place accept.
const inPlaceHelp = "With --check the job changes nothing: the nodes, and their records, stay as they are, and the " +
	"job shows how many tasks would change each. Its failure is no error of the node. Only tasks with check_mode: " +
	"false are executed, and the job names the nodes that they changed. After --tags or --skip-tags the applied " +
	"configuration counts as unknown, until an apply of everything; a node without a selected task has failed."

// verbHelps has an entry for most verbs.
var verbHelps = map[inventory.Verb]verbHelp{
	inventory.VerbDiscover: {
		about: "ADDR is an IPv4 or IPv6 address, a host name, a range FIRST-LAST or a network in CIDR notation (at " +
			"most 1024 addresses). The job first tries an ssh login at each address. An address without an answer " +
			"fails the job, or is skipped if it is from a range or a network; the others go on.\n" +
			"Then the job installs the agent over ssh, and is complete once every host has appeared as a Discovered " +
			"node. A host of another manager is refused without --take-over. A host on which the job fails is " +
			"restored to its state before.\n" +
			"The first contact records the ssh host key that a host shows. With --host-key or --known-hosts, or with " +
			"a CA in ssh.host_ca, it is verified instead.",
		examples: []string{
			"clusterctl discover 192.168.2.11 192.168.2.12",
			"clusterctl discover 192.168.2.20-192.168.2.40 192.168.3.0/24",
			"clusterctl discover -f hosts.txt",
			"clusterctl discover fd00::11 -e '{\"agent_interface\": \"eth1\"}'",
			"clusterctl discover 192.168.2.11 --take-over --reason 'its manager is gone'",
			"clusterctl discover 192.168.2.11 --host-key \"192.168.2.11=ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI…\"",
			"clusterctl discover 192.168.2.11 192.168.2.12 --known-hosts site_known_hosts",
		},
		flags: func() []cli.Flag { return []cli.Flag{knownHostsFlag()} },
	},
	inventory.VerbCommission: {
		about: "Without --host-group the manager chooses a group, and reports it: the first node becomes a master.\n" +
			"The nodes form a batch: if one fails, the manager cleans up all of them, and you can commission them " +
			"again.",
		examples: []string{
			"clusterctl nodes commission web-1-AB12 -g service-master",
			"clusterctl nodes commission web-2-CD34 web-3-EF56 -g service-worker -e @vars.yml --yes",
			"clusterctl nodes commission web-4-GH78 --on-failure failed --no-wait",
		},
	},
	inventory.VerbUpdate: {
		about: "Use it to move nodes to another group (-g), or to set them up anew; it is no update of software. The " +
			"job takes its nodes out of service, all at once unless --serial is given, cleans them (cleanup.yml), " +
			"and configures them again (site.yml). After a failure they are cleaned and stay out of service. To " +
			"bring a change of playbooks or variables to nodes that go on serving, use nodes apply.",
		examples: []string{
			"clusterctl nodes update web-2-CD34 -g service-master",
			"clusterctl nodes update web-1-AB12",
			"clusterctl nodes update -l group=service-worker --serial 1",
		},
	},
	inventory.VerbApply: {
		about: "The job runs site.yml on nodes in service: the usual way to bring a change of playbooks or variables " +
			"to them. If it fails, the nodes stay in service and keep the error in their record.\n" + inPlaceHelp +
			"\nWith --clean the job first takes its nodes out of service, all at once unless --serial is given, and " +
			"cleans them with the playbooks that configured them (cleanup.yml). Use it where something has to go " +
			"first. After a failure a node stays Allocated, with the error in its record and its configuration " +
			"unknown: correct the cause, and repeat it. Jobs, the history and the API call it reapply.",
		examples: []string{
			"clusterctl nodes apply web-1-AB12",
			"clusterctl nodes apply -l group=service-worker --serial 25% --max-failures 2 -e release=2.1",
			"clusterctl nodes apply web-1-AB12 --check --diff",
			"clusterctl nodes apply web-1-AB12 --tags config,certificates",
			"clusterctl nodes apply -l outdated=true --clean --serial 1 --max-failures 2",
		},
		flags: func() []cli.Flag {
			return []cli.Flag{
				cleanFlag("first take the nodes out of service, and clean them"),
				valueFlag("playbooks", "the `PLAYBOOKS` of the cleanup of --clean: current for the configured folder "+
					"(default: those that configured each node)"),
			}
		},
		run: applyNodes,
	},
	inventory.VerbReapply: {
		hidden:   true,
		about:    "The same as nodes apply --clean.",
		examples: []string{"clusterctl nodes reapply web-1-AB12"},
	},
	inventory.VerbMaintenance: {
		aliases: []string{"upgrade"},
		about: "Its plain name is nodes upgrade. The job runs rolling-upgrade.yml. If it fails, the nodes stay in " +
			"service and keep the error in their record.\n" + inPlaceHelp,
		examples: []string{
			"clusterctl nodes maintenance web-1-AB12 -e '{\"version\": \"2.1\"}'",
			"clusterctl nodes maintenance web-1-AB12 --check --diff",
		},
	},
	inventory.VerbVerify: {
		about: "The job runs verify.yml, if the playbooks have one, and compares what site.yml would change " +
			"(ansible-playbook --check --diff), with the playbooks that configured each node and the variables of " +
			"now. It changes nothing and leaves the nodes in service. Each node gets a verdict: clean, drifted, or " +
			"unknown where the job could not tell; nodes diff shows the findings. The exit code is 3 unless all " +
			"are clean. The job names tasks with check_mode: false beforehand, because they are executed, and " +
			"counts those that check mode cannot judge.",
		examples: []string{
			"clusterctl nodes verify web-1-AB12",
			"clusterctl nodes verify -l group=service-worker --serial 25% --yes",
			"clusterctl nodes verify web-1-AB12 --strict",
			"clusterctl nodes verify web-1-AB12 --playbooks current",
		},
	},
	inventory.VerbDecommission: {
		about: "A dead host is decommissioned, too; its record then keeps the uncleaned group as residue, and the " +
			"exit code is 8. Decommission it again to clean it.\n" +
			"Each node is cleaned with the playbooks that configured it, even if the folder has changed since.",
		examples: []string{
			"clusterctl nodes decommission web-1-AB12",
			"clusterctl nodes decommission web-1-AB12 --playbooks current",
		},
	},
	inventory.VerbClear: {
		examples: []string{
			"clusterctl nodes clear web-1-AB12",
			"clusterctl nodes clear web-1-AB12 --force --reason 'reinstalled by hand'",
		},
	},
	inventory.VerbForget: {
		about: "A forgotten node that appears again is Quarantined until you clear it. Only the removal of the " +
			"agent takes a job. Neither cleans the host: forgetting a node with residue takes a confirmation.",
		examples: []string{
			"clusterctl nodes forget web-9-ZZ00",
			"clusterctl nodes forget web-9-ZZ00 --remove-agent",
			"clusterctl nodes forget web-9-ZZ00 --force --reason 'sold'",
		},
		flags: func() []cli.Flag {
			return []cli.Flag{
				switchFlag("force", "include nodes that are still Discovered"),
				switchFlag("remove-agent", "first remove the agent from the hosts, with a job"),
			}
		},
		run: forgetNodes,
	},
}

func takesNodes(row inventory.Transition) bool { return !row.TakesAddrs }
func takesAddrs(row inventory.Transition) bool { return row.TakesAddrs }

// verbs returns the commands of the selected rows of the lifecycle table.
func (a *app) verbs(selected func(inventory.Transition) bool) []leaf {
	var commands []leaf
	for _, row := range inventory.Lifecycle {
		if selected(row) {
			commands = append(commands, a.verb(row))
		}
	}

	return commands
}

// verb returns the command that requests a job of the verb.
func (a *app) verb(row inventory.Transition) leaf {
	help := verbHelps[row.Verb]
	l := leaf{
		name: string(row.Verb), aliases: help.aliases, min: 1, max: -1, hidden: help.hidden, usage: row.Meaning,
		examples: help.examples,
	}

	l.flags = flagsOf(row)

	if help.flags != nil {
		l.flags = append(l.flags, help.flags()...)
	}

	about := []string{help.about}
	example := "clusterctl nodes " + l.name + " web-1-AB12"

	if row.TakesAddrs {
		l.args, example = "ADDR…", "clusterctl "+l.name+" 192.168.2.11"
		l.min = 0 // --file may name all of them
		l.complete = nothing
		l.flags = append(l.flags, addrFileFlag())
	} else {
		l.args, l.selects, l.names, l.complete = "NAME…", true, true, nodesFor(row)
		l.flags = append(l.flags, selectorFlag(), yesFlag())
		about = append(about, chooseHelp)
	}

	// The common parts of the help follow the description of the verb.
	l.about = strings.TrimSpace(strings.Join(about, "\n") + "\n\n" + waitHelp + "\n" + planHelpOf(row))
	l.flags = append(l.flags, jobFlags(row)...)

	if len(l.examples) == 0 {
		l.examples = []string{example}
	}

	l.run = func(ctx context.Context, c *call) error { return c.submit(ctx, row) }
	if help.run != nil {
		l.run = func(ctx context.Context, c *call) error { return help.run(ctx, c, row) }
	}

	return l
}

func cleanFlag(usage string) cli.Flag { return switchFlag("clean", usage) }

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
	flags := append([]cli.Flag{timeoutFlag("as configured")}, optionFlags(everyTaken(row))...)
	return append(flags, noWaitFlag(), waitTimeoutFlag(), planFlag())
}

func timeoutFlag(otherwise string) cli.Flag {
	return valueFlag("timeout", "the time limit of the job: a `DURATION` such as 90s, 15m or 1h30m (default: "+
		otherwise+")")
}

// submit requests the job that the command line describes, and waits for it.
func (c *call) submit(ctx context.Context, row inventory.Transition) error {
	options, err := c.jobOptions()
	if err != nil {
		return err
	}

	// The operator confirms names, so that a selector cannot surprise.
	if takesNodes(row) {
		choose := c.chooseTargets

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

	if c.Bool("plan") {
		return c.asAsked(ctx, row, r, c.makePlan(ctx, r))
	}

	j, err := c.manager.Submit(ctx, r)

	return c.accepted(ctx, j, c.asAsked(ctx, row, r, err))
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
