// SPDX-License-Identifier: Apache-2.0

package clusterctl

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
				commands: []leaf{rotateGossip(keyGossip), rotateSSH(keySSH), rotateSecrets(keySecrets)},
			},
			{
				name: "status", usage: "show the state of a key",
				commands: []leaf{gossipStatus(keyGossip), sshStatus(keySSH), statusOfSecrets(keySecrets)},
			},
			{
				name: "cancel", usage: "take the running rotation of a key back",
				commands: []leaf{cancelSSH(keySSH)},
			},
		},
	}
}

// formerKeys returns the commands that key has replaced, by kind first.
func (a *app) formerKeys() []leaf {
	group := func(name string, leaves ...leaf) leaf {
		for i := range leaves {
			leaves[i].examples = []string{"clusterctl " + name + " " + leaves[i].name}
		}

		return leaf{
			name: name, hidden: true, usage: "the same as key", commands: leaves,
		}
	}

	return []leaf{
		group("secrets", statusOfSecrets("status"), rotateSecrets("rotate")),
		group("gossip-key", rotateGossip("rotate"), gossipStatus("status")),
		group("ssh-key", rotateSSH("rotate"), sshStatus("status"), cancelSSH("cancel")),
	}
}
