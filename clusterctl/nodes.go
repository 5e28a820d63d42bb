// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

func (a *app) nodes() *cli.Command {
	group := &cli.StringFlag{Name: "host-group", Aliases: []string{"g"}}
	groupFlag := func(usage string) cli.Flag {
		f := *group
		f.Usage = usage

		return &f
	}

	return &cli.Command{
		Name: "nodes", Aliases: []string{"node"}, Usage: "list nodes, and take them through their life",
		Commands: []*cli.Command{
			a.leaf(leaf{
				name:  "get",
				args:  "[NAME…]",
				max:   -1,
				usage: "list nodes: all of them, or those named",
				about: "The filters can be repeated, or given several values separated by commas; a node is listed when it meets one value of each. " +
					"A selector that no node meets is an error (exit code 4).",
				selects: true,
				formats: tableFormats,
				flags: append([]cli.Flag{
					selectorFlag(),
					&cli.StringSliceFlag{Name: "status", Usage: "only nodes of this `STATUS`, e.g. Allocated"},
					&cli.StringSliceFlag{
						Name:  "state",
						Usage: "only nodes of this `STATE`: Discovered, Disappeared or Unknown",
					},
					&cli.StringSliceFlag{
						Name:    "group",
						Aliases: []string{"host-group", "g"},
						Usage:   "only nodes of this host `GROUP`",
					},
					watchFlag(),
				}, columnFlags(nodeColumns.names())...),
				examples: []string{
					"clusterctl nodes get",
					"clusterctl nodes get -l 'group=service-worker,status!=Allocated,rack in (r1,r2)'",
					"clusterctl nodes get -o wide --sort group,-updated",
					"clusterctl nodes get --columns name,status,note",
					"clusterctl nodes get web-1-AB12 -o long",
					"clusterctl nodes get --status Allocated --group service-worker -o name",
					"clusterctl nodes get -w -g service-worker",
				},
				run: nodesGet,
			}),
			a.leaf(leaf{
				name:    "watch",
				args:    "[NAME…]",
				max:     -1,
				usage:   "print what changes on nodes, a line a change, as it happens",
				about:   watchHelp + "\nWith -o json it prints what GET /v1/watch tells, one event a line: first everything that there is, then sync, then changes.",
				selects: true,
				formats: []string{formatJSON},
				flags: []cli.Flag{
					selectorFlag(),
					&cli.StringSliceFlag{
						Name:    "group",
						Aliases: []string{"host-group", "g"},
						Usage:   "only nodes of this host `GROUP`",
					},
				},
				examples: []string{
					"clusterctl nodes watch",
					"clusterctl nodes watch web-1-AB12 web-2-CD34",
					"clusterctl nodes watch -g service-worker -o json",
				},
				run: nodesWatch,
			}),
			a.verb(leaf{
				name: string(
					inventory.VerbCommission,
				),
				args:  "NAME…",
				min:   1,
				max:   -1,
				usage: "configure nodes and bring them into service",
				about: "Without --host-group, the manager chooses the group and says which: the first master is made first.\n" +
					"The nodes are one batch: when one fails, all are cleaned up and can be commissioned again.",
				flags: []cli.Flag{
					groupFlag("the host `GROUP` they join, e.g. service-master"),
					extraVarsFlag("variables for this commission only"),
					&cli.StringFlag{
						Name:  "on-failure",
						Usage: "`WHAT` is cleaned when a node fails: batch (all nodes of the request, the default) or failed",
					},
				},
				examples: []string{
					"clusterctl nodes commission web-1-AB12 -g service-master",
					"clusterctl nodes commission web-2-CD34 web-3-EF56 -g service-worker -e @vars.yml",
					"clusterctl nodes commission web-4-GH78 --on-failure failed --no-wait",
				},
			}, inventory.VerbCommission),
			a.verb(leaf{
				name: string(
					inventory.VerbDecommission,
				),
				args:     "NAME…",
				min:      1,
				max:      -1,
				usage:    "take nodes out of service and clean them",
				about:    "It is best effort: a host that is dead is decommissioned as well, and what could not be cleaned is kept as its residue.",
				flags:    []cli.Flag{extraVarsFlag("variables for the cleanup")},
				examples: []string{"clusterctl nodes decommission web-1-AB12"},
			}, inventory.VerbDecommission),
			a.verb(leaf{
				name: string(
					inventory.VerbUpdate,
				),
				args:  "NAME…",
				min:   1,
				max:   -1,
				usage: "provision nodes again, perhaps in another group",
				about: "The nodes are cleaned and configured again.",
				flags: []cli.Flag{
					groupFlag("the host `GROUP` they move to (default: they stay in theirs)"),
					extraVarsFlag("variables for this update only"),
				},
				examples: []string{
					"clusterctl nodes update web-1-AB12",
					"clusterctl nodes update web-2-CD34 -g service-master",
				},
			}, inventory.VerbUpdate),
			a.verb(leaf{
				name: string(
					inventory.VerbMaintenance,
				),
				args:     "NAME…",
				min:      1,
				max:      -1,
				usage:    "upgrade nodes in place",
				about:    "It runs rolling-upgrade.yml. When it fails the nodes stay in service, with the error kept.",
				flags:    []cli.Flag{extraVarsFlag("variables for the upgrade")},
				examples: []string{"clusterctl nodes maintenance web-1-AB12 -e '{\"version\": \"2.1\"}'"},
			}, inventory.VerbMaintenance),
			a.verb(leaf{
				name: string(
					inventory.VerbClear,
				),
				args:  "NAME…",
				min:   1,
				max:   -1,
				usage: "clean quarantined nodes and trust them again",
				flags: []cli.Flag{
					extraVarsFlag("variables for the cleanup"),
					&cli.BoolFlag{
						Name:  "force",
						Usage: "skip the cleanup: you have made sure that the hosts are clean; needs --reason",
					},
				},
				examples: []string{
					"clusterctl nodes clear web-1-AB12",
					"clusterctl nodes clear web-1-AB12 --force --reason 'installed anew by hand'",
				},
			}, inventory.VerbClear),
			a.leaf(leaf{
				name: string(
					inventory.VerbForget,
				),
				args:    "NAME…",
				min:     1,
				max:     -1,
				usage:   "remove the records of nodes",
				about:   "A node that is forgotten and seen again is Quarantined until it is cleared.\n" + chooseHelp,
				selects: true,
				flags: append([]cli.Flag{
					selectorFlag(),
					yesFlag(),
					&cli.BoolFlag{Name: "force", Usage: "also nodes that are still seen"},
					&cli.BoolFlag{
						Name:  "remove-agent",
						Usage: "remove the agent from the hosts first: a job, which is waited for",
					},
				}, jobFlags()...),
				examples: []string{
					"clusterctl nodes forget web-9-ZZ00",
					"clusterctl nodes forget web-9-ZZ00 --remove-agent",
					"clusterctl nodes forget web-9-ZZ00 --force --reason 'sold'",
				},
				run: nodesForget,
			}),
			a.nodesExplain(),
			a.leaf(leaf{
				name:    "history",
				args:    "NAME",
				min:     1,
				max:     1,
				usage:   "show what happened to a node, oldest first",
				flags:   []cli.Flag{&cli.StringFlag{Name: "limit", Usage: "at most the last `N` entries"}},
				formats: []string{formatLong, formatJSON, formatYAML},
				examples: []string{
					"clusterctl nodes history web-1-AB12",
					"clusterctl nodes history web-1-AB12 --limit 5 -o long",
				},
				run: nodesHistory,
			}),
			a.leaf(leaf{
				name:  "set",
				args:  "NAME",
				min:   1,
				max:   1,
				usage: "say how a node is reached over ssh",
				about: "Only what is given changes. An empty value takes a setting back: the group's counts, then the site's.",
				flags: []cli.Flag{
					&cli.StringFlag{Name: "user", Usage: "the `USER` to log in as"},
					&cli.StringFlag{Name: "port", Usage: "the `PORT` of its sshd"},
					&cli.StringFlag{Name: "key-file", Usage: "the private key: a `PATH` on the manager's host"},
					&cli.StringFlag{Name: "jump", Usage: "the jump host: `USER@HOST:PORT`"},
					&cli.StringFlag{Name: "python", Usage: "the Python interpreter on the node: a `PATH`"},
					&cli.BoolWithInverseFlag{Name: "become", Usage: "whether to become another user after the login"},
					&cli.StringFlag{Name: "become-user", Usage: "the `USER` to become"},
					&cli.BoolFlag{Name: "reset", Usage: "first take back everything that was set for this node"},
					&cli.BoolFlag{
						Name:  "forget-host-key",
						Usage: "drop the recorded ssh host key; the next contact records it anew",
					},
				},
				examples: []string{
					"clusterctl nodes set web-1-AB12 --port 2222 --user admin",
					"clusterctl nodes set web-1-AB12 --jump ops@gate.example:22",
					"clusterctl nodes set web-1-AB12 --forget-host-key",
				},
				run: nodesSet,
			}),
			a.leaf(leaf{
				name:  "label",
				args:  "NAME KEY=VALUE… KEY-…",
				min:   2,
				max:   -1,
				usage: "put labels on a node, or take them off (KEY-)",
				about: "Labels are what nodes are found by beside their fields. Nothing that happens to a node changes them; forget removes them.",
				examples: []string{
					"clusterctl nodes label web-1-AB12 rack=r1 zone=north",
					"clusterctl nodes label web-1-AB12 rack=r2 zone-",
				},
				run: nodesLabel,
			}),
		},
	}
}

