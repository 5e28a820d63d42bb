// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// completeWord is the hidden command that the shells' scripts call. The
// library's own scripts evaluate what was typed so far, and know neither the
// values of options nor what the manager knows.
const completeWord = "__complete"

// completeTime bounds how long a press of the tab key may take. It is a text
// because a build can set it: the tests' program has more time, on machines that
// are busy with other tests.
var completeTime = "1s"

// completeMost bounds how many candidates a shell is given.
const completeMost = 2000

//go:embed completion/bash
var bashScript string

//go:embed completion/zsh
var zshScript string

//go:embed completion/fish
var fishScript string

func (a *app) completion() *cli.Command {
	group := &cli.Command{
		Name:        "completion",
		Usage:       "print a script that completes commands, options and live names: bash, zsh or fish",
		Description: "It asks the manager for the names of nodes, jobs and groups, for a second at most, and is silent where nobody answers.",
	}
	for _, shell := range []struct{ name, script, example string }{
		{"bash", bashScript, "clusterctl completion bash > /etc/bash_completion.d/clusterctl"},
		{"zsh", zshScript, "clusterctl completion zsh > /usr/local/share/zsh/site-functions/_clusterctl"},
		{"fish", fishScript, "clusterctl completion fish > /etc/fish/completions/clusterctl.fish"},
	} {
		group.Commands = append(group.Commands, a.leaf(leaf{
			name:     shell.name,
			usage:    "print the script for " + shell.name,
			examples: []string{shell.example},
			formats:  []string{},
			run:      func(_ context.Context, c *call) error { return c.write([]byte(shell.script)) },
		}))
	}

	return group
}

// candidate is a word that may stand where the cursor is.
type candidate struct{ word, about string }

// completer is one press of the tab key.
type completer struct {
	command *cli.Command
	path    string   // of the command, without the program's name
	args    []string // the positional arguments before the cursor
	options map[string]string
	manager *client.Client // nil: the URL makes no sense
}

// complete prints the candidates for the last of the words, one a line with
// its meaning behind a tab. Whatever goes wrong, it prints fewer.
func (a *app) complete(ctx context.Context, args []string) int {
	limit, err := time.ParseDuration(completeTime)
	if err != nil {
		panic(err) // the build is wrong
	}

	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	cut := 0
	if len(args) > 1 && args[0] == "--bash" {
		// bash splits words at = and : as well, and wants back only what comes after.
		current := strings.TrimLeft(args[1], "=:")
		args = joined(args[2:])
		cut = len(args[len(args)-1]) - len(current)
	}

	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}

	if len(args) == 0 {
		args = []string{""}
	}

	current := args[len(args)-1]

	n := 0
	for _, c := range a.candidates(ctx, args) {
		if !strings.HasPrefix(c.word, current) || len(c.word) < cut || n == completeMost {
			continue
		}

		n++

		line := printable(c.word[max(cut, 0):], false)
		if c.about != "" {
			line += "\t" + oneLine(c.about)
		}

		fmt.Fprintln(a.Stdout, line)
	}

	return ExitDone
}

// joined puts the words together that bash has split at = and :.
func joined(words []string) []string {
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}

	var out []string

	glue := false
	for _, w := range words {
		broken := w != "" && strings.Trim(w, "=:") == ""
		if len(out) > 0 && (broken || glue) {
			out[len(out)-1] += w
		} else {
			out = append(out, w)
		}

		glue = broken
	}

	if len(out) == 0 {
		out = []string{""}
	}

	return out
}

