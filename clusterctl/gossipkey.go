// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

func rotateGossip(name string) leaf {
	return leaf{
		name: name, formats: namelessFormats, usage: "replace the gossip key on all members, without an interruption",
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

func gossipStatus(name string) leaf {
	return leaf{
		name: name, formats: namelessFormats,
		usage:    "show the newest rotation of the gossip key, and what it waits for",
		about:    "Keys are shown as fingerprints only.",
		examples: []string{"clusterctl key status gossip", "clusterctl key status gossip -o json"},
		run: func(ctx context.Context, c *call) error {
			return view(c, print.GossipKeyDetails.Details)(c.manager.GossipKey(ctx))
		},
	}
}

var gossipRotation = rotation[api.GossipKey]{
	name: keyGossip, loss: "out of the gossip", details: print.GossipKeyDetails,
	state: func(ctx context.Context, c *call) (api.GossipKey, error) { return c.manager.GossipKey(ctx) },
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
