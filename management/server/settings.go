// SPDX-License-Identifier: Apache-2.0

package server

import (
	"maps"
	"net/http"
	"slices"
	"strconv"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/state"
)

func (s *Server) settingRoutes() []rest.Route {
	return []rest.Route{
		{Method: http.MethodGet, Path: api.PathConfig, Serve: s.getConfig},
		{
			Method:      http.MethodPatch,
			Path:        api.PathConfig,
			Serve:       s.patchConfig,
			Conditional: true,
			Query:       []string{paramDryRun},
		},
		{Method: http.MethodPost, Path: api.PathReload, Serve: s.reloadConfig},
		{Method: http.MethodGet, Path: api.PathGroups, Serve: s.getGroups, Query: listQuery()},
	}
}

// placedGroup is a group with its place in the configuration, the default order.
type placedGroup struct {
	place int
	group inventory.Group
}

var groupListing = rest.Listing[placedGroup]{
	Key: "place", Default: "place",
	Fields: map[string]func(placedGroup) string{
		"place":    func(g placedGroup) string { return rest.SortNumber(strconv.Itoa(g.place)) },
		"name":     func(g placedGroup) string { return g.group.Name },
		"requires": func(g placedGroup) string { return g.group.Requires.String() },
	},
}

func (s *Server) getGroups(w http.ResponseWriter, r *http.Request) error {
	v, q, err := s.read(w, r)
	if err != nil {
		return err
	}

	groups := s.Settings.Groups()

	body, err := rest.EncodeJSON(groups)
	if err != nil {
		return err
	}

	placed := make([]placedGroup, len(groups))
	for i, g := range groups {
		placed[i] = placedGroup{i, g}
	}

	return rest.WriteList(w, r, q, groupListing, rest.Contents[placedGroup, api.Group]{
		At: snapshotOf(v),
		// Groups belong to the configuration: the revision of the view does not
		// change with them.
		Tag:   "W/" + rest.Tag(0, body),
		Items: placed, Show: func(g placedGroup) api.Group { return groupOf(g.group) },
	})
}

func (s *Server) getConfig(w http.ResponseWriter, r *http.Request) error {
	v, _, err := s.read(w, r)
	if err != nil {
		return err
	}

	return rest.WriteTagged(w, r, v.ConfigAt, s.Settings.Config())
}

// paramDryRun is the query parameter of a change that is checked only.
const paramDryRun = "dry_run"

func (s *Server) patchConfig(w http.ResponseWriter, r *http.Request) error {
	q, err := rest.Query(r)
	if err != nil {
		return err
	}

	dry, err := rest.Bool(q, paramDryRun, false)
	if err != nil {
		return err
	}

	patch, err := readObject(w, r)
	if err != nil {
		return err
	}

	rest.Note(r, "keys", slices.Sorted(maps.Keys(patch)))

	c := caller(r)

	c.Precondition, err = precondition(r, "the configuration", func(v *state.View) (int64, error) {
		return v.ConfigAt, nil
	})
	if err != nil {
		return err
	}

	change := s.Settings.Patch
	if dry {
		change = s.Settings.Preview
	}

	config, err := change(r.Context(), c, patch)
	if err != nil {
		return err
	}

	rest.ShowRevision(w, s.State.View().Revision)

	return rest.WriteJSON(w, http.StatusOK, config)
}

func (s *Server) reloadConfig(w http.ResponseWriter, r *http.Request) error {
	if err := rest.NoQuery(r); err != nil {
		return err
	}

	if err := rest.ReadEmpty(w, r); err != nil {
		return err
	}

	config, err := s.Settings.Reload(r.Context(), caller(r))
	if err != nil {
		return err
	}

	rest.ShowRevision(w, s.State.View().Revision)

	return rest.WriteJSON(w, http.StatusOK, config)
}