func nodesGet(ctx context.Context, c *call) error {
	filter, err := nodeFilter(c)
	if err != nil {
		return err
	}

	layout, err := nodeColumns.read(c)
	if err != nil {
		return err
	}

	if c.Bool("watch") {
		return followNodes(ctx, c, layout, filter)
	}

	nodes, err := c.manager.Nodes(ctx, filter)
	if err != nil {
		return err
	}

	if len(nodes.Items) == 0 && c.selects() {
		return c.noMatch()
	}

	layout.sort(nodes.Items)

	v := view{wire: nodes, stale: nodes.Stale}
	for _, n := range nodes.Items {
		v.names = append(v.names, n.Name)
	}

	v.table = func(p *printer) { layout.print(p, nodes.Items) }
	v.long = func(p *printer) {
		for _, n := range nodes.Items {
			p.node(n)
		}
	}

	if len(nodes.Items) == 0 && c.forPeople() {
		if c.IsSet("status") || c.IsSet("state") || c.IsSet("group") {
			c.say("no node meets the filters")
		} else {
			c.say("there are no nodes yet: start an agent on a host, or prepare hosts with clusterctl discover ADDR…")
		}

		return nil
	}

	return c.show(v)
}

// nodeFilter reads the arguments and filters of `nodes get`.
func nodeFilter(c *call) (client.NodeFilter, error) {
	f := client.NodeFilter{Names: c.args, Group: values(c, "group"), Selector: c.String("selector")}
	for _, word := range values(c, "status") {
		s, err := inventory.ParseStatus(word)
		if err != nil {
			var known []string
			for _, row := range inventory.Statuses {
				known = append(known, string(row.Status))
			}

			return f, usagef("%q is not a status", word).do("the statuses are %s", strings.Join(known, ", "))
		}

		f.Status = append(f.Status, s)
	}

	for _, word := range values(c, "state") {
		s, err := inventory.ParseState(word)
		if err != nil {
			return f, usagef(
				"%q is not a state",
				word,
			).do("the states are %s, %s and %s", inventory.Discovered, inventory.Disappeared, inventory.Unknown)
		}

		f.State = append(f.State, s)
	}

	return f, nil
}

