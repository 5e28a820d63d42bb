// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// choose resolves --selector to c.args, and has the operator confirm a command
// about several nodes, or about a node that was not given by its whole name.
func (c *call) choose(ctx context.Context, verb string) error {
	if err := c.selectNodes(ctx); err != nil {
		return err
	}
	return c.confirmNodes(ctx, verb, false, nil)
}

// chooseTargets is choose for the nodes of a job. It names what the job takes out of service, and at a terminal
// asks about a single node of that, too. A script that names one node is asked nothing.
func (c *call) chooseTargets(ctx context.Context, row inventory.Transition, words string) error {
	if err := c.selectNodes(ctx); err != nil {
		return err
	}

	var warn func(ctx context.Context, asks bool) error
	if row.Interrupts() {
		warn = func(ctx context.Context, asks bool) error { return c.warnOfInterruption(ctx, row, asks) }
	}

	if err := c.confirmNodes(ctx, words, row.EndsService() && c.atTerminal() || c.danger(row) != "", warn); err != nil {
		return err
	}
	return c.confirmDanger(ctx, row)
}

// danger returns what the verb, or an option of the command line, destroys, or "".
func (c *call) danger(row inventory.Transition) string {
	if row.Replaces {
		return "all data on the root disk of each node"
	}

	for _, o := range inventory.Options {
		if o.Danger != "" && c.IsSet(o.Name()) {
			return o.Danger
		}
	}

	return ""
}

// confirmDanger asks once more before something is destroyed.
func (c *call) confirmDanger(ctx context.Context, row inventory.Transition) error {
	danger := c.danger(row)
	if danger == "" || c.Bool("yes") {
		return nil
	}

	return c.confirm(ctx, fmt.Sprintf("destroy %s, on %s: nothing brings it back", danger,
		inventory.Count(len(c.args), "node", "nodes")))
}

// chooseForgotten is choose for nodes whose records go. It names the residue that nobody would know of
// afterwards, and has the operator confirm that for a single node, too.
func (c *call) chooseForgotten(ctx context.Context, row inventory.Transition) error {
	if err := c.selectNodes(ctx); err != nil {
		return err
	}

	// The manager refuses a wrong name with its reason.
	nodes, err := c.manager.Nodes(ctx, client.NodeFilter{Names: c.args})
	if err != nil && inventory.KindOf(err) != inventory.KindNotFound {
		return err
	}

	var unclean []string
	for _, n := range nodes.Items {
		if len(n.Residue) > 0 {
			unclean = append(unclean, n.Name)
			c.say("%s may still carry the configuration of %s", n.Name, strings.Join(n.Residue, ", "))
		}
	}

	// How depends on the node: its own playbooks may have no cleanup for it.
	for _, name := range unclean {
		c.say("  to clean it first, see: %s nodes explain %s", c.self(), name)
	}

	return c.confirmNodes(ctx, string(row.Verb), len(unclean) > 0, nil)
}

// confirmNodes asks for the confirmation of choose; always: also about a single node. warn prints the
// consequences, also if there is no question; it may be nil.
func (c *call) confirmNodes(
	ctx context.Context, verb string, always bool, warn func(ctx context.Context, asks bool) error,
) error {
	if warn == nil {
		warn = func(context.Context, bool) error { return nil }
	}

	name, nodes := short(c.FullName()), inventory.Count(len(c.args), "node", "nodes")

	switch {
	case c.Bool("yes"), !always && len(c.args) < 2 && !c.abbreviated && !c.hasSelector():
		return warn(ctx, false)
	case !c.atTerminal():
		return exit.Usagef("%s concerns %s and needs a confirmation, which takes a terminal", name, nodes).
			Try("to confirm it here: add --yes")
	case slices.Contains(c.StringSlice("extra-vars"), "@-"):
		return exit.Usagef("cannot ask for confirmation: stdin is in use for the variables").Try("add --yes")
	}

	question := verb + " " + strings.Join(c.args, ", ")
	if len(c.args) > 1 {
		question = verb + " " + nodes
		if !c.hasSelector() { // the nodes of a selector are printed already
			question += ": " + strings.Join(c.args, ", ")
		}
	}

	if err := warn(ctx, true); err != nil {
		return err
	}

	return c.confirm(ctx, question)
}

