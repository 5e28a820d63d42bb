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

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/client"
)

func selectorFlag() cli.Flag {
	return &cli.StringFlag{
		Name:    "selector",
		Aliases: []string{"l"},
		Usage:   "the nodes that meet this `SELECTOR` over fields and labels, in place of names, e.g. 'group=service-worker,status!=Allocated,rack in (r1,r2)'",
	}
}

func yesFlag() cli.Flag {
	return &cli.BoolFlag{
		Name:    "yes",
		Aliases: []string{"y"},
		Usage:   "do not ask, although it is about more than one node",
	}
}

const chooseHelp = "Nodes are named, or chosen with --selector: what it chooses is shown before anything happens, and nothing chosen is an error (exit code 4). " +
	"About more than one node it asks first where stdin is a terminal; --yes answers that beforehand, and anything but yes does nothing (exit code 1)."

// choose makes c.args the nodes that the command is about, and asks the
// operator where they are several.
func (c *call) choose(ctx context.Context, verb string) error {
	if c.selects() {
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

		c.say(
			"%s chooses %s: %s",
			shellWord(c.String("selector")),
			inventory.Count(len(c.args), "node", "nodes"),
			strings.Join(c.args, ", "),
		)
	}

	if len(c.args) < 2 || c.Bool("yes") || !isInputTerminal(c.Stdin) {
		return nil
	}

	if slices.Contains(c.StringSlice("extra-vars"), "@-") {
		return usagef("stdin is for the variables, so nobody can be asked").do("add --yes")
	}

	question := fmt.Sprintf("%s %d nodes", verb, len(c.args))
	if !c.selects() { // those are shown already
		question += ": " + strings.Join(c.args, ", ")
	}

	fmt.Fprintf(c.Stderr, "%s? [y/N] ", printable(question, false))

	answer, err := c.readLine(ctx)
	switch word := strings.ToLower(strings.TrimSpace(answer)); {
	case err != nil:
		return err
	case word == "y" || word == "yes":
		return nil
	}

	return failf(ExitFailed, "not confirmed; nothing was done").do("answer y, or add --yes")
}

// selects tells whether --selector was given; an empty one would be all nodes,
// which nobody means by it.
func (c *call) selects() bool { return c.String("selector") != "" }

func (c *call) noMatch() error {
	return failf(ExitNotFound, "no node meets the selector %s", shellWord(c.String("selector"))).
		do("clusterctl nodes get -o wide shows fields and labels")
}

// readLine reads one line of stdin, or until ctx is done.
func (c *call) readLine(ctx context.Context) (string, error) {
	type result struct {
		line string
		err  error
	}

	done := make(chan result, 1)
	go func() { // a read of a terminal cannot be called off; it ends with the process
		line, err := bufio.NewReader(c.Stdin).ReadString('\n')
		done <- result{line, err}
	}()

	select {
	case r := <-done:
		if r.line != "" {
			return r.line, nil
		}

		if r.err != nil && !errors.Is(r.err, os.ErrClosed) {
			return "", nil // the end of stdin is a no
		}

		return r.line, r.err
	case <-ctx.Done():
		fmt.Fprintln(c.Stderr)
		return "", failf(ExitInterrupted, "interrupted; nothing was done")
	}
}
