// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

func rotateSSH(name string) leaf {
	to := valueFlag("to", "a private key on the manager's host, with an absolute `PATH`")

	return leaf{
		name: name, formats: namelessFormats,
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

func sshStatus(name string) leaf {
	return leaf{
		name: name, formats: namelessFormats,
		usage:    "show the manager's ssh key, its newest rotation, and what that waits for",
		about:    "Of a key, its file on the manager's host and the public half are shown.",
		examples: []string{"clusterctl key status ssh", "clusterctl key status ssh -o json"},
		run: func(ctx context.Context, c *call) error {
			return view(c, print.SSHKeyDetails.Details)(c.manager.SSHKey(ctx))
		},
	}
}

func cancelSSH(name string) leaf {
	return leaf{
		name: name, formats: namelessFormats, usage: "take the running rotation back, so that the old key stays",
		about: "Every node accepts the old key again, the manager uses it again, and the new one is taken away from " +
			"the nodes. That is a rotation in the other direction, which waits for the same laggards.",
		examples: []string{"clusterctl key cancel ssh"},
		run: func(ctx context.Context, c *call) error {
			return view(c, print.SSHKeyDetails.Details)(c.manager.CancelSSHKey(ctx))
		},
	}
}

var sshRotation = rotation[api.SSHKey]{
	name: keySSH, loss: "out of the new key", details: print.SSHKeyDetails,
	state: func(ctx context.Context, c *call) (api.SSHKey, error) { return c.manager.SSHKey(ctx) },
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
