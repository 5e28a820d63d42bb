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

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/facts"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// completeCommand is the hidden command that the scripts of the shells call. The
// library's own completion lacks the values of options and the names of nodes,
// jobs and groups.
const completeCommand = "__complete"

// completeTime bounds the time of one completion. It is text so that a build can
// set it: the tests allow more time, because they run on busy machines.
var completeTime = "1s"

// maxCandidates bounds the number of candidates.
const maxCandidates = 2000

//go:embed completion/bash
var bashScript string

//go:embed completion/zsh
var zshScript string

//go:embed completion/fish
var fishScript string

func completionRows() rows {
	script := func(text string) leaf {
		return leaf{
			local: true, formats: []string{},
			run: func(_ context.Context, c *call) error { return c.write([]byte(text)) },
		}
	}

	return rows{
		"completion bash": script(
			bashScript,
		),
		"completion zsh":  script(zshScript),
		"completion fish": script(fishScript),
	}
}

// candidate is a possible word at the cursor.
type candidate struct{ word, about string }

// completer is one completion.
type completer struct {
	command *cli.Command
	path    string   // of the command, without the name of the program
	args    []string // the positional arguments before the cursor
	options map[string]string
	manager *client.Client // nil: the URL is invalid
}

// complete prints the candidates for the last of the words, one per line, each
// with an optional description after a tab. A failure only reduces the candidates:
// an error message would end up in the operator's command line.
func (a *app) complete(ctx context.Context, args []string) int {
	limit, err := time.ParseDuration(completeTime)
	if err != nil {
		panic(err) // set wrongly by the build
	}

	// The shell blocks meanwhile.
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	cut := 0
	if len(args) > 1 && args[0] == "--bash" {
		// bash also splits words at = and :, and expects the part after them.
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

	// A candidate that does not continue the current word is of no use.
	current := args[len(args)-1]

	n := 0
	for _, c := range a.candidates(ctx, args) {
		if !strings.HasPrefix(c.word, current) || len(c.word) < cut || n == maxCandidates {
			continue
		}

		n++

		line := print.Inline(c.word[max(cut, 0):])
		if c.about != "" {
			line += "\t" + print.Line(c.about)
		}
		fmt.Fprintln(a.Stdout, line)
	}

	return exit.Done
}

// joined joins the words that bash split at = and :.
func joined(words []string) []string {
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}

	// A word of separators only joins its neighbours: --output = js
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

// candidates returns the candidates for the last word.
func (a *app) candidates(ctx context.Context, words []string) []candidate {
	before, current := words[:len(words)-1], words[len(words)-1]
	root := a.root()
	c := &completer{command: root, options: map[string]string{}}
	line := []*cli.Command{root}
	pending := ""  // the option that expects a value
	plain := false // after --

	for _, w := range before {
		name, value, hasValue := strings.Cut(strings.TrimLeft(w, "-"), "=")

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
			case hasValue:
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

	// The command line being completed may name another manager.
	url := c.options["url"]
	if url == "" {
		url = os.Getenv("CLUSTERM_URL")
	}

	// An invalid URL only costs the names: everything else completes without a manager.
	o, err := place(url, c.options["context"], c.options["url"] != "")
	if err == nil && useBearer(&o, c.options["token-file"]) == nil {
		o.UserAgent, o.Patience = "clusterctl/"+a.Version.Version, impatient
		c.manager, _ = client.New(o)
	}

	// In order: the value of an option, an option, a subcommand, an argument.
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

	positional, _ := c.command.Metadata[metaComplete].(positional)
	if positional == nil {
		return nil
	}

	// Do not offer an argument twice.
	return slices.DeleteFunc(positional(ctx, c, current), func(x candidate) bool {
		return slices.Contains(c.args, x.word)
	})
}

// option finds an option of a command or of the commands above it.
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

// takesValue reports whether an option expects a value.
func takesValue(f cli.Flag) bool {
	d, ok := f.(cli.DocGenerationFlag)
	return ok && d.TakesValue()
}

// flags returns the options that can come next.
func (c *completer) flags(line []*cli.Command) []candidate {
	var out []candidate
	for _, cmd := range slices.Backward(line) {
		for _, f := range cmd.Flags {
			if v, ok := f.(cli.VisibleFlag); ok && !v.IsVisible() {
				continue
			}

			// --version, for example, is an option of the program only.
			if local, ok := f.(cli.LocalFlag); ok && local.IsLocal() && cmd != c.command {
				continue
			}

			// Offer an option again only if it can be repeated.
			_, again := f.(*cli.StringSliceFlag)
			if _, given := c.options[f.Names()[0]]; given && !again {
				continue
			}

			about := ""
			if d, ok := f.(cli.DocGenerationFlag); ok {
				about, _ = placeholder(d.GetUsage())
			}

			// --become and --no-become are one option of the library.
			if inverse, ok := f.(*cli.BoolWithInverseFlag); ok {
				out = append(out, candidate{"--" + inverse.Name, about}, candidate{"--no-" + inverse.Name, about})
				continue
			}

			out = append(out, candidate{dashed(f.Names()[0]), about})
		}
	}

	return out
}

// values returns the possible values of an option.
func (c *completer) values(ctx context.Context, option, current string) []candidate {
	switch option {
	case "output":
		return words(append([]string{print.FormatTable}, c.formats()...)...)
	case "host-group", "group", "scope-group":
		// A filter accepts several groups, a verb one.
		if c.path == "nodes get" || c.path == "nodes watch" {
			return several(current, c.groups(ctx))
		}
		return c.groups(ctx)
	case "node":
		return c.nodes(ctx, nil)
	case "status":
		// Jobs and nodes have different statuses.
		if strings.HasPrefix(c.path, "job") {
			return several(current, words(api.JobStatuses...))
		}

		var out []candidate
		for _, row := range inventory.Statuses {
			out = append(out, candidate{string(row.Status), row.Meaning})
		}

		return several(current, out)
	case "from":
		if c.path != "class create" {
			return nil
		}
		return c.nodes(ctx, func(n api.Node) bool { return n.Hardware != nil })
	case "to":
		if c.path != "nodes move" {
			return nil
		}

		var out []candidate
		for _, row := range inventory.Statuses {
			if !row.InProgress {
				out = append(out, candidate{string(row.Status), row.Meaning})
			}
		}

		return out
	case "state":
		var out []candidate
		for _, row := range inventory.States {
			out = append(out, candidate{string(row.State), row.Meaning})
		}

		return several(current, out)
	case "columns", "sort":
		names, _ := c.command.Metadata[metaColumns].([]string)

		out := words(names...)
		if option == "sort" && strings.HasPrefix(current[strings.LastIndexByte(current, ',')+1:], "-") {
			out = prefixed("-", out)
		}
		return several(current, out)
	case flagKind:
		if c.path == "events" {
			return several(current, words(api.WatchKinds...))
		}
		return words(policyNoun.kinds()...)
	case "blocks":
		return several(current, words(blockable()...))
	case "role":
		return words("viewer", "monitor", "operator", "admin")
	case "selector", "scope-selector":
		return c.selector(ctx, current)
	case "context":
		return words(contextNames()...)
	case "plan":
		return planIDs(ctx, c, current)
	case "ca-file", "token-file":
		return files(current)
	case "extra-vars":
		if path, ok := strings.CutPrefix(current, "@"); ok {
			return prefixed("@", files(path))
		}
		return words("@")
	}

	if fixed, ok := optionWords[option]; ok {
		return words(fixed...)
	}
	if fixed, ok := optionWords[c.path+" "+option]; ok {
		return several(current, words(fixed...))
	}

	return choicesOf(option)
}

// optionWords are the values of options that have few, by the option, or by command and option where several values
// can be given, or where other commands have an option of the name.
var optionWords = map[string][]string{
	"boot-mode":             {"bios", "uefi"},
	"mode":                  {"bios", "uefi"},
	"root-device-strategy":  {string(facts.Smallest), string(facts.Largest)},
	"bmc":                   {"redfish", "ipmi", "idrac", "ilo", "irmc", "manual-management"},
	"nodes expected result": {string(api.ExpectedSeen), string(api.ExpectedMissing), string(api.ExpectedUnknown)},
}

// words returns candidates without descriptions.
func words[T ~string](all ...T) []candidate {
	var out []candidate
	for _, w := range all {
		out = append(out, candidate{word: string(w)})
	}

	return out
}

// several completes the last of several values separated by commas.
func several(current string, values []candidate) []candidate {
	i := strings.LastIndexByte(current, ',') + 1
	// The values before the last comma are complete.
	given := strings.Split(current[:i], ",")
	values = slices.DeleteFunc(slices.Clone(values), func(x candidate) bool { return slices.Contains(given, x.word) })
	return prefixed(current[:i], values)
}

// prefixed returns values with a prefix before each word.
func prefixed(prefix string, values []candidate) []candidate {
	out := make([]candidate, len(values))
	for i, v := range values {
		out[i] = candidate{prefix + v.word, v.about}
	}

	return out
}

// selector completes the last condition of a selector: KEY=VALUE or KEY!=VALUE.
func (c *completer) selector(ctx context.Context, current string) []candidate {
	i := strings.LastIndexByte(current, ',') + 1

	// A condition with in (…) is not completed.
	key, value, ok := strings.Cut(current[i:], "=")
	if !ok && strings.HasPrefix(key, "facts.") {
		var out []candidate
		for _, f := range inventory.HardwareFields {
			out = append(out, candidate{"facts." + f.Name, f.Meaning})
		}
		return prefixed(current[:i], out)
	}
	if !ok {
		return prefixed(current[:i], words("status=", "status!=", "state=", "state!=", "group=", "group!=",
			"verification=", "outdated=", "power=", "last_error", "label=", "name=",
			"facts."))
	}

	before := strings.TrimSuffix(current, value)
	switch strings.TrimSuffix(key, "!") {
	case "status", "state":
		return prefixed(before, c.values(ctx, strings.TrimSuffix(key, "!"), value))
	case "group":
		return prefixed(before, c.groups(ctx))
	case "name":
		return prefixed(before, c.nodes(ctx, nil))
	case "verification":
		return prefixed(before, []candidate{
			{string(inventory.Clean), "verified, and as configured"},
			{string(inventory.Drifted), "differs from its configuration"},
			{string(inventory.Unverified), "the verification could not tell"},
		})
	case "power":
		return prefixed(before, words("on", "off", "changing"))
	case "outdated":
		return prefixed(before, []candidate{
			{"true", "would be configured with something else now"}, {"false", "has the configuration of now"},
		})
	}

	return nil
}

// formats returns the values of --output besides table.
func (c *completer) formats() []string {
	if f, ok := c.command.Metadata[metaFormats].([]string); ok {
		return f
	}
	return nil
}

// nodes returns the nodes that keep accepts; nil accepts all.
func (c *completer) nodes(ctx context.Context, keep func(api.Node) bool) []candidate {
	return offer(func(ctx context.Context, m *client.Client) ([]api.Node, error) {
		l, err := m.Nodes(ctx, client.NodeFilter{})
		return l.Items, err
	}, func(n api.Node) candidate {
		// A node that the verb would refuse is no candidate.
		if keep != nil && !keep(n) {
			return candidate{}
		}

		about := string(n.Status) + ", " + string(n.State)
		if n.Group != "" {
			about += ", " + n.Group
		}
		return candidate{n.Name, about}
	})(ctx, c, "")
}

// groups returns the host groups.
func (c *completer) groups(ctx context.Context) []candidate { return groupNames(ctx, c, "") }

// groupNames completes the names of host groups.
var groupNames = groups.offer(func(g api.Group) candidate {
	about := ""
	if len(g.Requires) > 0 {
		about = "requires " + g.Requires.String()
	}
	return candidate{g.Name, about}
})

// files returns the files and directories below a partial path.
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
		// Hidden files need a dot, as in a shell.
		if !strings.HasPrefix(name, base) || strings.HasPrefix(name, ".") && !strings.HasPrefix(base, ".") {
			continue
		}

		// The slash lets the next completion continue inside.
		if e.IsDir() {
			name += "/"
		}

		out = append(out, candidate{word: dir + name})
	}

	return out
}