// warnOfInterruption names the nodes that the verb takes out of service, with
// their groups, and the gentler ways. Before a question it refuses nodes that the verb does not
// take.
func (c *call) warnOfInterruption(ctx context.Context, row inventory.Transition, asks bool) error {
	// The manager refuses a wrong name with its reason, so the names alone will do.
	nodes, err := c.manager.Nodes(ctx, client.NodeFilter{Names: c.args})
	if err == nil && asks {
		if err := c.checkStatus(ctx, row, nodes.Items); err != nil {
			return err
		}
	}

	names := map[string][]string{}
	for _, n := range nodes.Items {
		names[n.Group] = append(names[n.Group], n.Name)
	}

	groups := c.args
	if err == nil {
		groups = nil
		for _, group := range slices.Sorted(maps.Keys(names)) {
			groups = append(groups, fmt.Sprintf("%s: %s", cmp.Or(group, "no group"), strings.Join(names[group], ", ")))
		}
	}

	extent, them := fmt.Sprintf("all %d nodes out of service at once", len(c.args)), "them"
	if len(c.args) == 1 {
		extent, them = "1 node out of service", "it"
	} else if size := c.String("serial"); size != "" {
		extent = fmt.Sprintf("%d nodes out of service, in batches of %s,", len(c.args), size)
	}

	c.say("%s takes %s and cleans %s first (%s)", api.VerbWords(row.Verb), extent, them, strings.Join(groups, "; "))

	if c.String("serial") == "" && len(c.args) > 1 {
		c.say("  to take them one by one:                      add --serial 1")
	}

	c.say("  to configure them in place, while they serve: %s nodes %s", c.self(), inventory.VerbApply)

	return nil
}

// askToTakeBack asks at a terminal before a job takes back what only the request of a former one had set, such as
// the version of an upgrade, unless its own variables set it. Otherwise the warnings of the job or plan say it.
func (c *call) askToTakeBack(ctx context.Context, row inventory.Transition, vars api.Vars) error {
	configures := slices.Contains(row.From, inventory.Allocated) && row.Success == inventory.Allocated && !row.Verifies
	if !configures || c.Bool("plan") || c.Bool("check") || c.Bool("yes") || !c.atTerminal() {
		return nil
	}

	// The manager refuses a wrong name with its reason.
	list, _ := c.manager.Nodes(ctx, client.NodeFilter{Names: c.args})

	var names []string
	for _, n := range list.Items {
		lost := slices.DeleteFunc(slices.Clone(n.RequestVars), func(name string) bool { return vars[name] != nil })
		if len(lost) == 0 {
			continue
		}

		names = append(names, n.Name)
		c.say("%s takes back %s on %s, which only the request of job %s had set", api.VerbWords(row.Verb),
			strings.Join(lost, ", "), n.Name, n.Applied)
	}

	if len(names) == 0 {
		return nil
	}

	c.say("  to keep them: %s nodes explain %s", c.self(), names[0])

	return c.confirm(ctx, "take them back")
}

// checkStatus refuses the verb on a node whose status does not permit it, so that nobody confirms a
// refused command. A job that has not ended may change the status before: then the manager
// decides.
func (c *call) checkStatus(ctx context.Context, row inventory.Transition, nodes []api.Node) error {
	for _, n := range nodes {
		refusal := row.Check(inventory.Node{Name: n.Name, Status: n.Status, State: inventory.Discovered})
		if refusal == nil || n.Status.InProgress() {
			continue
		}

		jobs, err := c.manager.Jobs(ctx, client.JobFilter{
			Node: n.Name, Status: []api.JobStatus{api.Queued, api.Running}, Limit: 1,
		})
		if err == nil && len(jobs.Items) == 0 {
			return refusal
		}
	}

	return nil
}

// confirm asks a question, and returns an error unless the answer is yes.
func (c *call) confirm(ctx context.Context, question string) error {
	yes, err := c.ask(ctx, print.Inline(question))
	if err == nil && !yes {
		return exit.Errorf(exit.Failed, "not confirmed; nothing was changed").Try("answer y, or add --yes")
	}
	return err
}

// ask asks a question, and reports whether the answer is yes.
func (c *call) ask(ctx context.Context, question string) (bool, error) {
	fmt.Fprintf(c.Stderr, "%s? [y/N] ", question)
	answer, err := c.readLine(ctx)
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes", err
}