func (a *app) candidates(ctx context.Context, words []string) []candidate {
	before, current := words[:len(words)-1], words[len(words)-1]
	root := a.root()
	c := &completer{command: root, options: map[string]string{}}
	line := []*cli.Command{root}
	var pending string // the option whose value comes next

	plain := false // after --
	for _, w := range before {
		name, value, given := strings.Cut(strings.TrimLeft(w, "-"), "=")
		switch {
		case pending != "":
			c.options[pending] = w
			pending = ""
		case plain:
			c.args = append(c.args, w)
		case w == "--":
			plain = true
		case len(w) > 1 && w[0] == '-':
			f := option(line, name)
			switch {
			case f == nil:
			case given:
				c.options[f.Names()[0]] = value
			case takesValue(f):
				pending = f.Names()[0]
			default:
				c.options[f.Names()[0]] = "true"
			}
		default:
			sub := c.command.Command(w)
			if sub == nil || len(c.args) > 0 {
				c.args = append(c.args, w)
				continue
			}

			c.command = sub
			line = append(line, sub)
			c.path = strings.TrimSpace(c.path + " " + sub.Name)
		}
	}

	url := c.options["url"]
	if url == "" {
		url = os.Getenv("CLUSTERM_URL")
	}

	c.manager, _ = client.New(client.Options{URL: url, UserAgent: "clusterctl/" + a.Version.Version, Patience: -1})
	switch {
	case pending != "":
		return c.values(ctx, pending, current)
	case !plain && strings.HasPrefix(current, "-"):
		if name, value, given := strings.Cut(strings.TrimLeft(current, "-"), "="); given {
			f := option(line, name)
			if f == nil {
				return nil
			}

			return prefixed(strings.TrimSuffix(current, value), c.values(ctx, f.Names()[0], value))
		}

		return c.flags(line)
	case len(c.command.Commands) > 0:
		var out []candidate
		for _, sub := range c.command.VisibleCommands() {
			out = append(out, candidate{sub.Name, sub.Usage})
		}

		return out
	}

	if positional, ok := completions[c.path]; ok && positional != nil {
		return slices.DeleteFunc(
			positional(ctx, c, current),
			func(x candidate) bool { return slices.Contains(c.args, x.word) },
		)
	}

	return nil
}

// option finds an option of the command or of those above it.
func option(line []*cli.Command, name string) cli.Flag {
	for _, cmd := range slices.Backward(line) {
		for _, f := range cmd.Flags {
			if slices.Contains(f.Names(), name) {
				return f
			}
		}
	}

	return nil
}

func takesValue(f cli.Flag) bool {
	d, ok := f.(cli.DocGenerationFlag)
	return ok && d.TakesValue()
}

// flags are the options that may come next.
func (c *completer) flags(line []*cli.Command) []candidate {
	var out []candidate
	for _, cmd := range slices.Backward(line) {
		for _, f := range cmd.Flags {
			if local, ok := f.(cli.LocalFlag); ok && local.IsLocal() && cmd != c.command {
				continue
			}

			_, again := f.(*cli.StringSliceFlag)
			if _, given := c.options[f.Names()[0]]; given && !again {
				continue
			}

			about := ""
			if d, ok := f.(cli.DocGenerationFlag); ok {
				about, _ = placeholder(d.GetUsage())
			}

			if inverse, ok := f.(*cli.BoolWithInverseFlag); ok {
				out = append(out, candidate{"--" + inverse.Name, about}, candidate{"--no-" + inverse.Name, about})
				continue
			}

			out = append(out, candidate{dashed(f.Names()[0]), about})
		}
	}

	return out
}

// values are what an option may have as its value.
func (c *completer) values(ctx context.Context, option, current string) []candidate {
	words := func(all ...string) []candidate {
		var out []candidate
		for _, w := range all {
			out = append(out, candidate{word: w})
		}

		return out
	}
	switch option {
	case "output":
		return words(append([]string{formatTable}, c.formats()...)...)
	case "host-group", "group":
		if c.path == "nodes get" || c.path == "nodes watch" {
			return several(current, c.groups(ctx))
		}

		return c.groups(ctx)
	case "node":
		return c.nodes(ctx, nil)
	case "status":
		if strings.HasPrefix(c.path, "job") {
			var out []candidate
			for _, s := range api.JobStatuses {
				out = append(out, candidate{word: string(s)})
			}

			return several(current, out)
		}

		var out []candidate
		for _, row := range inventory.Statuses {
			out = append(out, candidate{string(row.Status), row.Meaning})
		}

		return several(current, out)
	case "state":
		var out []candidate
		for _, row := range inventory.States {
			out = append(out, candidate{string(row.State), row.Meaning})
		}

		return several(current, out)
	case "columns", "sort":
		names := nodeColumns.names()
		switch {
		case strings.HasPrefix(c.path, "job"):
			names = jobColumns.names()
		case strings.HasPrefix(c.path, "instance"):
			names = instanceColumns.names()
		}

		out := words(names...)
		if option == "sort" && strings.HasPrefix(current[strings.LastIndexByte(current, ',')+1:], "-") {
			out = prefixed("-", out)
		}

		return several(current, out)
	case "on-failure":
		return []candidate{
			{api.OnFailureBatch, "clean all nodes of the request"},
			{api.OnFailureFailed, "clean the nodes that failed"},
		}
	case "selector":
		return c.selector(ctx, current)
	case "extra-vars":
		if path, ok := strings.CutPrefix(current, "@"); ok {
			return prefixed("@", files(path))
		}

		return words("@")
	}

	return nil
}

