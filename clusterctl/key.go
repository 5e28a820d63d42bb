// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// The keys of the manager, by kind.
const (
	keyGossip  = "gossip"
	keySSH     = "ssh"
	keySecrets = "secrets"
)

func keyRows() rows {
	return rows{
		"key rotate ssh":     {formats: namelessFormats, run: rotateSSHKey},
		"key rotate secrets": {run: secretsRotate},
		"key status secrets": {run: secretsStatus},
		"key rotate gossip":  {formats: namelessFormats, run: gossipRotation.rotate},
		"key status gossip": {
			formats: namelessFormats,
			run:     one((*client.Client).GossipKey, print.GossipKeyDetails.Details),
		},
		"key status ssh": {formats: namelessFormats, run: one((*client.Client).SSHKey, print.SSHKeyDetails.Details)},
		"key cancel ssh": {
			formats: namelessFormats,
			run:     one((*client.Client).CancelSSHKey, print.SSHKeyDetails.Details),
		},
	}
}

// rotationPoll is the time between two looks at a running rotation.
const rotationPoll = time.Second

// rotationWait returns how long to wait for the end of a rotation; 0: not at all.
func (c *call) rotationWait() (time.Duration, error) {
	wait, err := time.ParseDuration(c.text("wait", "2m"))
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
	state   func(*client.Client, context.Context) (S, error)
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
		before, err := r.state(c.manager, ctx)
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

		next, err := r.state(c.manager, within)

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

var gossipRotation = rotation[api.GossipKey]{
	name: keyGossip, loss: "out of the gossip", details: print.GossipKeyDetails,
	state: (*client.Client).GossipKey,
	begin: func(ctx context.Context, c *call, lockOut []string) (api.GossipKey, error) {
		return c.manager.RotateGossipKey(ctx, api.GossipKeyRotation{Force: c.Bool("force"), LockOut: lockOut})
	},
	look: func(s api.GossipKey) rotationSeen { return rotationSeen{s.Phase, s.Confirmed, s.Known, s.Laggards} },
	waits: func(c *call, state api.GossipKey) error {
		return exit.Errorf(exit.Failed, "the rotation waits for %s; the old key is accepted meanwhile",
			inventory.Count(len(state.Laggards), "member", "members")).
			Try("reach the laggards over ssh, or forget nodes that are gone; then: %s key rotate gossip", c.self())
	},
}

var sshRotation = rotation[api.SSHKey]{
	name: keySSH, loss: "out of the new key", details: print.SSHKeyDetails,
	state: (*client.Client).SSHKey,
	begin: func(ctx context.Context, c *call, lockOut []string) (api.SSHKey, error) {
		return c.manager.RotateSSHKey(ctx, api.SSHKeyRotation{
			To: c.String("to"), Force: c.Bool("force"), LockOut: lockOut,
		})
	},
	look:  func(s api.SSHKey) rotationSeen { return rotationSeen{s.Phase, s.Confirmed, s.Known, s.Laggards} },
	waits: (*call).sshRotationWaits,
}

func rotateSSHKey(ctx context.Context, c *call) error {
	if c.Bool("force") && c.IsSet("to") {
		return exit.Usagef("--force and --to exclude each other").Try("give one of them")
	}
	return sshRotation.rotate(ctx, c)
}

// sshRotationWaits is the error about a rotation of the ssh key that has not ended.
func (c *call) sshRotationWaits(state api.SSHKey) error {
	if state.Problem != "" {
		return exit.Errorf(exit.Failed, "the rotation is held up: %s", state.Problem).
			Try("see it with %s key status ssh, or take it back: %s key cancel ssh", c.self(), c.self())
	}

	failed := exit.Errorf(exit.Failed, "the rotation waits for %s; the old key stays valid meanwhile",
		inventory.Count(len(state.Laggards), "node", "nodes"))

	// No login is possible without the host key, however long one waits.
	untrusted := slices.IndexFunc(state.Laggards, func(l api.Laggard) bool {
		return strings.Contains(l.Reason, "host key is not recorded")
	})
	if untrusted >= 0 {
		return failed.Try("compare the host key and record it, and the rotation goes on by itself: %s nodes trust %s",
			c.self(), state.Laggards[untrusted].Name)
	}

	return failed.Try(
		"bring the laggards back, or forget nodes that are gone; the rotation goes on by itself: %s key status ssh",
		c.self())
}
