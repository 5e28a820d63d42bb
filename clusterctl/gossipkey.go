// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

func (a *app) gossipKey() *cli.Command {
	return &cli.Command{
		Name: "gossip-key", Usage: "rotate the key that encrypts the gossip, and follow the rotation",
		Commands: []*cli.Command{
			a.leaf(leaf{
				name:  "rotate",
				usage: "replace the gossip key on all members, without an interruption",
				about: "The manager installs a new key on every member, then uses it, and removes the old one " +
					"only after every known node has confirmed the new one. A node that the gossip does not reach " +
					"gets it over ssh. Until then the old key is accepted as well, and gossip-key status lists " +
					"the laggards. The rotation goes on after a restart of the manager; a second rotate waits " +
					"for the running one.\n" +
					"--force removes the old key without the laggards: they are locked out of the gossip until a " +
					"discover prepares them anew. The command names them and asks.",
				flags: []cli.Flag{
					&cli.BoolFlag{Name: "force", Usage: "lock the laggards of the running rotation out"},
					&cli.StringFlag{Name: "wait", Value: "2m", Usage: "how long to wait for the end: a `DURATION`"},
					&cli.BoolFlag{Name: "no-wait", Usage: "begin the rotation, and do not wait"},
					yesFlag(),
				},
				formats: namelessFormats,
				examples: []string{
					"clusterctl gossip-key rotate",
					"clusterctl gossip-key rotate --no-wait -o json",
					"clusterctl gossip-key rotate --force",
				},
				run: rotateGossipKey,
			}),
			a.leaf(leaf{
				name:     "status",
				usage:    "show the newest rotation of the gossip key, and what it waits for",
				about:    "Keys are shown as fingerprints only.",
				formats:  namelessFormats,
				examples: []string{"clusterctl gossip-key status", "clusterctl gossip-key status -o json"},
				run: func(ctx context.Context, c *call) error {
					state, err := c.manager.GossipKey(ctx)
					if err != nil {
						return err
					}

					return c.showGossipKey(state)
				},
			}),
		},
	}
}

// gossipKeyPoll is the time between two looks at a running rotation.
const gossipKeyPoll = time.Second

func rotateGossipKey(ctx context.Context, c *call) error {
	wait, err := time.ParseDuration(c.String("wait"))
	if err != nil || wait <= 0 {
		return exit.Usagef("--wait: %q is not a duration", c.String("wait")).
			Try("write a number and a unit, such as 5m")
	}

	request := api.GossipKeyRotation{Force: c.Bool("force")}
	if request.Force {
		if request.LockOut, err = c.confirmLockOut(ctx); err != nil {
			return err
		}
	}

	state, err := c.manager.RotateGossipKey(ctx, request)
	if err != nil {
		return err
	}

	if !c.Bool("no-wait") {
		if state, err = c.awaitRotation(ctx, state, wait); err != nil {
			return err
		}
	}

	if err := c.showGossipKey(state); err != nil {
		return err
	}

	if c.Bool("no-wait") || state.Phase == "done" {
		return nil
	}

	return exit.Errorf(exit.Failed, "the rotation waits for %s; the old key is accepted meanwhile",
		inventory.Count(len(state.Laggards), "member", "members")).
		Try("reach the laggards over ssh, or forget nodes that are gone; then: %s gossip-key rotate", c.self())
}

// confirmLockOut names the members that would be locked out, and asks.
func (c *call) confirmLockOut(ctx context.Context) ([]string, error) {
	state, err := c.manager.GossipKey(ctx)
	if err != nil {
		return nil, err
	}

	var names []string
	for _, l := range state.Laggards {
		names = append(names, l.Name)
		c.say("%s will be locked out: %s", l.Name, l.Reason)
	}

	switch {
	case len(names) == 0:
		return nil, nil // the manager has the reason to refuse
	case c.Bool("yes"):
		return names, nil
	case !c.atTerminal():
		return nil, exit.Usagef("gossip-key rotate --force locks out %s and needs a confirmation, which takes a "+
			"terminal", strings.Join(names, ", ")).
			Try("to confirm it here: add --yes")
	}

	return names, c.confirm(ctx, "lock "+strings.Join(names, ", ")+" out of the gossip")
}

// awaitRotation waits for the end of the rotation, for a bounded time.
func (c *call) awaitRotation(ctx context.Context, state api.GossipKey, limit time.Duration) (api.GossipKey, error) {
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	tick := time.NewTicker(gossipKeyPoll)
	defer tick.Stop()

	for shown := ""; state.Phase != "done"; {
		if state.Phase != shown {
			shown = state.Phase
			c.say("phase %s: %d of %d nodes have confirmed the new key", state.Phase, state.Confirmed, state.Known)
		}

		select {
		case <-ctx.Done():
			return state, context.Cause(ctx)
		case <-within.Done():
			return state, nil
		case <-tick.C:
		}

		next, err := c.manager.GossipKey(within)

		switch {
		case err == nil:
			state = next
		case ctx.Err() == nil && errors.Is(within.Err(), context.DeadlineExceeded):
			return state, nil
		default:
			return state, err
		}
	}

	return state, nil
}

// showGossipKey prints the state of the gossip key.
func (c *call) showGossipKey(state api.GossipKey) error {
	show := func(p *print.Printer) { p.GossipKey(state) }
	return c.show(print.Answer{Wire: state, Table: show, Long: show})
}