// several completes the last of several values that are separated by commas.
func several(current string, values []candidate) []candidate {
	i := strings.LastIndexByte(current, ',') + 1
	given := strings.Split(current[:i], ",")
	values = slices.DeleteFunc(slices.Clone(values), func(x candidate) bool { return slices.Contains(given, x.word) })

	return prefixed(current[:i], values)
}

func prefixed(prefix string, values []candidate) []candidate {
	out := make([]candidate, len(values))
	for i, v := range values {
		out[i] = candidate{prefix + v.word, v.about}
	}

	return out
}

// selector completes the last part of a selector, where it is KEY=VALUE or KEY!=VALUE.
func (c *completer) selector(ctx context.Context, current string) []candidate {
	i := strings.LastIndexByte(current, ',') + 1

	key, value, ok := strings.Cut(current[i:], "=")
	if !ok {
		return prefixed(current[:i], []candidate{
			{
				"status=",
				"",
			},
			{"status!=", ""},
			{"state=", ""},
			{"state!=", ""},
			{"group=", ""},
			{"group!=", ""},
			{"label=", ""},
			{"name=", ""},
		})
	}

	before := strings.TrimSuffix(current, value)
	switch strings.TrimSuffix(key, "!") {
	case "status", "state":
		return prefixed(before, c.values(ctx, strings.TrimSuffix(key, "!"), value))
	case "group":
		return prefixed(before, c.groups(ctx))
	case "name":
		return prefixed(before, c.nodes(ctx, nil))
	}

	return nil
}

func (c *completer) formats() []string {
	if f, ok := c.command.Metadata[metaFormats].([]string); ok {
		return f
	}

	return nil
}

func (c *completer) nodes(ctx context.Context, keep func(api.Node) bool) []candidate {
	if c.manager == nil {
		return nil
	}

	nodes, err := c.manager.Nodes(ctx, client.NodeFilter{})
	if err != nil {
		return nil
	}

	var out []candidate
	for _, n := range nodes.Items {
		if keep != nil && !keep(n) {
			continue
		}

		about := string(n.Status) + ", " + string(n.State)
		if n.Group != "" {
			about += ", " + n.Group
		}

		out = append(out, candidate{n.Name, about})
	}

	return out
}

func (c *completer) groups(ctx context.Context) []candidate {
	if c.manager == nil {
		return nil
	}

	groups, err := c.manager.Groups(ctx)
	if err != nil {
		return nil
	}

	var out []candidate
	for _, g := range groups.Items {
		about := ""
		if g.Needs != "" {
			about = "needs " + g.Needs
		}

		out = append(out, candidate{g.Name, about})
	}

	return out
}

// files are the files and folders whose path starts as typed.
func files(typed string) []candidate {
	dir, base := filepath.Split(typed)

	at := dir
	if at == "" {
		at = "."
	}

	entries, err := os.ReadDir(at)
	if err != nil {
		return nil
	}

	var out []candidate
	for _, e := range entries {
		name := e.Name()
		if !strings.HasPrefix(name, base) || strings.HasPrefix(name, ".") && !strings.HasPrefix(base, ".") {
			continue
		}

		if e.IsDir() {
			name += "/"
		}

		out = append(out, candidate{word: dir + name})
	}

	return out
}

// positional completes a positional argument.
type positional func(ctx context.Context, c *completer, current string) []candidate