// values are the values of a flag that can be repeated or hold several, separated by commas.
func values(c *call, flag string) []string {
	var all []string
	for _, text := range c.StringSlice(flag) {
		for word := range strings.SplitSeq(text, ",") {
			all = append(all, strings.TrimSpace(word))
		}
	}

	return all
}

func nodesForget(ctx context.Context, c *call) error {
	if c.Bool("remove-agent") {
		if c.Bool("force") {
			return usagef(
				"--force does not go with --remove-agent",
			).do("leave --force out: to remove its agent, the node has to be seen")
		}

		return c.submit(ctx, inventory.VerbForget)
	}

	for _, flag := range []string{"timeout", "no-wait"} {
		if c.IsSet(flag) {
			return usagef(
				"--%s is for a job, and only --remove-agent needs one",
				flag,
			).do("leave it out, or add --remove-agent")
		}
	}

	if err := c.choose(ctx, "forget"); err != nil {
		return err
	}

	done, err := c.manager.Forget(ctx, api.Forget{Nodes: c.args, Force: c.Bool("force"), Reason: c.String("reason")})
	if err != nil {
		return err
	}

	return c.changed(done, c.args, "forgotten: %s", strings.Join(c.args, ", "))
}

func nodesHistory(ctx context.Context, c *call) error {
	limit, err := number(c, "limit", 1)
	if err != nil {
		return err
	}

	entries, err := c.manager.History(ctx, c.args[0], limit)
	if err != nil {
		return err
	}

	return c.show(view{
		wire: entries, stale: entries.Stale,
		table: func(p *printer) { p.history(entries.Items) },
		long:  func(p *printer) { p.historyLong(entries.Items) },
	})
}

