// SPDX-License-Identifier: Apache-2.0

package clusterctl

import "github.com/urfave/cli/v3"

// The keys of the manager, by kind.
const (
	keyGossip  = "gossip"
	keySSH     = "ssh"
	keySecrets = "secrets"
)

// key returns the commands for the keys of the manager.
func (a *app) key() *cli.Command {
	return &cli.Command{
		Name: "key", Usage: "rotate the keys of the manager, and follow the rotation",
		Metadata: map[string]any{metaExamples: []string{
			"clusterctl key rotate ssh", "clusterctl key status gossip", "clusterctl key cancel ssh",
		}},
		Commands: []*cli.Command{
			{
				Name: "rotate", Usage: "replace a key",
				Commands: []*cli.Command{
					a.leaf(rotateGossip(keyGossip)), a.leaf(rotateSSH(keySSH)), a.leaf(rotateSecrets(keySecrets)),
				},
			},
			{
				Name: "status", Usage: "show the state of a key",
				Commands: []*cli.Command{
					a.leaf(gossipStatus(keyGossip)), a.leaf(sshStatus(keySSH)), a.leaf(statusOfSecrets(keySecrets)),
				},
			},
			{
				Name: "cancel", Usage: "take the running rotation of a key back",
				Commands: []*cli.Command{a.leaf(cancelSSH(keySSH))},
			},
		},
	}
}

// formerKeys returns the commands that key has replaced, by kind first.
func (a *app) formerKeys() []*cli.Command {
	group := func(name string, leaves ...leaf) *cli.Command {
		g := &cli.Command{Name: name, Usage: "the same as key", Hidden: true}
		for _, l := range leaves {
			l.examples = []string{"clusterctl " + name + " " + l.name}
			g.Commands = append(g.Commands, a.leaf(l))
		}

		return g
	}

	return []*cli.Command{
		group("secrets", statusOfSecrets("status"), rotateSecrets("rotate")),
		group("gossip-key", rotateGossip("rotate"), gossipStatus("status")),
		group("ssh-key", rotateSSH("rotate"), sshStatus("status"), cancelSSH("cancel")),
	}
}
