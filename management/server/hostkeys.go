// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/state"
)

func (s *Server) postScanHostKeys(r *http.Request, c access.Caller, _ openapi.Empty) (api.HostKeys, error) {
	name := rest.Param(r, "name")

	rest.Note(r, "nodes", []string{name})

	keys, err := s.HostKeys.ScanHostKeys(r.Context(), c, name)
	if err != nil {
		return api.HostKeys{}, s.view(r.Context()).Error(err)
	}
	return hostKeysOf(keys), nil
}

func (s *Server) putHostKeys(r *http.Request, c access.Caller, body api.HostKeyTrust) (api.Node, error) {
	name := rest.Param(r, "name")

	rest.Note(r, "nodes", []string{name})

	c, err := guarded(r, c, name, func(v *state.View) (int64, error) {
		n, err := v.Node(name)
		return n.Revision, err
	})
	if err != nil {
		return api.Node{}, err
	}
	n, err := s.HostKeys.TrustHostKey(r.Context(), c, name, node.Trust{
		Key: body.Key, Fingerprint: body.Fingerprint, Reason: body.Reason, SetAside: body.SetAside,
	})
	if err != nil {
		return api.Node{}, err
	}
	return s.forms(s.view(r.Context())).one(n), nil
}

// hostKeysOf returns the wire form of the host keys of a node.
func hostKeysOf(k node.HostKeys) api.HostKeys {
	return api.HostKeys{Node: k.Node, Addr: k.Addr, Recorded: keysOf(k.Recorded), Shown: keysOf(k.Shown)}
}

func keysOf(keys []string) []api.HostKey {
	all := make([]api.HostKey, len(keys))
	for i, key := range keys {
		all[i] = api.HostKey{Key: key, Fingerprint: configuration.Fingerprint(key)}
	}

	return all
}