// positional completes a positional argument.
type positional func(ctx context.Context, c *completer, current string) []candidate

// nothing is the completion of arguments that only the operator knows.
func nothing(context.Context, *completer, string) []candidate { return nil }

// fileNames completes the name of a file.
func fileNames(_ context.Context, _ *completer, current string) []candidate { return files(current) }

// verbThenNode completes a verb of `auth can-i`, and then a node.
func verbThenNode(ctx context.Context, c *completer, _ string) []candidate {
	switch len(c.args) {
	case 0:
	case 1:
		return c.nodes(ctx, nil)
	default:
		return nil
	}

	return append(words("get", "history", "explain", "ping", "set", "get-vars", "set-vars"), verbsOfNodes()...)
}

// actionThenNodes completes the action of a rollout, and then nodes.
func actionThenNodes(ctx context.Context, c *completer, _ string) []candidate {
	if len(c.args) > 0 || c.options["action"] != "" {
		return c.nodes(ctx, nil)
	}
	return verbsOfNodes()
}

// verbsOfNodes returns the verbs that change nodes.
func verbsOfNodes() []candidate {
	var out []candidate

	for _, row := range inventory.Lifecycle {
		if takesNodes(row) && row.ChangesStatus() {
			out = append(out, candidate{string(row.Verb), row.Meaning})
		}
	}

	return out
}

