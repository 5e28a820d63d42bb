// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/follow"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

func nodesRows() rows {
	return rows{
		"nodes get": {
			selects: true, names: true, formats: tableFormats, columns: print.NodeColumns.Names(), run: listNodes,
		},
		"nodes watch": {
			selects: true,
			names:   true,
			formats: []string{print.FormatJSON},
			run: func(ctx context.Context, c *call) error {
				o := client.WatchOptions{Names: c.args, Groups: values(c, "group"), Selector: c.String("selector")}
				return follow.Nodes(ctx, c.manager, o, c.format == print.FormatJSON, c.output())
			},
		},
		"nodes explain": {
			names:   true,
			formats: namelessFormats,
			run: func(ctx context.Context, c *call) error {
				return view(c, func(p *print.Printer, e api.NodeExplanation) {
					p.NodeExplanation(e, c.self())
				})(c.manager.Explain(ctx, c.args[0]))
			},
		},
		"nodes diff": {
			names:   true,
			formats: namelessFormats,
			run: func(ctx context.Context, c *call) error {
				d, err := c.manager.Difference(ctx, c.args[0])
				if err != nil {
					return err
				}

				// Such a difference is no drift of the host: an apply would take an upgrade back.
				if n, err := c.manager.Node(ctx, c.args[0]); err == nil && len(n.RequestVars) > 0 {
					c.say(
						"only the request of job %s had set %s: nodes apply would take that back; "+
							"to keep it: %s nodes explain %s",
						n.Applied,
						strings.Join(n.RequestVars, ", "),
						c.self(),
						n.Name,
					)
				}

				return view(c, (*print.Printer).Difference)(d, nil)
			},
		},
		"nodes history": {
			names:   true,
			formats: namelessFormats,
			run: func(ctx context.Context, c *call) error {
				limit, err := number(c, "limit", 1)
				if err != nil {
					return err
				}

				return noun[inventory.HistoryEntry]{
					columns: print.HistoryColumns, long: print.HistoryDetails.Blocks,
					empty: "no history of " + c.args[0] + " is recorded",
					all: func(ctx context.Context, c *call) (listing[inventory.HistoryEntry], error) {
						return listingOf(c.manager.History(ctx, c.args[0], limit))
					},
				}.showAll(ctx, c)
			},
		},
		"nodes set":   {selects: true, names: true, run: setNodes},
		"nodes label": {min: 1, max: -1, complete: anyNodes, run: labelNodes},
	}
}

var nodeNoun = noun[api.Node]{
	columns: print.NodeColumns, long: print.NodeDetails.Blocks, name: func(n api.Node) string { return n.Name },
}

// values returns the values of an option that accepts several, repeated or
// separated by commas.
func values(c *call, flag string) []string {
	var all []string
	for _, text := range c.StringSlice(flag) {
		for word := range strings.SplitSeq(text, ",") {
			all = append(all, strings.TrimSpace(word))
		}
	}

	return all
}

func listNodes(ctx context.Context, c *call) error {
	filter, err := nodeFilter(c)
	if err != nil {
		return err
	}

	layout, err := layoutOf(c, print.NodeColumns)
	if err != nil {
		return err
	}
	if c.Bool("watch") {
		return watchNodes(ctx, c, layout, filter)
	}

	nodes, missing, err := c.knownNodes(ctx, filter)
	if err != nil {
		return err
	}

	// A selector without a match is more likely a mistake than an empty filter is.
	if len(nodes.Items) == 0 && c.hasSelector() {
		return c.noMatch()
	}

	var unknown error
	if len(missing) > 0 {
		unknown = exit.Errorf(exit.Failed, "no such node: %s", strings.Join(missing, ", ")).
			Try("to list the nodes: %s nodes get", c.self())
	}

	if c.isEmpty(len(nodes.Items)) {
		if c.IsSet("status") || c.IsSet("state") || c.IsSet("group") {
			c.say("no node matches the filters")
		} else {
			c.sayNoNodes(ctx)
		}

		return unknown
	}

	switch {
	case !c.forPeople():
	case len(c.args) > 0:
		// A list of some nodes does not show whether others have their addresses.
		if err := c.addAddrRivals(ctx, nodes.Items); err != nil {
			return err
		}
	default:
		for _, shared := range print.SharedAddrs(nodes.Items) {
			c.say("%s", shared)
		}
	}

	known, _ := listingOf(nodes, nil)

	return cmp.Or(nodeNoun.show(c, layout, known), unknown)
}

