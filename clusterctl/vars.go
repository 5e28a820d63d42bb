// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

func varsRows() rows {
	return rows{
		"vars get":   {complete: varKeys, run: varsGet},
		"vars set":   {complete: nothing, run: varsSet},
		"vars unset": {complete: varKeys, run: varsUnset},
		"vars history": {
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
		},
		"vars undo": {run: varsUndo},
		"global":    {hidden: true},
		"global get": {
			run: func(ctx context.Context, c *call) error {
				v, err := c.manager.Vars(ctx, client.ScopeGlobal)
				if err != nil {
					return err
				}
				return c.showVars(v)
			},
		},
		"global set": {run: globalSet},
	}
}

func globalSet(ctx context.Context, c *call) error {
	v, err := c.extraVars(ctx)
	if err != nil {
		return err
	}

	// Replacing all variables by nothing must be explicit.
	if v == nil {
		problem := exit.Usagef("%s needs -e", short(c.FullName()))
		if c.IsSet("extra-vars") {
			problem = exit.Usagef("%s: -e holds no object; nothing was changed", short(c.FullName()))
		}
		return problem.Try("give all variables: -e '{\"KEY\": \"VALUE\"}' or -e @FILE; -e '{}' removes every one")
	}

	done, err := c.manager.SetVars(ctx, client.ScopeGlobal, v)
	if err != nil {
		return err
	}
	return c.changed(done, slices.Sorted(maps.Keys(v)), "the global variables are now: %s", keys(v))
}

// scope is the level that --global, --group or --node names.
type scope struct {
	client.Scope
	node  string // empty unless the level is a node
	title string
}

// scope reads the level of a command about one level.
func (c *call) scope(ctx context.Context) (scope, error) {
	all, err := c.scopes(ctx)

	switch {
	case err != nil:
		return scope{}, err
	case len(all) > 1:
		return scope{}, c.needsLevel()
	}

	return all[0], nil
}

// scopes reads --global, --group and --node, and requires at least one level. A
// level given twice counts once.
func (c *call) scopes(ctx context.Context) ([]scope, error) {
	var given []scope

	add := func(s scope) {
		if !slices.ContainsFunc(given, func(other scope) bool { return other.title == s.title }) {
			given = append(given, s)
		}
	}

	// No level is the default: a change of the wrong level affects other nodes.
	if c.Bool("global") {
		add(scope{Scope: client.ScopeGlobal, title: "every node"})
	}

	for _, g := range c.texts("group") {
		add(scope{Scope: client.ScopeGroup(g), title: "group " + g})
	}

	nodes, err := c.expand(ctx, c.texts("node"))
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		add(scope{Scope: client.ScopeNode(n), node: n, title: "node " + n})
	}

	// Every node and some nodes at once is hardly the intention.
	if len(given) == 0 || c.Bool("global") && len(given) > 1 {
		return nil, c.needsLevel()
	}

	return given, nil
}

func (c *call) needsLevel() error {
	return exit.Usagef("%s needs one of --global, --group GROUP and --node NAME", short(c.FullName())).
		Try("see: %s --help", c.FullName())
}

// texts returns the values of an option that takes one or several, without empty ones.
func (c *call) texts(flag string) []string {
	all := c.StringSlice(flag)
	if one := c.String(flag); one != "" {
		all = []string{one}
	}
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s == "" })
}

func varsGet(ctx context.Context, c *call) error {
	s, err := c.scope(ctx)
	if err != nil {
		return err
	}
	if c.Bool("merged") {
		return mergedGet(ctx, c, s)
	}

	v, err := c.manager.Vars(ctx, s.Scope)
	if err != nil {
		return err
	}
	if v, err = pick(v, c.args, s.title); err != nil {
		return err
	}

	return c.showVars(v)
}

// mergedGet shows the effective variables of a node.
func mergedGet(ctx context.Context, c *call, s scope) error {
	if s.node == "" {
		return exit.Usagef("--merged needs --node NAME").Try("%s --node NAME --merged", c.FullName())
	}

	m, err := c.manager.MergedVars(ctx, s.node)
	if err != nil {
		return err
	}

	if len(c.args) == 0 && c.isEmpty(len(m)) {
		c.say("no variables are set")
		return nil
	}

	// A missing key is an error, for scripts as well.
	if m, err = pick(m, c.args, s.title); err != nil {
		return err
	}

	return c.showVariables(m, m)
}

// variableRow is one variable of a level, or of a host.
type variableRow struct {
	Name string `json:"name"`
	api.MergedVar
}

var variableColumns = print.ColumnsOf[variableRow](nil, "variable=name", "value", "origin")

// showVariables prints variables, with their origin if it is known.
func (c *call) showVariables(wire any, vars api.MergedVars) error {
	names := slices.Sorted(maps.Keys(vars))

	rows := make([]variableRow, len(names))
	for i, k := range names {
		rows[i] = variableRow{k, vars[k]}
	}

	return c.show(print.Answer{
		Wire: wire, Names: names, Table: func(p *print.Printer) { variableColumns.Table(p, rows) },
	})
}

