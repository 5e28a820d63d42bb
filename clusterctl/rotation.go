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
	"github.com/contiv/cluster/management/api"
)

// rotationPoll is the time between two looks at a running rotation.
const rotationPoll = time.Second

// rotationFlags returns the flags of a command that rotates a key.
func rotationFlags() []cli.Flag {
	return []cli.Flag{
		switchFlag("force", "lock the laggards of the running rotation out"),
		&cli.StringFlag{Name: "wait", Value: "2m", Usage: "how long to wait for the end: a `DURATION`"},
		switchFlag("no-wait", "begin the rotation, and do not wait"),
		yesFlag(),
	}
}

// rotationWait returns how long to wait for the end of a rotation; 0: not at all.
func (c *call) rotationWait() (time.Duration, error) {
	wait, err := time.ParseDuration(c.String("wait"))
	if err != nil || wait <= 0 {
		return 0, exit.Usagef("--wait: %q is not a duration", c.String("wait")).
			Try("write a number and a unit, such as 5m")
	}

	if c.Bool("no-wait") {
		return 0, nil
	}

	return wait, nil
}

// confirmLockOut names the laggards that would be locked out, and asks. command is the
// one that locks out, and of names the loss in the question.
func (c *call) confirmLockOut(
	ctx context.Context, laggards []api.Laggard, command, of string,
) ([]string, error) {
	var names []string
	for _, l := range laggards {
		names = append(names, l.Name)
		c.say("%s will be locked out: %s", l.Name, l.Reason)
	}

	if len(names) == 0 {
		return nil, nil // the manager has the reason to refuse
	}

	all := strings.Join(names, ", ")
	refusal := exit.Usagef("%s locks out %s and needs a confirmation, which takes a terminal", command, all).
		Try("to confirm it here: add --yes")

	return names, c.approve(ctx, "lock "+all+" "+of, refusal)
}

// rotation is the rotation of a kind of key, in steps that take a while.
type rotation[S any] struct {
	name    string // as in key rotate NAME
	loss    string // of those that are locked out, in a question
	details print.Columns[S]
	state   func(ctx context.Context, c *call) (S, error)
	begin   func(ctx context.Context, c *call, lockOut []string) (S, error)
	look    func(S) rotationSeen
	waits   func(c *call, state S) error // the error about a rotation that has not ended
}

// rotationSeen is the progress of a rotation.
type rotationSeen struct {
	phase            string
	confirmed, known int
	laggards         []api.Laggard
}

// rotate begins the rotation, and waits for its end for a while.
func (r rotation[S]) rotate(ctx context.Context, c *call) error {
	limit, err := c.rotationWait()
	if err != nil {
		return err
	}

	var lockOut []string

	if c.Bool("force") {
		before, err := r.state(ctx, c)
		if err != nil {
			return err
		}

		lockOut, err = c.confirmLockOut(ctx, r.look(before).laggards, "key rotate "+r.name+" --force", r.loss)
		if err != nil {
			return err
		}
	}

	state, err := r.begin(ctx, c, lockOut)
	if err == nil {
		state, err = r.await(ctx, c, state, limit)
	}

	if err := view(c, r.details.Details)(state, err); err != nil {
		return err
	}

	if limit == 0 || r.look(state).phase == "done" {
		return nil
	}

	return r.waits(c, state)
}

// await waits for the end of a rotation, for a bounded time, and reports its phases.
func (r rotation[S]) await(ctx context.Context, c *call, state S, limit time.Duration) (S, error) {
	if limit == 0 {
		return state, nil
	}

	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	tick := time.NewTicker(rotationPoll)
	defer tick.Stop()

	for shown := ""; ; {
		seen := r.look(state)
		if seen.phase == "done" {
			return state, nil
		}

		if seen.phase != shown {
			shown = seen.phase
			c.say("phase %s: %d of %d nodes have confirmed the new key", seen.phase, seen.confirmed, seen.known)
		}

		select {
		case <-ctx.Done():
			return state, context.Cause(ctx)
		case <-within.Done():
			return state, nil
		case <-tick.C:
		}

		next, err := r.state(within, c)

		switch {
		case err == nil:
			state = next
		case ctx.Err() == nil && errors.Is(within.Err(), context.DeadlineExceeded):
			return state, nil
		default:
			return state, err
		}
	}
}
