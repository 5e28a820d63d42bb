// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/sshkey"
	"github.com/contiv/cluster/management/state"
)

func (s *Server) sshKeyRoutes() []rest.Route {
	return []rest.Route{
		{
			Method: http.MethodGet, Path: api.PathSSHKey, Serve: s.reading(s.getSSHKey),
			Doc: &openapi.Doc{
				ID: "getSSHKey", Summary: "Show the rotation of the ssh key",
				Text: "Returns the newest rotation of the ssh key with which the manager logs in to nodes, and " +
					"what it waits for; or the key in use, if there was none. Private keys are not shown.",
				Answer: api.SSHKey{}, Success: "The state of the rotation.",
			},
		},
		{
			Method: http.MethodPost, Path: api.PathRotateSSHKey, Serve: s.postRotateSSHKey,
			Doc: &openapi.Doc{
				ID: "rotateSSHKey", Summary: "Rotate the ssh key",
				Text: "Begins to replace the ssh key with which the manager logs in to nodes. The public half of " +
					"the new key is put beside the old one on every known node, and the manager uses the new one " +
					"after a login with it alone. The old one is taken away from every node that has confirmed, " +
					"and its private half is removed at the end if an earlier rotation made it. The rotation goes " +
					"on after a restart of the manager, and waits for nodes that are away or held by a job. Nodes " +
					"with a key of their own keep it.\n\n" +
					"Without `to` the manager makes the new key in its data directory. With `force` the running " +
					"rotation goes on without the nodes in `lock_out`, which must be all of its laggards: the " +
					"manager can no longer log in to them.",
				Body: api.SSHKeyRotation{}, Answer: api.SSHKey{}, Status: 202,
				Success: "The rotation has begun, or goes on.", Revision: true,
				Fails: openapi.Fails{
					409: "A rotation is running already, or with `force` none is, or not all laggards are named.",
				},
			},
		},
		{
			Method: http.MethodPost, Path: api.PathCancelSSHKey, Serve: s.postCancelSSHKey,
			Doc: &openapi.Doc{
				ID: "cancelSSHKey", Summary: "Take the rotation of the ssh key back",
				Text: "Replaces the running rotation by one in the other direction: every node accepts the old key " +
					"again, the manager uses it again, and the new one is taken away from the nodes. It waits for " +
					"the same nodes as the rotation did.",
				Body: openapi.Empty{}, Answer: api.SSHKey{}, Status: 202, Success: "The rotation is being taken back.",
				Revision: true,
				Fails:    openapi.Fails{409: "No rotation is running, or it is being taken back already."},
			},
		},
	}
}

func (s *Server) getSSHKey(w http.ResponseWriter, r *http.Request, _ *state.View) error {
	return rest.WriteTagged(w, r, 0, sshKeyOf(s.SSHKey.Status()))
}

func (s *Server) postRotateSSHKey(w http.ResponseWriter, r *http.Request) error {
	var body api.SSHKeyRotation
	if err := rest.ReadJSON(w, r, &body); err != nil {
		return err
	}

	rest.Note(r, "nodes", body.LockOut)

	status, err := s.SSHKey.Rotate(r.Context(), caller(r), sshkey.Request{
		To: body.To, Force: body.Force, LockOut: body.LockOut,
	})

	return s.acceptSSHKey(w, status, err)
}

func (s *Server) postCancelSSHKey(w http.ResponseWriter, r *http.Request) error {
	status, err := s.SSHKey.Cancel(r.Context(), caller(r))

	return s.acceptSSHKey(w, status, err)
}

func (s *Server) acceptSSHKey(w http.ResponseWriter, status sshkey.Status, err error) error {
	if err != nil {
		return err
	}

	rest.ShowRevision(w, s.State.View().Revision)

	return rest.WriteJSON(w, http.StatusAccepted, sshKeyOf(status))
}

// sshKeyOf returns the wire form of the state of the manager's ssh key.
func sshKeyOf(s sshkey.Status) api.SSHKey {
	out := api.SSHKey{
		Phase: string(s.Phase), Key: sshKeyFileOf(s.New), Old: sshKeyFileOf(s.Old), Reverts: s.Reverts,
		Actor: s.Actor, Started: optionalTime(s.Started), Ended: optionalTime(s.Ended), Problem: s.Problem,
		Known: s.Known, Confirmed: len(s.Confirmed), Removed: len(s.Removed), LockedOut: s.LockedOut,
		Laggards: make([]api.Laggard, len(s.Laggards)), OwnKeys: s.OwnKeys,
	}

	if s.Phase == sshkey.PhaseNone {
		out.Phase = api.SSHKeyNever
	}

	for i, l := range s.Laggards {
		out.Laggards[i] = api.Laggard(l)
	}

	return out
}

// sshKeyFileOf returns the wire form of a key, or nil for none.
func sshKeyFileOf(k sshkey.Key) *api.SSHKeyFile {
	if k.Public == "" {
		return nil
	}

	return &api.SSHKeyFile{
		Path: k.Path, PublicKey: k.Public, Fingerprint: configuration.Fingerprint(k.Public), Generated: k.Generated,
	}
}
