// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"

	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/gossipkey"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/rotation"
	"github.com/contiv/cluster/management/server/rest"
)

func (s *Server) gossipKeyRoutes() []rest.Route {
	return []rest.Route{
		act(s, s.postRotateGossipKey, rest.Route{
			Shows: api.PathGossipKey,
			Path:  api.PathRotateGossipKey, Allow: access.Admins,
			Doc: &openapi.Doc{
				ID: "rotateGossipKey", Summary: "Rotate the gossip key",
				Text: "Begins to replace the key that encrypts the gossip, or lets the running rotation go on at " +
					"once. The new key is installed on all members, then used, and the old one is removed only " +
					"after every known node has confirmed the new one. A node that the gossip does not reach gets " +
					"it over ssh. The rotation goes on after a restart of the manager.\n\n" +
					"With `force` the running rotation goes on without the nodes in `lock_out`, which must be all " +
					"of its laggards: they are locked out of the gossip.",
				Status:  202,
				Success: "The rotation has begun, or goes on.", Revision: true,
				Fails: openapi.Fails{409: "No rotation is running, or not all laggards are named."},
			},
		}),
	}
}

func (s *Server) postRotateGossipKey(
	r *http.Request,
	c access.Caller,
	body api.GossipKeyRotation,
) (api.GossipKey, error) {
	rest.Note(r, "nodes", body.LockOut)

	status, err := s.GossipKey.Rotate(
		r.Context(),
		c,
		gossipkey.Request{Force: body.Force, LockOut: body.LockOut},
	)

	return gossipKeyOf(status), err
}

// gossipKeyOf returns the wire form of the state of the gossip key. It contains
// fingerprints, and no key.
func gossipKeyOf(s gossipkey.Status) api.GossipKey {
	out := api.GossipKey{
		Phase: string(s.Phase), Key: s.Key, OldKeys: s.OldKeys, Actor: s.Actor,
		Started: optionalTime(s.Started), Ended: optionalTime(s.Ended), Round: optionalTime(s.Round),
		Known: s.Known, Confirmed: len(s.Confirmed), Removed: len(s.Removed), LockedOut: s.LockedOut,
		Laggards: make([]api.Laggard, len(s.Laggards)),
	}

	if s.Phase == rotation.PhaseNone {
		out.Phase = api.GossipKeyNever
	}

	for i, l := range s.Laggards {
		out.Laggards[i] = api.Laggard(l)
	}

	return out
}