// pick returns the named keys of m, or all of m without names.
func pick[V any](m map[string]V, names []string, level string) (map[string]V, error) {
	if len(names) == 0 {
		return m, nil
	}

	picked := map[string]V{}

	var missing []string
	for _, k := range names {
		v, ok := m[k]
		if !ok {
			missing = append(missing, k)
			continue
		}

		picked[k] = v
	}

	if len(missing) > 0 {
		return nil, exit.Errorf(exit.NotFound, "not set for %s: %s", level, strings.Join(missing, ", ")).
			Try("set are: %s", keys(m))
	}

	return picked, nil
}

func keys[V any](m map[string]V) string {
	if len(m) == 0 {
		return "none"
	}
	return print.List(slices.Sorted(maps.Keys(m)))
}

func varsSet(ctx context.Context, c *call) error {
	scopes, err := c.scopes(ctx)
	if err != nil {
		return err
	}

	v, err := c.extraVars(ctx)
	if err != nil {
		return err
	}

	read := func(args []string) (api.Vars, error) { return variableAssignments(c.levels(), args) }
	if c.Bool("secret") {
		read = func(args []string) (api.Vars, error) { return c.secretAssignments(ctx, args) }
	}
	single, err := read(c.args)
	if err != nil {
		return err
	}
	if v == nil && len(single) == 0 {
		return exit.Usagef("%s needs KEY=VALUE or -e", short(c.FullName())).Try("see: %s --help", c.FullName())
	}

	if v == nil {
		v = api.Vars{}
	}

	// KEY=VALUE overrides the objects of -e.
	maps.Copy(v, single)

	// In a patch, null removes a key: setting one must not.
	var null []string
	for k, value := range v {
		if value == nil {
			null = append(null, k)
		}
	}

	if len(null) > 0 {
		slices.Sort(null)

		return exit.Usagef("%s cannot be set to null", strings.Join(null, ", ")).
			Try("to remove a variable: clusterctl vars unset")
	}

	var secret []string
	if c.Bool("secret") {
		secret = slices.Sorted(maps.Keys(v))
	}

	return c.patchVars(ctx, scopes, v, "set", secret...)
}

// levels returns the options for levels as they were given.
func (c *call) levels() string {
	var options []string
	if c.Bool("global") {
		options = append(options, "--global")
	}

	for _, name := range []string{"group", "node"} {
		for _, of := range c.texts(name) {
			options = append(options, "--"+name+" "+api.ShellQuote(of))
		}
	}

	return strings.Join(options, " ")
}

// variableAssignments reads KEY=VALUE arguments of variables that are not secret. levels are the
// options for the levels that they are set on.
func variableAssignments(levels string, args []string) (api.Vars, error) {
	for _, arg := range args {
		if key, text, _ := strings.Cut(arg, "="); key != "" && strings.HasPrefix(text, "@") {
			return nil, namesFile("", levels, arg)
		}
	}

	return assignments(args)
}

// patchVars changes the variables of every level, and reports the change. A level
// that cannot be read, such as that of an unknown node, prevents all changes. The
// variables named in secret become secret.
func (c *call) patchVars(
	ctx context.Context, scopes []scope, patch api.Vars, verb string, secret ...string,
) error {
	if len(scopes) > 1 {
		for _, s := range scopes {
			if _, err := c.manager.Vars(ctx, s.Scope); err != nil {
				return err
			}
		}
	}

	var (
		all    api.Changed
		titles []string
	)

	for _, s := range scopes {
		done, err := c.manager.PatchSecretVars(ctx, s.Scope, patch, secret...)
		if err != nil {
			if len(titles) > 0 {
				c.say("%s for %s before the failure: %s", verb, strings.Join(titles, ", "), keys(patch))
			}
			return err
		}

		all.Revision = done.Revision
		all.Warnings = append(all.Warnings, done.Warnings...)
		titles = append(titles, s.title)
	}

	// The levels share the patch, and so its warnings.
	all.Warnings = slices.Compact(slices.Sorted(slices.Values(all.Warnings)))

	return c.changed(all, slices.Sorted(maps.Keys(patch)), "%s for %s: %s", verb, strings.Join(titles, ", "),
		keys(patch))
}

func varsUnset(ctx context.Context, c *call) error {
	scopes, err := c.scopes(ctx)
	if err != nil {
		return err
	}

	for _, s := range scopes {
		set, err := c.manager.Vars(ctx, s.Scope)
		if err != nil {
			return err
		}

		// A key that is not set is probably misspelt.
		if _, err := pick(set, c.args, s.title); err != nil {
			return err
		}
	}

	patch := api.Vars{}
	for _, k := range c.args {
		patch[k] = nil
	}

	return c.patchVars(ctx, scopes, patch, "unset")
}

// changed reports a change: as a sentence on stderr, or as an object on stdout.
func (c *call) changed(done api.Changed, names []string, format string, args ...any) error {
	for _, w := range done.Warnings {
		c.say("warning: %s", w)
	}

	if c.forPeople() {
		c.say(format, args...)
		return nil
	}

	return c.show(print.Answer{Wire: done, Names: names})
}

func (c *call) showVars(v api.Vars) error {
	if c.isEmpty(len(v)) {
		c.say("no variables are set")
		return nil
	}

	known := api.MergedVars{}
	for k, value := range v {
		known[k] = api.MergedVar{Value: value}
	}

	return c.showVariables(v, known)
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