// anyNodes completes several nodes.
func anyNodes(ctx context.Context, c *completer, _ string) []candidate { return c.nodes(ctx, nil) }

// oneNode completes a single node.
func oneNode(ctx context.Context, c *completer, _ string) []candidate {
	if len(c.args) > 0 {
		return nil
	}
	return c.nodes(ctx, nil)
}

// nodesFor returns the nodes whose current status permits the verb.
func nodesFor(t inventory.Transition) positional {
	// The manager forgets a node in any status, with --force.
	if t.Success == "" {
		return anyNodes
	}

	return func(ctx context.Context, c *completer, _ string) []candidate {
		return c.nodes(ctx, func(n api.Node) bool { return n.Check(t) == nil })
	}
}

// varKeys completes the variables that are set at the chosen level.
func varKeys(ctx context.Context, c *completer, current string) []candidate {
	scope := client.ScopeGlobal
	if g := c.options["group"]; g != "" {
		scope = client.ScopeGroup(g)
	}
	if n := c.options["node"]; n != "" {
		scope = client.ScopeNode(n)
	}

	return offer(func(ctx context.Context, m *client.Client) ([]string, error) {
		vars, err := m.Vars(ctx, scope)
		return slices.Sorted(maps.Keys(vars)), err
	}, func(key string) candidate { return candidate{word: key} })(ctx, c, current)
}

// configKeys completes keys of the configuration.
func configKeys(settable bool) positional {
	return offer(func(ctx context.Context, m *client.Client) ([]settingRow, error) {
		config, err := m.Config(ctx)
		return settingRows(config), err
	}, func(s settingRow) candidate {
		if settable && !s.Settable {
			return candidate{}
		}
		return candidate{s.Key, s.Origin}
	})
}
