// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

const chooseHelp = "Give the names of nodes, or choose them with --selector. The chosen nodes are printed before " +
	"anything " +
	"happens; a selector without a match is an error (exit code 4). On a terminal, a command about more than one " +
	"node " +
	"asks for confirmation first unless --yes is given; any answer but yes ends it without a change (exit code 1)."

func selectorFlag() cli.Flag {
	return &cli.StringFlag{
		Name:    "selector",
		Aliases: []string{"l"},
		Usage: "choose nodes by fields and labels instead of names, with a `SELECTOR` such as " +
			"'group=service-worker,status!=Allocated,rack in (r1,r2)'",
	}
}

func yesFlag() cli.Flag {
	return &cli.BoolFlag{
		Name:    "yes",
		Aliases: []string{"y"},
		Usage:   "do not ask for confirmation",
	}
}

// choose resolves --selector to c.args, and asks the operator to confirm a
// command about several nodes.
func (c *call) choose(ctx context.Context, verb string) error {
	if c.hasSelector() {
		if err := c.resolveSelector(ctx); err != nil {
			return err
		}
	}

	if len(c.args) < 2 || c.Bool("yes") || !isTerminal(c.Stdin) {
		return nil
	}

	if slices.Contains(c.StringSlice("extra-vars"), "@-") {
		return exit.Usagef("cannot ask for confirmation: stdin is in use for the variables").Try("add --yes")
	}

	question := fmt.Sprintf("%s %d nodes", verb, len(c.args))
	if !c.hasSelector() { // the nodes of a selector are printed already
		question += ": " + strings.Join(c.args, ", ")
	}

	fmt.Fprintf(c.Stderr, "%s? [y/N] ", print.Inline(question))

	answer, err := c.readLine(ctx)
	if err != nil {
		return err
	}

	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}

	return exit.Errorf(exit.Failed, "not confirmed; nothing was changed").Try("answer y, or add --yes")
}

// resolveSelector replaces c.args by the names of the nodes that match.
func (c *call) resolveSelector(ctx context.Context) error {
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

// readLine reads one line of stdin, until ctx is done.
func (c *call) readLine(ctx context.Context) (string, error) {
	type result struct {
		line string
		err  error
	}

	// A read from a terminal cannot be interrupted: after ctx is done, the
	// goroutine ends with the process.
	done := make(chan result, 1)
	go func() {
		line, err := bufio.NewReader(c.Stdin).ReadString('\n')
		done <- result{line, err}
	}()

	select {
	case r := <-done:
		if r.line != "" {
			return r.line, nil
		}

		if r.err != nil && !errors.Is(r.err, os.ErrClosed) {
			return "", nil // the end of stdin is not a yes
		}

		return r.line, r.err
	case <-ctx.Done():
		fmt.Fprintln(c.Stderr)
		return "", exit.Errorf(exit.Interrupted, "interrupted; nothing was changed")
	}
}