// completions say what the positional arguments of each command are; nil:
// nothing that could be known. A command without arguments is not in it.
var completions = map[string]positional{
	"nodes get":          anyNodes,
	"nodes watch":        anyNodes,
	"nodes explain":      oneNode,
	"nodes history":      oneNode,
	"nodes set":          oneNode,
	"nodes label":        oneNode,
	"nodes commission":   nodesFor(inventory.VerbCommission),
	"nodes decommission": nodesFor(inventory.VerbDecommission),
	"nodes update":       nodesFor(inventory.VerbUpdate),
	"nodes maintenance":  nodesFor(inventory.VerbMaintenance),
	"nodes clear":        nodesFor(inventory.VerbClear),
	"nodes forget":       anyNodes,
	"discover":           nil,
	"job get":            jobsThat(nil, "active", "last"),
	"job why":            jobsThat(nil, "active", "last"),
	"job logs":           jobsThat(nil, "active", "last"),
	"job wait":           jobsThat(func(j api.Job) bool { return !j.Status.Ended() }, "active"),
	"job cancel":         jobsThat(func(j api.Job) bool { return !j.Status.Ended() }, "active"),
	"job retry": jobsThat(
		func(j api.Job) bool { return j.Status.Ended() && j.Status != api.Complete },
		"last",
	),
	"vars get":       varKeys,
	"vars unset":     varKeys,
	"vars set":       nil,
	"support-bundle": func(_ context.Context, _ *completer, current string) []candidate { return files(current) },
	"man":            func(_ context.Context, _ *completer, current string) []candidate { return files(current) },
	"config get":     configKeys(false),
	"config unset":   configKeys(true),
	"config set": func(ctx context.Context, c *completer, current string) []candidate {
		keys := configKeys(true)(ctx, c, current)
		for i := range keys {
			keys[i].word += "="
		}

		return keys
	},
}

func anyNodes(ctx context.Context, c *completer, _ string) []candidate { return c.nodes(ctx, nil) }

func oneNode(ctx context.Context, c *completer, _ string) []candidate {
	if len(c.args) > 0 {
		return nil
	}

	return c.nodes(ctx, nil)
}

// nodesFor are the nodes that the verb takes as they are.
func nodesFor(v inventory.Verb) positional {
	t, _ := inventory.TransitionOf(v)

	return func(ctx context.Context, c *completer, _ string) []candidate {
		return c.nodes(ctx, func(n api.Node) bool { return n.Check(t) == nil })
	}
}

func jobsThat(keep func(api.Job) bool, words ...string) positional {
	return func(ctx context.Context, c *completer, _ string) []candidate {
		if c.manager == nil || len(c.args) > 0 {
			return nil
		}

		jobs, err := c.manager.Jobs(ctx, client.JobFilter{Limit: 100})
		if err != nil {
			return nil
		}

		var out []candidate
		for _, j := range slices.Backward(jobs.Items) {
			if keep == nil || keep(j) {
				out = append(out, candidate{j.ID, clip(title(j), 50) + ": " + string(j.Status)})
			}
		}

		for _, w := range words {
			out = append(out, candidate{word: w})
		}

		return out
	}
}

func varKeys(ctx context.Context, c *completer, _ string) []candidate {
	if c.manager == nil {
		return nil
	}

	scope := client.ScopeGlobal
	if g := c.options["group"]; g != "" {
		scope = client.ScopeGroup(g)
	}

	if n := c.options["node"]; n != "" {
		scope = client.ScopeNode(n)
	}

	vars, err := c.manager.Vars(ctx, scope)
	if err != nil {
		return nil
	}

	var out []candidate
	for _, k := range slices.Sorted(maps.Keys(vars)) {
		out = append(out, candidate{word: k})
	}

	return out
}

func configKeys(settable bool) positional {
	return func(ctx context.Context, c *completer, _ string) []candidate {
		if c.manager == nil {
			return nil
		}

		config, err := c.manager.Config(ctx)
		if err != nil {
			return nil
		}

		var out []candidate
		for _, k := range slices.Sorted(maps.Keys(config)) {
			if s := config[k]; s.Settable || !settable {
				out = append(out, candidate{k, s.Origin})
			}
		}

		return out
	}
}
