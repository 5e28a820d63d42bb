// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/rotation"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/sshkey"
	"github.com/contiv/cluster/management/state"
)

func (s *Server) sshKeyRoutes() []rest.Route {
	return []rest.Route{
		show(s, s.getSSHKey, rest.Route{
			Path: api.PathSSHKey, Allow: access.Readers,
			Doc: &openapi.Doc{
				ID: "getSSHKey", Summary: "Show the rotation of the ssh key",
				Text: "Returns the newest rotation of the ssh key with which the manager logs in to nodes, and " +
					"what it waits for; or the key in use, if there was none. Private keys are not shown.",
				Success: "The state of the rotation.",
			},
		}),
		act(s, s.postRotateSSHKey, rest.Route{
			Shows: api.PathSSHKey,
			Path:  api.PathRotateSSHKey, Allow: access.Admins,
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
				Status:  202,
				Success: "The rotation has begun, or goes on.", Revision: true,
				Fails: openapi.Fails{
					409: "A rotation is running already, or with `force` none is, or not all laggards are named.",
				},
			},
		}),
		act(s, s.postCancelSSHKey, rest.Route{
			Shows: api.PathSSHKey,
			Path:  api.PathCancelSSHKey, Allow: access.Admins, Ends: true,
			Doc: &openapi.Doc{
				ID: "cancelSSHKey", Summary: "Take the rotation of the ssh key back",
				Text: "Replaces the running rotation by one in the other direction: every node accepts the old key " +
					"again, the manager uses it again, and the new one is taken away from the nodes. It waits for " +
					"the same nodes as the rotation did.",
				Status: 202, Success: "The rotation is being taken back.",
				Revision: true,
				Fails:    openapi.Fails{409: "No rotation is running, or it is being taken back already."},
			},
		}),
	}
}

func (s *Server) getSSHKey(r *http.Request, _ *state.Scoped) (api.SSHKey, int64, error) {
	return sshKeyOf(s.SSHKey.Status()), 0, nil
}

func (s *Server) postRotateSSHKey(r *http.Request, c access.Caller, body api.SSHKeyRotation) (api.SSHKey, error) {
	rest.Note(r, "nodes", body.LockOut)

	status, err := s.SSHKey.Rotate(r.Context(), c, sshkey.Request{
		To: body.To, Force: body.Force, LockOut: body.LockOut,
	})

	return sshKeyOf(status), err
}

func (s *Server) postCancelSSHKey(r *http.Request, c access.Caller, _ openapi.Empty) (api.SSHKey, error) {
	status, err := s.SSHKey.Cancel(r.Context(), c)
	return sshKeyOf(status), err
}

// sshKeyOf returns the wire form of the state of the manager's ssh key.
func sshKeyOf(s sshkey.Status) api.SSHKey {
	out := api.SSHKey{
		Phase: string(s.Phase), Key: sshKeyFileOf(s.New), Old: sshKeyFileOf(s.Old), Reverts: s.Reverts,
		Actor: s.Actor, Started: optionalTime(s.Started), Ended: optionalTime(s.Ended), Problem: s.Problem,
		Known: s.Known, Confirmed: len(s.Confirmed), Removed: len(s.Removed), LockedOut: s.LockedOut,
		Laggards: make([]api.Laggard, len(s.Laggards)), OwnKeys: s.OwnKeys,
	}

	if s.Phase == rotation.PhaseNone {
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
