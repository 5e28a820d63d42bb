// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

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

// key returns the commands for the keys of the manager.
func (a *app) key() leaf {
	return leaf{
		name: "key", usage: "rotate the keys of the manager, and follow the rotation",
		examples: []string{"clusterctl key rotate ssh", "clusterctl key status gossip", "clusterctl key cancel ssh"},
		commands: []leaf{
			{
				name: "rotate", usage: "replace a key",
				commands: []leaf{rotateGossip(), rotateSSH(), rotateSecrets()},
			},
			{
				name: "status", usage: "show the state of a key",
				commands: []leaf{gossipStatus(), sshStatus(), statusOfSecrets()},
			},
			{
				name: "cancel", usage: "take the running rotation of a key back",
				commands: []leaf{cancelSSH()},
			},
		},
	}
}

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

func rotateGossip() leaf {
	return leaf{
		name: keyGossip, formats: namelessFormats,
		usage: "replace the gossip key on all members, without an interruption",
		about: "The manager installs a new key on every member, then uses it, and removes the old one only after " +
			"every known node has confirmed the new one. A node that the gossip does not reach gets it over ssh. " +
			"Until then the old key is accepted as well, and key status gossip lists the laggards. The rotation goes " +
			"on after a restart of the manager; a second rotate waits for the running one.\n" +
			"--force removes the old key without the laggards: they are locked out of the gossip until a discover " +
			"prepares them anew. The command names them and asks.",
		flags: rotationFlags(),
		examples: []string{
			"clusterctl key rotate gossip",
			"clusterctl key rotate gossip --no-wait -o json",
			"clusterctl key rotate gossip --force",
		},
		run: gossipRotation.rotate,
	}
}

func gossipStatus() leaf {
	return leaf{
		name: keyGossip, formats: namelessFormats,
		usage:    "show the newest rotation of the gossip key, and what it waits for",
		about:    "Keys are shown as fingerprints only.",
		examples: []string{"clusterctl key status gossip", "clusterctl key status gossip -o json"},
		run:      one((*client.Client).GossipKey, print.GossipKeyDetails.Details),
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

func rotateSSH() leaf {
	to := valueFlag("to", "a private key on the manager's host, with an absolute `PATH`")

	return leaf{
		name: keySSH, formats: namelessFormats,
		usage: "replace the manager's ssh key on all nodes, without an interruption",
		about: "The manager makes a new key, or takes the one of --to, puts its public half beside the old one on " +
			"every node, and tries a login with the new one alone. Then it uses the new key, and takes the old one " +
			"away from every node that has confirmed. Nodes that are away or held by a job are laggards: until they " +
			"return and follow, the old key stays valid, and key status ssh lists them. The rotation goes on after a " +
			"restart of the manager. Nodes with a key_file of their own, or of their group, keep it.\n" +
			"--force ends the rotation without the laggards: the manager can no longer log in to them. The command " +
			"names them and asks. It is refused while no node has confirmed the new key.",
		flags: append([]cli.Flag{to}, rotationFlags()...),
		examples: []string{
			"clusterctl key rotate ssh",
			"clusterctl key rotate ssh --to /etc/clusterm/id_ed25519",
			"clusterctl key rotate ssh --no-wait -o json",
			"clusterctl key rotate ssh --force",
		},
		run: rotateSSHKey,
	}
}

func sshStatus() leaf {
	return leaf{
		name: keySSH, formats: namelessFormats,
		usage:    "show the manager's ssh key, its newest rotation, and what that waits for",
		about:    "Of a key, its file on the manager's host and the public half are shown.",
		examples: []string{"clusterctl key status ssh", "clusterctl key status ssh -o json"},
		run:      one((*client.Client).SSHKey, print.SSHKeyDetails.Details),
	}
}

func cancelSSH() leaf {
	return leaf{
		name: keySSH, formats: namelessFormats, usage: "take the running rotation back, so that the old key stays",
		about: "Every node accepts the old key again, the manager uses it again, and the new one is taken away from " +
			"the nodes. That is a rotation in the other direction, which waits for the same laggards.",
		examples: []string{"clusterctl key cancel ssh"},
		run:      one((*client.Client).CancelSSHKey, print.SSHKeyDetails.Details),
	}
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
