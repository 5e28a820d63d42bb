// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"cmp"
	_ "embed"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// commandsText describes every command: arguments, aliases, text, options and examples. The help, the manual pages
// and docs/cli.md are made from it. Its own first section describes its form.
//
//go:embed commands.md
var commandsText string

// entry is a command as commandsText describes it.
type entry struct {
	path, args, usage string
	text              []string // paragraphs
	aliases, examples []string
	options           []optionText
}

// optionText is an option of a command.
type optionText struct {
	name, value, usage string
	aliases            []string
	several            bool // it can be repeated
}

// book is the parsed commandsText.
type book struct {
	entries []*entry
	at      map[string]*entry
	shared  map[string]optionText // by name
	phrases map[string]string     // text of several commands, by name
}

var (
	headingLine = regexp.MustCompile(`^## ([a-z][a-z -]*?)(?: \(([^)]*)\))?(?: ([A-Z\[].*))?$`)
	phraseLine  = regexp.MustCompile(`^## \{(.*)\}$`)
	optionLine  = regexp.MustCompile("^\\* `--([^` ,]+)((?:, -+[^` ,]+)*)(?: ([^`]+?)(…)?)?`(?:: (.*))?$")
)

// sharedOptions is the entry with the options of several commands.
const sharedOptions = "options"

// commandBook returns the parsed commandsText.
var commandBook = sync.OnceValue(func() book {
	b := book{at: map[string]*entry{}, shared: map[string]optionText{}, phrases: map[string]string{}}

	var kinds []string
	for _, k := range api.WatchKinds {
		kinds = append(kinds, string(k))
	}

	phrases := []string{"{watch kinds}", strings.Join(kinds, ", ")}
	_, text, _ := strings.Cut(commandsText, "\n## ")

	for section := range strings.SplitSeq("## "+text, "\n## ") {
		title, body, _ := strings.Cut("## "+strings.TrimPrefix(section, "## "), "\n")
		body = strings.NewReplacer(phrases...).Replace(body)

		if m := phraseLine.FindStringSubmatch(title); m != nil {
			phrases = append(phrases, "{"+m[1]+"}", strings.Join(paragraphs(body), "\n\n"))
			b.phrases[m[1]] = strings.Join(paragraphs(body), "\n")
			continue
		}

		m := headingLine.FindStringSubmatch(title)
		if m == nil {
			panic("commands.md: not a command: " + title)
		}
		e := &entry{path: strings.TrimPrefix(m[1], "clusterctl"), args: m[3]}
		if m[2] != "" {
			e.aliases = strings.Split(m[2], ", ")
		}
		for _, paragraph := range paragraphs(body) {
			b.add(e, paragraph)
		}

		// The lifecycle table has the usage of a verb.
		if _, isVerb := verbAt(e.path); !isVerb && len(e.text) > 0 {
			e.usage, e.text = e.text[0], e.text[1:]
		}

		if e.path != sharedOptions {
			b.entries = append(b.entries, e)
			b.at[e.path] = e
		}
	}

	return b
})

// paragraphs splits text at its blank lines. A paragraph of examples or options keeps its lines.
func paragraphs(body string) []string {
	var all []string

	for p := range strings.SplitSeq(strings.Trim(body, "\n"), "\n\n") {
		switch {
		case p == "":
		case strings.HasPrefix(p, "    "):
			all = append(all, p)
		case strings.HasPrefix(p, "* "):
			all = append(all, strings.ReplaceAll(p, "\n  ", " "))
		default:
			all = append(all, strings.ReplaceAll(p, "\n", " "))
		}
	}

	return all
}