// sayNoNodes explains an empty list of nodes.
func (c *call) sayNoNodes(ctx context.Context) {
	// Others may exist that a scope hides.
	if id, err := c.manager.WhoAmI(ctx); err == nil && id.Scope != nil {
		c.say("no node is within the scope %s of %s", id.Scope, id.Principal)
		return
	}

	c.say("no nodes yet: start an agent on a host, or prepare hosts with clusterctl discover ADDR…")
}

// addAddrRivals marks the nodes with an address that other nodes have, too.
func (c *call) addAddrRivals(ctx context.Context, nodes []api.Node) error {
	for i := range nodes {
		n, err := c.manager.Node(ctx, nodes[i].Name)
		if inventory.KindOf(err) == inventory.KindNotFound {
			continue // forgotten meanwhile
		}

		if err != nil {
			return err
		}

		nodes[i].AddrRivals = n.AddrRivals
	}

	return nil
}

// knownNodes returns the nodes of a filter, and the names in it that do not exist.
// It is an error if none exists.
func (c *call) knownNodes(ctx context.Context, filter client.NodeFilter) (
	known api.List[api.Node], missing []string, err error,
) {
	known, err = c.manager.Nodes(ctx, filter)
	if inventory.KindOf(err) != inventory.KindNotFound || len(filter.Names) < 2 {
		return known, nil, err
	}

	// The manager refuses the request as a whole: ask again for those that exist.
	all, listErr := c.manager.Nodes(ctx, client.NodeFilter{})
	if listErr != nil {
		return known, nil, listErr
	}

	var names []string

	for _, name := range filter.Names {
		if slices.ContainsFunc(all.Items, func(n api.Node) bool { return n.Name == name }) {
			names = append(names, name)
		} else if !slices.Contains(missing, name) {
			missing = append(missing, name)
		}
	}

	if len(names) == 0 {
		return known, nil, err
	}

	filter.Names = names
	known, err = c.manager.Nodes(ctx, filter)

	return known, missing, err
}

// nodeFilter reads the arguments and filters of `nodes get`.
func nodeFilter(c *call) (client.NodeFilter, error) {
	f := client.NodeFilter{Names: c.args, Group: values(c, "group"), Selector: c.String("selector")}

	var err error
	if f.Status, err = choices(c, "status", aStatus, statuses()); err != nil {
		return f, err
	}

	f.State, err = choices(c, "state", aState, states())

	return f, err
}

// What a wrong word is not.
const (
	aStatus = "a status of a node"
	aState  = "a state of a node"
)

func statuses() (all []inventory.Status) {
	for _, row := range inventory.Statuses {
		all = append(all, row.Status)
	}

	return all
}

func states() (all []inventory.State) {
	for _, row := range inventory.States {
		all = append(all, row.State)
	}

	return all
}

// watchNodes is nodes get --watch.
func watchNodes(ctx context.Context, c *call, layout print.Layout[api.Node], filter client.NodeFilter) error {
	if err := c.checkWatch(); err != nil {
		return err
	}

	return follow.Table[api.Node]{
		Layout: layout,
		Options: client.WatchOptions{
			Kinds:    []api.WatchKind{api.WatchNodes},
			Names:    filter.Names,
			Groups:   filter.Group,
			Selector: filter.Selector,
		},
		Decode: api.Change.Node,
		Name:   func(n api.Node) string { return n.Name },
		// Groups and selector are filters of the watch itself.
		Match: func(n api.Node) bool {
			return (filter.Status == nil || slices.Contains(filter.Status, n.Status)) &&
				(filter.State == nil || slices.Contains(filter.State, n.State))
		},
		Order: func(a, b api.Node) int { return strings.Compare(a.Name, b.Name) },
	}.Follow(ctx, c.manager, c.output())
}

