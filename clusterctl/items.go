// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// itemNoun is a noun whose items are parts of a setting, each with a name.
type itemNoun struct {
	word, list string   // list is the command that lists the items
	keys       []string // the settings with the items; the last part of each is the kind
	names      positional
}

var (
	groupNoun  = itemNoun{word: "group", list: "groups", keys: []string{"groups"}, names: groupNames}
	windowNoun = itemNoun{
		word: "window", list: "windows", keys: []string{"windows"},
		names: offer(func(ctx context.Context, m *client.Client) ([]api.Window, error) {
			l, err := m.Windows(ctx)
			return l.Windows, err
		}, func(w api.Window) candidate { return candidate{w.Name, w.Cron} }),
	}
	policyNoun = itemNoun{
		word: "policy", list: "policy list", names: policyNames,
		keys: []string{"policies.commission", "policies.upgrade", "policies.verify"},
	}
)

// flagKind is the option that chooses the kind of a new policy.
const flagKind = "kind"

func kindOf(key string) string { return key[strings.LastIndex(key, ".")+1:] }

func (n itemNoun) kinds() []string {
	var kinds []string
	for _, key := range n.keys {
		kinds = append(kinds, kindOf(key))
	}

	return kinds
}

// itemRows are the commands that change the items of a noun.
func itemRows(n itemNoun) rows {
	return rows{
		n.word + " set": {
			formats: namelessFormats, complete: n.names,
			run: func(ctx context.Context, c *call) error {
				return c.changeItem(ctx, n, func(item map[string]any) (map[string]any, error) {
					return edited(item, c.args[1:])
				})
			},
		},
		n.word + " delete": {
			formats: namelessFormats, complete: n.names,
			run: func(ctx context.Context, c *call) error {
				return c.changeItem(ctx, n, func(item map[string]any) (map[string]any, error) {
					if item == nil {
						return nil, exit.Errorf(exit.NotFound, "there is no %s %q", n.word, c.args[0]).
							Try("to list them: %s %s", c.self(), n.list)
					}

					return nil, nil //nolint:nilnil // no item: it is deleted
				})
			},
		},
	}
}

// edited returns a copy of the item with fields replaced, or removed by an empty value.
func edited(item map[string]any, args []string) (map[string]any, error) {
	fields, err := assignments(args)
	if err != nil {
		return nil, err
	}

	next := maps.Clone(item)
	if next == nil {
		next = map[string]any{}
	}

	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if field == fieldName {
			return nil, exit.Usagef("the name is not a field").Try("delete it, and set it under the other name")
		}

		putPath(next, strings.Split(field, "."), fields[field])
	}

	return next, nil
}

// putPath puts the value at the path, without a change of what the map shares with others. Empty
// text removes it, with a mapping that becomes empty.
func putPath(m map[string]any, path []string, v any) {
	if len(path) > 1 {
		old, _ := m[path[0]].(map[string]any)

		part := map[string]any{}
		maps.Copy(part, old)
		putPath(part, path[1:], v)

		if v = part; len(part) == 0 {
			v = ""
		}
	}

	if m[path[0]] = v; v == "" {
		delete(m, path[0])
	}
}

// changeItem changes one item, and leaves all others as they are. edit returns the new item for
// the present one, which is nil if there is none; a nil result deletes the item.
func (c *call) changeItem(
	ctx context.Context, n itemNoun, edit func(map[string]any) (map[string]any, error),
) error {
	for attempt := 1; ; attempt++ {
		config, tag, err := c.manager.Newest().TaggedConfig(ctx)
		if err != nil {
			return err
		}
		key, item, err := c.findItem(config, n)
		if err != nil {
			return err
		}
		next, err := edit(item)
		if err != nil {
			return err
		}

		if next == nil {
			if err := c.checkUnused(n, config); err != nil {
				return err
			}
		}

		match := c.manager.IfMatch(tag)

		change, is := match.PatchConfig, "is now"
		if c.Bool("dry-run") {
			change, is = match.PreviewConfig, "would be"
		}
		now, err := change(ctx, api.Vars{key: withItem(key, config[key].Value, c.args[0], next)})

		// Somebody else changed the configuration between the read and the write.
		kind := inventory.KindOf(err)
		if attempt < setAttempts && (kind == inventory.KindPrecondition || kind == inventory.KindConflict) {
			continue
		}

		if err != nil {
			return err
		}

		return c.showItem(n, key, next, config[key].Origin, is, now)
	}
}

// showItem prints the item after a change, and the settings for a program.
func (c *call) showItem(n itemNoun, key string, item map[string]any, origin, is string, now api.Config) error {
	if c.format != print.FormatTable {
		return c.showConfig(api.Config{key: now[key]})
	}

	text := "deleted"
	if item != nil {
		shown := maps.Clone(item)
		delete(shown, fieldName)
		text = print.Scalar(shown)
	}

	c.say("%s %s %s %s", n.word, c.args[0], is, text)

	if origin != now[key].Origin {
		c.say("%s is set at run time: what the configuration file says about it no longer applies", key)
		c.say("to return to the file: %s config unset %s", c.self(), key)
	}

	return nil
}

// atRunTime is the origin of a setting that overrides the configuration file.
const atRunTime = "overlay"

// sayDropped names the items that a change of the configuration has removed.
func (c *call) sayDropped(before, now api.Config) {
	var dropped []string

	for _, n := range []itemNoun{groupNoun, windowNoun, policyNoun} {
		for _, key := range n.keys {
			for name := range eachItem(before[key].Value) {
				if getItem(now[key].Value, name) == nil {
					dropped = append(dropped, n.word+" "+name)
				}
			}
		}
	}

	if len(dropped) > 0 {
		c.say("dropped with that: %s", strings.Join(dropped, ", "))
	}
}

