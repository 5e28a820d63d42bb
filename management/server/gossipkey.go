// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"

	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/gossipkey"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/state"
)

func (s *Server) gossipKeyRoutes() []rest.Route {
	return []rest.Route{
		{
			Method: http.MethodGet, Path: api.PathGossipKey, Serve: s.reading(s.getGossipKey),
			Doc: &openapi.Doc{
				ID: "getGossipKey", Summary: "Show the rotation of the gossip key",
				Text: "Returns the newest rotation of the key that encrypts the gossip, and what it waits for. " +
					"Keys are shown as fingerprints only.",
				Answer: api.GossipKey{}, Success: "The state of the rotation.",
			},
		},
		{
			Method: http.MethodPost, Path: api.PathRotateGossipKey, Serve: s.postRotateGossipKey,
			Doc: &openapi.Doc{
				ID: "rotateGossipKey", Summary: "Rotate the gossip key",
				Text: "Begins to replace the key that encrypts the gossip, or lets the running rotation go on at " +
					"once. The new key is installed on all members, then used, and the old one is removed only " +
					"after every known node has confirmed the new one. A node that the gossip does not reach gets " +
					"it over ssh. The rotation goes on after a restart of the manager.\n\n" +
					"With `force` the running rotation goes on without the nodes in `lock_out`, which must be all " +
					"of its laggards: they are locked out of the gossip.",
				Body: api.GossipKeyRotation{}, Answer: api.GossipKey{}, Status: 202,
				Success: "The rotation has begun, or goes on.", Revision: true,
				Fails: openapi.Fails{409: "No rotation is running, or not all laggards are named."},
			},
		},
	}
}

func (s *Server) getGossipKey(w http.ResponseWriter, r *http.Request, _ *state.View) error {
	return rest.WriteTagged(w, r, 0, gossipKeyOf(s.GossipKey.Status()))
}

func (s *Server) postRotateGossipKey(w http.ResponseWriter, r *http.Request) error {
	var body api.GossipKeyRotation
	if err := rest.ReadJSON(w, r, &body); err != nil {
		return err
	}

	rest.Note(r, "nodes", body.LockOut)

	status, err := s.GossipKey.Rotate(
		r.Context(),
		caller(r),
		gossipkey.Request{Force: body.Force, LockOut: body.LockOut},
	)
	if err != nil {
		return err
	}

	rest.ShowRevision(w, s.State.View().Revision)

	return rest.WriteJSON(w, http.StatusAccepted, gossipKeyOf(status))
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

	if s.Phase == gossipkey.PhaseNone {
		out.Phase = api.GossipKeyNever
	}

	for i, l := range s.Laggards {
		out.Laggards[i] = api.Laggard(l)
	}

	return out
}