// setTries is how often a change of a connection is made anew where the node
// changes at the same time.
const setTries = 5

func nodesSet(ctx context.Context, c *call) error {
	name := c.args[0]
	fields := []string{"user", "port", "key-file", "jump", "python", "become", "become-user", "reset"}

	connection := slices.ContainsFunc(fields, c.IsSet)
	if !connection && !c.Bool("forget-host-key") {
		return usagef(
			"%s needs something to set",
			short(c.FullName()),
		).do("%s --help shows what it can set", c.FullName())
	}

	patch := api.NodePatch{ForgetHostKey: c.Bool("forget-host-key")}
	set := func() (api.Node, error) {
		if !connection {
			return c.manager.PatchNode(ctx, name, patch)
		}

		// The wire replaces the whole; only what is given is to change.
		now, err := c.manager.Node(ctx, name)
		if err != nil {
			return api.Node{}, err
		}

		conn := api.Connection{}
		if now.Connection != nil && !c.Bool("reset") {
			conn = *now.Connection
		}

		if err := setConnection(c, &conn); err != nil {
			return api.Node{}, err
		}

		patch.Connection = &conn

		return c.manager.IfMatch(client.Tag(now.Revision)).PatchNode(ctx, name, patch)
	}

	n, err := set()
	for try := 1; try < setTries && inventory.KindOf(err) == inventory.KindPrecondition; try++ {
		n, err = set() // somebody else changed the node meanwhile
	}

	if err != nil {
		return err
	}

	if patch.ForgetHostKey {
		c.say("the host key of %s is forgotten; the next contact records it anew", n.Name)
	}

	return c.show(view{
		wire: n, names: []string{n.Name},
		table: func(p *printer) { p.fields(append([]string{"Name", n.Name}, connectionFields(n.Connection)...)...) },
		long:  func(p *printer) { p.node(n) },
	})
}

func nodesLabel(ctx context.Context, c *call) error {
	patch := api.NodePatch{Labels: map[string]*string{}}
	for _, word := range c.args[1:] {
		key, value, set := strings.Cut(word, "=")
		if !set {
			var taken bool
			if key, taken = strings.CutSuffix(word, "-"); !taken {
				return usagef("%q neither puts a label on nor takes one off", word).do("write KEY=VALUE or KEY-")
			}
		}

		if _, twice := patch.Labels[key]; twice {
			return usagef("the label %q is given twice", key)
		}

		if patch.Labels[key] = nil; set {
			patch.Labels[key] = &value
		}
	}

	n, err := c.manager.PatchNode(ctx, c.args[0], patch)
	if err != nil {
		return err
	}

	return c.show(view{
		wire: n, names: []string{n.Name},
		table: func(p *printer) { p.fields("Name", n.Name, "Labels", labels(n.Labels)) },
		long:  func(p *printer) { p.node(n) },
	})
}

// labels prints one label a line.
func labels(of map[string]string) string {
	lines := make([]string, 0, len(of))
	for _, key := range slices.Sorted(maps.Keys(of)) {
		lines = append(lines, oneLine(key)+"="+oneLine(of[key]))
	}

	return strings.Join(lines, "\n")
}

func setConnection(c *call, conn *api.Connection) error {
	for flag, at := range map[string]*string{
		"user": &conn.User, "key-file": &conn.KeyFile, "jump": &conn.Jump, "python": &conn.Python, "become-user": &conn.BecomeUser,
	} {
		if c.IsSet(flag) {
			*at = c.String(flag)
		}
	}

	if c.IsSet("become") {
		become := c.Bool("become")
		conn.Become = &become
	}

	if c.IsSet("port") {
		port := 0
		if c.String("port") != "" {
			var err error
			if port, err = number(c, "port", 1); err != nil {
				return err
			}
		}

		conn.Port = port
	}

	return nil
}

// nodeNote is what an operator should know of a node beyond its status.
func nodeNote(n api.Node) string {
	var notes []string
	if len(n.Duplicates) > 0 {
		notes = append(notes, "also claimed by "+list(n.Duplicates))
	}

	if len(n.Residue) > 0 {
		notes = append(notes, "residue of "+list(n.Residue))
	}

	if n.LastError != "" {
		notes = append(notes, oneLine(n.LastError))
	}

	return strings.Join(notes, "; ")
}