// add adds a paragraph of its text to the entry.
func (b *book) add(e *entry, paragraph string) {
	for line := range strings.Lines(paragraph) {
		line = strings.TrimRight(line, "\n")

		if example, ok := strings.CutPrefix(line, "    "); ok {
			e.examples = append(e.examples, example)
			continue
		}

		m := optionLine.FindStringSubmatch(line)
		if m == nil {
			e.text = append(e.text, line)
			continue
		}

		o, isShared := b.shared[m[1]]
		switch {
		case m[5] != "":
			o = optionText{name: m[1], value: m[3], usage: m[5], several: m[4] != ""}
			for _, alias := range strings.Split(m[2], ", ")[1:] {
				o.aliases = append(o.aliases, strings.TrimLeft(alias, "-"))
			}
		case !isShared:
			panic("commands.md: an option without text: " + line)
		}

		if e.options = append(e.options, o); e.path == sharedOptions {
			b.shared[o.name] = o
		}
	}
}

// flag returns the option for one command line, which keeps it.
func (o optionText) flag() cli.Flag {
	usage := strings.Replace(o.usage, o.value, "`"+o.value+"`", 1)

	switch name, inverse := strings.CutPrefix(o.name, "[no-]"); {
	case inverse:
		return &cli.BoolWithInverseFlag{Name: name, Usage: o.usage}
	case o.value == "":
		return switchFlag(o.name, o.usage, o.aliases...)
	case o.several:
		return listFlag(o.name, usage, o.aliases...)
	default:
		return valueFlag(o.name, usage, o.aliases...)
	}
}

// flagsAt returns the options that commandsText has for a command.
func flagsAt(path string) []cli.Flag {
	var flags []cli.Flag

	if e := commandBook().at[path]; e != nil {
		for _, o := range e.options {
			flags = append(flags, o.flag())
		}
	}

	return flags
}

// shared returns options of several commands, by name.
func shared(names ...string) []cli.Flag {
	flags := make([]cli.Flag, len(names))
	for i, name := range names {
		flags[i] = commandBook().shared[name].flag()
	}

	return flags
}

// phrase returns text of several commands, by name.
func phrase(name string) string { return commandBook().phrases[name] }

// rows have what each command does, by its path. A group of commands needs no row.
type rows map[string]leaf

// allRows returns the rows of all commands.
func allRows() rows {
	all := rows{}

	for _, some := range []rows{
		nodesRows(), importRows(), moveRows(), verbRows(), jobRows(), planRows(), eventsRows(), auditRows(), varsRows(),
		configRows(), fleetRows(), loginRows(), contextRows(), inventoryRows(), tokenRows(), certificateRows(),
		instanceRows(),
		bootstrapRows(),
		authRows(), notificationRows(), keyRows(), policyRows(), rolloutRows(), groupsRows(), windowsRows(),
		pauseRows(), repoRows(), statusRows(), supportRows(), backupRows(), completionRows(), referenceRows(),
		pingRows(), trustRows(), powerRows(), alertRows(), factsRows(), classRows(), imageRows(), bootRows(),
		itemRows(groupNoun), itemRows(windowNoun), itemRows(policyNoun),
	} {
		maps.Copy(all, some)
	}

	return all
}

// commands returns the tree of commands below the program, in the order of commandsText.
func (a *app) commands() []*cli.Command {
	all := allRows()
	root := &cli.Command{}
	at := map[string]*cli.Command{"": root}
	entries := slices.Clone(commandBook().entries)

	// A verb needs no text of its own.
	for _, row := range inventory.Lifecycle {
		if path := verbPath(row); commandBook().at[path] == nil {
			entries = append(entries, &entry{path: path})
		}
	}

	for _, e := range entries {
		if e.path == "" {
			continue
		}

		i := strings.LastIndexByte(e.path, ' ')
		l := all[e.path]
		l.name, l.aliases = e.path[i+1:], e.aliases
		l.usage, l.args = cmp.Or(l.usage, e.usage), cmp.Or(l.args, e.args)
		l.about = cmp.Or(l.about, strings.Join(e.text, "\n"))

		if l.examples == nil {
			l.examples = e.examples
		}

		if l.flags == nil {
			l.flags = flagsAt(e.path)
		}

		parent := at[e.path[:max(i, 0)]]
		at[e.path] = a.leaf(l)
		parent.Commands = append(parent.Commands, at[e.path])
	}

	return root.Commands
}