func forgetNodes(ctx context.Context, c *call, row inventory.Transition) error {
	// Removing the agent takes a job, and forgetting alone does not.
	if c.Bool("remove-agent") {
		if c.Bool("force") {
			return exit.Usagef("--force and --remove-agent exclude each other").
				Try("drop --force: the agent can be removed only from a Discovered node")
		}

		return c.submit(ctx, row)
	}

	needJob := []string{"timeout", "no-wait", "wait-timeout", "extra-vars", "plan"}

	for _, o := range inventory.Options {
		if o.Field != inventory.FieldReason && everyTaken(row)(o) {
			needJob = append(needJob, o.Name())
		}
	}

	for _, flag := range needJob {
		if c.IsSet(flag) {
			return exit.Usagef("--%s needs a job, and only --remove-agent starts one", flag).
				Try("drop it, or add --remove-agent")
		}
	}

	// The selector is resolved here, so that the operator confirms exact names.
	if err := c.chooseForgotten(ctx, row); err != nil {
		return err
	}

	done, err := c.manager.Forget(ctx, api.Forget{Nodes: c.args, Force: c.Bool("force"), Reason: c.String("reason")})
	if err != nil {
		return err
	}
	return c.changed(done, c.args, "forgotten: %s", strings.Join(c.args, ", "))
}

// setAttempts bounds the retries of a change that conflicts with another one.
const setAttempts = 5

func setNodes(ctx context.Context, c *call) error {
	// Without a setting there is nothing to change.
	hasSettings := slices.ContainsFunc(connectionFlags, c.IsSet)
	if !hasSettings && !c.Bool("forget-host-key") {
		return exit.Usagef("%s needs a setting", short(c.FullName())).Try("see: %s --help", c.FullName())
	}

	// A value that does not parse changes no node.
	if err := setConnection(c, &api.Connection{}); err != nil {
		return err
	}

	return c.changeNodes(ctx, "set the connection of",
		func(ctx context.Context, name string) (api.Node, error) {
			n, err := c.patchConnection(ctx, name, hasSettings)
			for range setAttempts - 1 {
				if inventory.KindOf(err) != inventory.KindPrecondition {
					break
				}

				// The node changed between the read and the write.
				n, err = c.patchConnection(ctx, name, hasSettings)
			}

			if err == nil && c.Bool("forget-host-key") {
				c.say("forgot the host key of %s; the next connection records a new one", n.Name)
			}

			return n, err
		},
		print.ConnectionDetails,
	)
}

// changeNodes changes the chosen nodes one by one, and prints each with the details
// of the change. verb completes the question "VERB 2 nodes?". A node that does not
// exist prevents all changes.
func (c *call) changeNodes(
	ctx context.Context,
	verb string,
	change func(ctx context.Context, name string) (api.Node, error),
	details print.Columns[api.Node],
) error {
	alone := len(c.args) == 1 && !c.hasSelector()
	if err := c.choose(ctx, verb); err != nil {
		return err
	}

	if !alone {
		if _, err := c.manager.Nodes(ctx, client.NodeFilter{Names: c.args}); err != nil {
			return err
		}
	}

	list := api.List[api.Node]{}
	names := []string{}

	for _, name := range c.args {
		n, err := change(ctx, name)
		if err != nil {
			if len(names) > 0 {
				c.say("changed before the failure: %s", strings.Join(names, ", "))
			}
			return err
		}

		list.Items = append(list.Items, n)
		names = append(names, name)
		list.Total, list.Revision = len(names), n.Revision
	}

	// One name has one node as its answer, and a choice of nodes a list.
	if alone {
		return c.showNodes(list.Items[0], list.Items, details)
	}

	return c.showNodes(list, list.Items, details)
}

