// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/sshkey"
)

func (s *Server) sshKeyRoutes() []rest.Route {
	return []rest.Route{
		{Method: http.MethodGet, Path: api.PathSSHKey, Serve: s.getSSHKey},
		{Method: http.MethodPost, Path: api.PathRotateSSHKey, Serve: s.postRotateSSHKey},
		{Method: http.MethodPost, Path: api.PathCancelSSHKey, Serve: s.postCancelSSHKey},
	}
}

func (s *Server) getSSHKey(w http.ResponseWriter, r *http.Request) error {
	if _, _, err := s.read(w, r); err != nil {
		return err
	}

	return rest.WriteTagged(w, r, 0, sshKeyOf(s.SSHKey.Status()))
}

func (s *Server) postRotateSSHKey(w http.ResponseWriter, r *http.Request) error {
	if err := rest.NoQuery(r); err != nil {
		return err
	}

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
	if err := rest.NoQuery(r); err != nil {
		return err
	}

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