// approve asks a question, unless --yes has the answer. refusal is the error without a
// terminal.
func (c *call) approve(ctx context.Context, question string, refusal error) error {
	switch {
	case c.Bool("yes"):
		return nil
	case !c.atTerminal():
		return refusal
	}

	return c.confirm(ctx, question)
}

// atTerminal reports whether a person types the commands and reads the answers.
func (a *app) atTerminal() bool { return isTerminal(a.Stdin) && a.outTTY && a.errTTY }

// expand replaces abbreviated names of nodes by whole ones. Scripts get no
// abbreviations: a node that joins later would change their meaning.
func (c *call) expand(ctx context.Context, words []string) ([]string, error) {
	if len(words) == 0 || !c.atTerminal() {
		return words, nil
	}

	nodes, err := c.manager.Nodes(ctx, client.NodeFilter{})
	if err != nil {
		return nil, err
	}

	names := make([]string, len(words))
	for i, word := range words {
		if names[i], err = wholeName(word, nodes.Items); err != nil {
			return nil, err
		}

		c.abbreviated = c.abbreviated || names[i] != word
	}

	return names, nil
}

// wholeName returns the name of the node that word names: its exact name first,
// then its label, then the beginning of its name. A word without a match stays as it
// is, for the manager to refuse.
func wholeName(word string, nodes []api.Node) (string, error) {
	var labelled, begun []string
	for _, n := range nodes {
		switch {
		case n.Name == word:
			return word, nil
		case n.Label == word:
			labelled = append(labelled, n.Name)
		case word != "" && strings.HasPrefix(n.Name, word):
			begun = append(begun, n.Name)
		}
	}

	matches := labelled
	if len(matches) == 0 {
		matches = begun
	}

	switch len(matches) {
	case 0:
		return word, nil
	case 1:
		return matches[0], nil
	}

	const shown = 10

	list := strings.Join(matches[:min(len(matches), shown)], ", ")
	if len(matches) > shown {
		list += ", …"
	}
	return "", exit.Usagef("%q fits %d nodes: %s", word, len(matches), list).Try("give more of the name")
}

// selectEach resolves --selector to c.args, each node once, in the order of the command
// line.
func (c *call) selectEach(ctx context.Context) error {
	if err := c.selectNodes(ctx); err != nil {
		return err
	}

	var names []string
	for _, name := range c.args {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}

	c.args = names

	return nil
}

// selectNodes replaces c.args by the names of the nodes that match --selector, if it is given.
func (c *call) selectNodes(ctx context.Context) error {
	if !c.hasSelector() {
		return nil
	}

	nodes, err := c.manager.Nodes(ctx, client.NodeFilter{Selector: c.String("selector")})
	if err != nil {
		return err
	}
	if len(nodes.Items) == 0 {
		return c.noMatch()
	}

	c.args = nil
	for _, n := range nodes.Items {
		c.args = append(c.args, n.Name)
	}

	selector := api.ShellQuote(c.String("selector"))
	c.say("%s selects %s: %s", selector, inventory.Count(len(c.args), "node", "nodes"), strings.Join(c.args, ", "))

	return nil
}

// hasSelector reports whether --selector has a condition. An empty selector would
// match every node, which is hardly the intention.
func (c *call) hasSelector() bool { return c.String("selector") != "" }

func (c *call) noMatch() error {
	return exit.Errorf(exit.NotFound, "no node matches the selector %s", api.ShellQuote(c.String("selector"))).
		Try("to see fields and labels: clusterctl nodes get -o wide")
}

// readLine reads one line of stdin, until ctx is done. The end of stdin is an empty line.
func (c *call) readLine(ctx context.Context) (string, error) {
	line, err := until(ctx, func() (string, error) { return bufio.NewReader(c.Stdin).ReadString('\n') })

	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(c.Stderr)
		return "", exit.Errorf(exit.Interrupted, "interrupted; nothing was changed")
	case line == "" && errors.Is(err, os.ErrClosed):
		return "", err
	}

	return line, nil
}

// until returns the result of a read, or the cause of the end of ctx. A read from a terminal
// cannot be interrupted: its goroutine then ends with the process.
func until[T any](ctx context.Context, read func() (T, error)) (v T, err error) {
	done := make(chan func() (T, error), 1)

	go func() {
		v, err := read()
		done <- func() (T, error) { return v, err }
	}()

	select {
	case result := <-done:
		return result()
	case <-ctx.Done():
		return v, context.Cause(ctx)
	}
}