// node prints everything about one node.
func (p *printer) node(n api.Node) {
	was := func(now, before string) string {
		if before == "" || before == now {
			return now
		}

		return now + " (was " + oneLine(before) + ")"
	}

	seen := make([]string, 0, len(n.Seen))
	for observer, alive := range n.Seen {
		word := "alive"
		if !alive {
			word = "gone"
		}

		seen = append(seen, oneLine(observer)+": "+word)
	}

	slices.Sort(seen)
	pairs := []string{
		"Name",
		oneLine(n.Name),
		"Label",
		oneLine(n.Label),
		"Serial",
		oneLine(n.Serial),
		"Address",
		oneLine(n.Addr),
		"Status",
		was(p.paint.status(n.Status), string(n.PrevStatus)),
		"State",
		was(p.paint.state(n.State), string(n.PrevState)),
		"Group",
		oneLine(n.Group),
		"Applied by job",
		oneLine(n.Applied),
		"Residue of",
		list(n.Residue),
		"Last error",
		printable(n.LastError, true),
		"Held by job",
		oneLine(n.Job),
		"Verb",
		oneLine(string(n.Verb)),
		"Before",
		before(n.Before),
		"Labels",
		labels(n.Labels),
		"Seen by",
		strings.Join(seen, "\n"),
		"Also claimed by",
		list(n.Duplicates),
		"Host keys",
		printable(strings.Join(n.HostKeys, "\n"), true),
	}
	pairs = append(pairs, connectionFields(n.Connection)...)
	pairs = append(
		pairs,
		"History entries",
		fmt.Sprint(n.Entries),
		"Created",
		timeText(n.Created),
		"Updated",
		timeText(n.Updated),
		"Revision",
		fmt.Sprint(n.Revision),
	)
	p.fields(pairs...)
}

func before(b *api.Before) string {
	if b == nil {
		return ""
	}

	parts := []string{oneLine(string(b.Status))}
	for _, part := range [][2]string{
		{"was ", string(b.PrevStatus)}, {"group ", b.Group}, {"applied by job ", b.Applied},
		{"residue of ", strings.Join(b.Residue, ", ")}, {"last error: ", b.LastError},
	} {
		if part[1] != "" {
			parts = append(parts, part[0]+oneLine(part[1]))
		}
	}

	return strings.Join(append(parts, inventory.Count(b.Entries, "history entry", "history entries")), "; ")
}

// connectionFields are what was set for a node on how to reach it.
func connectionFields(conn *api.Connection) []string {
	if conn == nil {
		return nil
	}

	port, become := "", ""
	if conn.Port != 0 {
		port = fmt.Sprint(conn.Port)
	}

	if conn.Become != nil {
		become = map[bool]string{true: "yes", false: "no"}[*conn.Become]
	}

	return []string{
		"ssh user",
		oneLine(conn.User),
		"ssh port",
		port,
		"ssh key file",
		oneLine(conn.KeyFile),
		"Jump host",
		oneLine(conn.Jump),
		"Python",
		oneLine(conn.Python),
		"Become",
		become,
		"Become user",
		oneLine(conn.BecomeUser),
	}
}

func (p *printer) history(entries []api.HistoryEntry) {
	var rows [][]string
	for _, e := range entries {
		rows = append(rows, []string{
			timeText(
				e.Time,
			),
			oneLine(string(e.Verb)),
			transition(p, e),
			oneLine(string(e.State)),
			oneLine(e.Group),
			oneLine(e.Job),
			oneLine(e.Actor),
			clip(oneLine(e.Reason), 72),
		})
	}

	p.rows([]string{"TIME", "VERB", "STATUS", "STATE", "GROUP", "JOB", "ACTOR", "REASON"}, rows)
}

func transition(p *printer, e api.HistoryEntry) string {
	if e.From == "" || e.From == e.To {
		return p.paint.status(e.To)
	}

	return oneLine(string(e.From)) + " → " + p.paint.status(e.To)
}

func (p *printer) historyLong(entries []api.HistoryEntry) {
	for _, e := range entries {
		read := ""
		if e.Read != 0 {
			read = fmt.Sprint(e.Read)
		}

		p.fields(
			"Entry",
			fmt.Sprint(e.Seq),
			"Time",
			e.Time.Local().Format(time.RFC3339),
			"Verb",
			oneLine(string(e.Verb)),
			"Status",
			transition(p, e),
			"State",
			oneLine(string(e.State)),
			"Group",
			oneLine(e.Group),
			"Actor",
			oneLine(e.Actor),
			"Job",
			oneLine(e.Job),
			"Reason",
			printable(e.Reason, true),
			"Read revision",
			read,
		)
	}
}