// fieldName is the field with the name of an item in a list.
const fieldName = "name"

// findItem returns the setting of the item, and the item, or nil for a new one.
func (c *call) findItem(config api.Config, n itemNoun) (string, map[string]any, error) {
	name, kind := c.args[0], c.String(flagKind)

	for _, key := range n.keys {
		if item := getItem(config[key].Value, name); item != nil {
			if kind != "" && kind != kindOf(key) {
				return "", nil, exit.Usagef("the kind of the %s %s is %s, and not %s", n.word, name, kindOf(key), kind).
					Try("leave out --%s, or choose another name", flagKind)
			}

			return key, item, nil
		}
	}

	if n.word == policyNoun.word && name == policyReturns {
		return "", nil, exit.Usagef("the policy %s is built in, and each group has its own reaction to a return", name).
			Try("to change that of a group: %[1]s group set GROUP on_return=REACTION\n"+
				"to see the groups: %[1]s groups\nto turn it off: %[1]s policy disable %[2]s", c.self(), name)
	}

	i := slices.IndexFunc(n.keys, func(key string) bool { return len(n.keys) == 1 || kindOf(key) == kind })

	switch {
	case i >= 0:
		return n.keys[i], nil, nil
	case kind == "":
		remedy := "to list them: " + c.self() + " " + n.list
		if c.takesKind() {
			remedy += "\nto add it: give --" + flagKind
		}
		return "", nil, exit.Errorf(exit.NotFound, "there is no %s %q", n.word, name).
			Try("%s", remedy)
	}

	return "", nil, exit.Usagef("%q is no kind of a %s", kind, n.word).
		Try("the kinds are %s", strings.Join(n.kinds(), ", "))
}

// policyReturns is the policy that is no item of a setting.
const policyReturns = "returns"

// takesKind reports whether the command can add an item of a kind.
func (c *call) takesKind() bool {
	return slices.ContainsFunc(c.Flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), flagKind) })
}

// checkUnused refuses to delete a group that other groups, policies or windows name, with the commands that change
// those.
func (c *call) checkUnused(n itemNoun, config api.Config) error {
	if n.word != groupNoun.word {
		return nil
	}

	var (
		users, lines []string
		name         = c.args[0]
	)

	use := func(user string, command ...string) {
		users = append(users, user)

		for i := range command {
			command[i] = api.ShellQuote(command[i])
		}

		lines = append(lines, c.self()+" "+strings.Join(command, " "))
	}

	for user, item := range eachItem(config[groupNoun.keys[0]].Value) {
		if requires, _ := item["requires"].(map[string]any); requires[name] != nil && user != name {
			use("required by "+user, "group", "set", user, "requires."+name+"=")
		}
	}

	for user, item := range eachItem(config["policies.commission"].Value) {
		roles, _ := item["roles"].([]any)
		if item["group"] == name || slices.ContainsFunc(roles, func(role any) bool {
			part, _ := role.(map[string]any)
			return part["group"] == name
		}) {
			use("the policy "+user, "policy", "delete", user)
		}
	}

	for user, item := range eachItem(config[windowNoun.keys[0]].Value) {
		groups, _ := item["groups"].([]any)

		others := slices.DeleteFunc(slices.Clone(groups), func(g any) bool { return g == name })
		switch {
		case len(others) == len(groups):
		case len(others) == 0:
			use("the window "+user, "window", "delete", user)
		default:
			use("the window "+user, "window", "set", user, "groups="+print.Scalar(others))
		}
	}

	groups := config[groupNoun.keys[0]]
	all, _ := groups.Value.([]any)

	switch {
	case len(users) > 0:
	case len(all) == 1 && groups.Origin == atRunTime:
		return exit.Usagef("%s is the last of the groups that were set at run time", name).
			Try("to return to those of the configuration file: %s config unset %s", c.self(), groupNoun.keys[0])
	default:
		return nil
	}

	return exit.Usagef("the group %s is in use: %s", name, strings.Join(users, ", ")).
		Try("change that first, for example:\n%s", strings.Join(lines, "\n"))
}

// getItem returns the item of that name in the value of a setting, or nil.
func getItem(value any, name string) map[string]any {
	for is, item := range eachItem(value) {
		if is == name {
			return item
		}
	}

	return nil
}

// eachItem returns the items in the value of a setting: a list of items with names, or a mapping by name.
func eachItem(value any) iter.Seq2[string, map[string]any] {
	return func(yield func(string, map[string]any) bool) {
		byName, _ := value.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(byName)) {
			if item, ok := byName[name].(map[string]any); ok && !yield(name, item) {
				return
			}
		}

		list, _ := value.([]any)
		for _, v := range list {
			item, _ := v.(map[string]any)
			if name, ok := item[fieldName].(string); ok && !yield(name, item) {
				return
			}
		}
	}
}

// withItem returns a copy of the value of a setting with the item in place of that name, or
// without one if item is nil. Policies are a mapping, which may be absent.
func withItem(key string, value any, name string, item map[string]any) any {
	if strings.HasPrefix(key, "policies.") {
		all, _ := value.(map[string]any)

		out := map[string]any{}
		maps.Copy(out, all)

		if out[name] = item; item == nil {
			delete(out, name)
		}

		return out
	}

	all, _ := value.([]any)
	out := make([]any, 0, len(all)+1)
	isIt := func(v any) bool { old, _ := v.(map[string]any); return old[fieldName] == name }

	if item != nil {
		item = maps.Clone(item)
		item[fieldName] = name
	}

	for _, v := range all {
		switch {
		case !isIt(v):
			out = append(out, v)
		case item != nil:
			out = append(out, item)
		}
	}

	if item != nil && !slices.ContainsFunc(all, isIt) {
		out = append(out, item)
	}

	return out
}
