// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"
	"slices"
	"strings"

	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/state"
)

func (s *Server) instanceRoutes() []rest.Route {
	return []rest.Route{
		{Method: http.MethodGet, Path: api.PathInstances, Serve: s.getInstances, Query: listQuery()},
	}
}

var instanceListing = rest.Listing[*state.Instance]{
	Key: "id", Default: "started",
	Fields: map[string]func(*state.Instance) string{
		"id":      func(in *state.Instance) string { return in.ID },
		"node":    func(in *state.Instance) string { return in.Node },
		"addr":    func(in *state.Instance) string { return rest.SortAddr(in.Addr) },
		"version": func(in *state.Instance) string { return in.Version },
		"started": func(in *state.Instance) string { return rest.SortTime(in.Started) },
	},
}

func (s *Server) getInstances(w http.ResponseWriter, r *http.Request) error {
	v, q, err := s.read(w, r)
	if err != nil {
		return err
	}

	// A listing expects its items in the order of the key.
	byID := slices.SortedFunc(slices.Values(record.List(v, &state.Instances)), func(a, b *state.Instance) int {
		return strings.Compare(a.ID, b.ID)
	})
	at := snapshotOf(v)

	return rest.WriteList(w, r, q, instanceListing, rest.Contents[*state.Instance, api.Instance]{
		At: at, Tag: at.Tag(), Items: byID, Show: instanceOf,
	})
}
