// SPDX-License-Identifier: Apache-2.0

package api

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/contiv/cluster/inventory"
)

// CommandsOf returns the command lines of clusterctl that carry the actions out,
// each quoted for a shell. program is the command with its options, e.g.
// "clusterctl". Every line can be run as it is: where the operator chooses nodes or
// values, it shows the present ones. Only the values of variables that are not shown have to
// be added, from a file: without it, clusterctl refuses the line. It leaves out actions that
// this version does not have.
//
// Both programs print these lines: clusterctl below a message, and clusterm in
// the plain text of the first generation's contract.
func CommandsOf(program string, actions []inventory.Action) []string {
	var lines []string
	for _, a := range actions {
		words, _ := forms[a.Name].words(a)
		if words == nil {
			continue
		}

		line := program
		for _, w := range words {
			line += " " + ShellQuote(w)
		}

		lines = append(lines, line)
	}

	return lines
}

// listNodes are the arguments of clusterctl that list the nodes to choose from.
var listNodes = []string{"nodes", "get"}

// option returns the option if it is set.
func option(name string, set bool) []string {
	if set {
		return []string{name}
	}
	return nil
}

func submitWords(a inventory.Action) []string { return confirmed(submitCommand(a), a) }

func forgetWords(a inventory.Action) []string {
	if len(a.Nodes) == 0 {
		return listNodes
	}
	return confirmed(slices.Concat([]string{"nodes", "forget"}, a.Nodes, optionWords(a)), a)
}

// VerbWords returns the verb of a job as clusterctl has it: a command, with the option that belongs to it.
func VerbWords(v inventory.Verb) string {
	if v == inventory.VerbReapply {
		return string(inventory.VerbApply) + " --clean"
	}
	return string(v)
}

func submitCommand(a inventory.Action) []string {
	row, _ := inventory.TransitionOf(a.Verb)
	if row.TakesAddrs {
		words := append([]string{string(a.Verb)}, a.Addrs...)
		return append(append(words, a.Ranges...), optionWords(a)...)
	}

	if len(a.Nodes) == 0 {
		return listNodes
	}

	name, option, hasOption := strings.Cut(VerbWords(a.Verb), " ")
	words := append([]string{"nodes", name}, a.Nodes...)

	if hasOption {
		words = append(words, option)
	}

	// A job that removes records exists only to remove the agents first.
	if row.Success == "" {
		words = append(words, "--remove-agent")
	}

	if a.Group != "" {
		words = append(words, "-g", a.Group)
	}

	return append(words, optionWords(a)...)
}

func confirmed(words []string, a inventory.Action) []string {
	if a.Confirmed {
		words = append(words, "--yes")
	}
	return words
}

// optionWords returns the options of the job of an action as those of clusterctl.
func optionWords(a inventory.Action) []string {
	var words []string

	for _, o := range inventory.Options {
		text, set := o.Text(a.JobOptions)

		switch {
		case !set:
		case o.Value == "":
			words = append(words, "--"+o.Name())
		default:
			words = append(words, "--"+o.Name(), text)
		}
	}

	for _, addr := range slices.Sorted(maps.Keys(a.HostKeys)) {
		for _, key := range a.HostKeys[addr] {
			words = append(words, "--host-key", addr+"="+key)
		}
	}

	shown, withheld := a.SplitExtra()
	if len(shown) > 0 {
		words = append(words, "-e", inventory.ExtraText(shown))
	}
	if len(withheld) > 0 {
		words = append(words, "-e", fileOf(withheld))
	}

	if a.Timeout != 0 {
		words = append(words, "--timeout", inventory.ShortDuration(a.Timeout))
	}

	return words
}

// fileOf returns the value of -e for a file that the operator makes, with values of the
// variables. Its name lists them.
func fileOf(names []string) string {
	const most = 3

	text := strings.Join(names[:min(len(names), most)], "-and-")
	if more := len(names) - most; more > 0 {
		text += "-and-" + strconv.Itoa(more) + "-more"
	}
	return "@FILE-with-" + text
}

// ShellQuote quotes s unless a shell reads it as one plain word.
func ShellQuote(s string) string {
	plain := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_./:@%+=,", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