// showNodes prints changed nodes with the details of the change.
func (c *call) showNodes(wire any, nodes []api.Node, details print.Columns[api.Node]) error {
	answer := print.Answer{
		Wire:  wire,
		Table: func(p *print.Printer) { details.Blocks(p, nodes) },
		Long:  func(p *print.Printer) { print.NodeDetails.Blocks(p, nodes) },
	}
	for _, n := range nodes {
		answer.Names = append(answer.Names, n.Name)
	}

	return c.show(answer)
}

// patchConnection changes the connection settings of a node once.
func (c *call) patchConnection(ctx context.Context, name string, hasSettings bool) (api.Node, error) {
	patch := api.NodePatch{ForgetHostKey: c.Bool("forget-host-key")}

	if !hasSettings {
		return c.manager.PatchNode(ctx, name, patch)
	}

	// The wire replaces all settings at once, so the others must be read first.
	now, err := c.manager.Node(ctx, name)
	if err != nil {
		return api.Node{}, err
	}

	// --reset starts from nothing, and otherwise the current settings stay.
	conn := api.Connection{}
	if now.Connection != nil && !c.Bool("reset") {
		conn = *now.Connection
	}
	if err := setConnection(c, &conn); err != nil {
		return api.Node{}, err
	}

	// The tag refuses the write if the node has changed since the read.
	patch.Connection = &conn

	return c.manager.IfMatch(client.Tag(now.Revision)).PatchNode(ctx, name, patch)
}

// connectionFlags are the options of `nodes set` that change a connection.
var connectionFlags = []string{"user", "port", "key-file", "jump", "python", "become", "become-user", "reset"}

// setConnection applies the given options to conn.
func setConnection(c *call, conn *api.Connection) error {
	if err := c.fill(conn, "port"); err != nil || !c.IsSet("port") {
		return err
	}

	if conn.Port = 0; c.String("port") == "" {
		return nil
	}

	var err error
	conn.Port, err = number(c, "port", 1)

	return err
}

func labelNodes(ctx context.Context, c *call) error {
	names, labels, err := labelArgs(c.args)
	if err != nil {
		return err
	}
	c.args = names

	switch {
	case c.IsSet("selector"):
		if err := c.checkSelector(); err != nil {
			return err
		}
	case len(names) == 0:
		return exit.Usagef("%s needs at least one NAME, or --selector", short(c.FullName())).
			Try("see: %s --help", c.FullName())
	}

	if len(labels) == 0 {
		return exit.Usagef("%s needs a label to set or to remove", short(c.FullName())).
			Try("write KEY=VALUE to set a label, or KEY- to remove one")
	}

	if c.args, err = c.expand(ctx, c.args); err != nil {
		return err
	}

	return c.changeNodes(ctx, "label",
		func(ctx context.Context, name string) (api.Node, error) {
			return c.manager.PatchNode(ctx, name, api.NodePatch{Labels: labels})
		},
		print.LabelDetails,
	)
}

// labelArgs splits the arguments of `nodes label` into names of nodes, which come
// first, and changes of labels; nil removes a label. The end of a name is never "-",
// and no name contains "=".
func labelArgs(words []string) (names []string, labels map[string]*string, err error) {
	labels = map[string]*string{}

	for _, word := range words {
		key, value, set := strings.Cut(word, "=")
		if !set {
			var remove bool
			if key, remove = strings.CutSuffix(word, "-"); !remove {
				if len(labels) == 0 {
					names = append(names, word)
					continue
				}

				return nil, nil, exit.Usagef("%q neither sets nor removes a label", word).
					Try("write KEY=VALUE to set a label, or KEY- to remove one; names of nodes come first")
			}
		}

		// zone=a zone- has no meaningful result.
		if _, twice := labels[key]; twice {
			return nil, nil, exit.Usagef("the label %q is given twice", key)
		}

		// nil removes the label.
		labels[key] = nil
		if set {
			labels[key] = &value
		}
	}

	return names, labels, nil
}
