// SPDX-License-Identifier: Apache-2.0

package server

import (
	"maps"
	"net/http"
	"slices"
	"strconv"

	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/state"
)

func (s *Server) settingRoutes() []rest.Route {
	return []rest.Route{
		{
			Method: http.MethodGet, Path: api.PathConfig, Allow: access.Readers, Serve: s.reading(s.getConfig),
			Doc: &openapi.Doc{
				ID: "getConfig", Summary: "Show the effective configuration",
				Text: "Returns every dotted key with its value and origin, without secrets.", Answer: api.Config{},
				Success: "The configuration, by key.",
			},
		},
		{
			Method: http.MethodPatch, Path: api.PathConfig,
			Shows: api.PathConfig,
			Allow: access.ChangeConfig, Serve: s.patchConfig, Conditional: true,
			Query: []openapi.Param{
				{
					Name: "dry_run", Type: openapi.Flag,
					Help: "Check the change as if it were made, and change nothing. The answer is the " +
						"configuration that the change would lead to.",
				},
			},
			Doc: &openapi.Doc{
				ID: "patchConfig", Summary: "Change the configuration",
				Text: "Sets keys in the overlay; `null` removes a key from it. All instances share the overlay, " +
					"and it survives restarts. Either all keys take effect or none. If the patch names " +
					"`playbooks`, its `former` in the answer lists the nodes that are still cleaned with other " +
					"playbooks.",
				Body: openapi.Ref("ConfigPatch"), Answer: api.Config{},
				Success: "The effective configuration after the change.", Revision: true,
				Fails: openapi.Fails{409: "Only the file can set the key, or a concurrent change came first."},
			},
		},
		{
			Method: http.MethodPost, Path: api.PathReload, Allow: access.Admins, Serve: s.reloadConfig,
			Doc: &openapi.Doc{
				ID: "reloadConfig", Summary: "Reload the configuration file",
				Text: "Makes the instance read its configuration file again. The file takes effect as a whole " +
					"before the answer, below the overlay. `systemctl reload clusterm` sends this request, by " +
					"`clusterm reload`. A file that is wrong, or that changes a key that needs a restart, changes " +
					"nothing: the former one stays in force, and the check `configuration` of `GET /v1/health` " +
					"shows the reason. If the folder in `playbooks` has changed, its `former` in the answer lists " +
					"the nodes that are still cleaned with other playbooks.",
				Answer: api.Config{}, Success: "The effective configuration after the reload.", Revision: true,
				Fails: openapi.Fails{409: "The file is wrong, needs a restart, or does not fit the nodes."},
			},
		},
		list(s, groupListing, s.getGroups, rest.Route{
			Path: api.PathGroups, Allow: access.Readers.Scoped(), Doc: &openapi.Doc{
				ID: "listGroups", Tag: aboutNodes, Summary: "List host groups",
				Text: "Returns the groups for commissioned nodes with their rules and the numbers of their nodes, in " +
					"the order of the configuration.",
				Success: "The groups.",
			},
		}),
	}
}

// placedGroup is a group with its place in the configuration, the default order.
type placedGroup struct {
	place int
	api.Group
}

var groupListing = rest.Listing[placedGroup]{
	Key: "place", Default: "place", Outside: true,
	Fields: map[string]func(placedGroup) string{
		"place":    func(g placedGroup) string { return rest.SortNumber(strconv.Itoa(g.place)) },
		"name":     func(g placedGroup) string { return g.Name },
		"requires": func(g placedGroup) string { return g.Requires.String() },
	},
}

func (s *Server) getGroups(
	_ *http.Request, v *state.Scoped,
) ([]placedGroup, func(placedGroup) api.Group, error) {
	groups := v.Groups(s.Settings.Groups())
	placed, at := make([]placedGroup, len(groups)), map[string]*placedGroup{}

	for i, g := range groups {
		placed[i] = placedGroup{i, api.Group{Group: g}}
		at[g.Name] = &placed[i]
	}

	for _, n := range v.Nodes() {
		if g := at[n.Group]; g != nil {
			g.Nodes++

			if n.Healthy() {
				g.Healthy++
			}
		}
	}

	return placed, func(g placedGroup) api.Group { return g.Group }, nil
}

func (s *Server) getConfig(w http.ResponseWriter, r *http.Request, v *state.Scoped) error {
	return rest.WriteTagged(w, r, state.ConfigAt(v), s.Settings.Config())
}

// paramDryRun is the query parameter of a change that is checked only.
const paramDryRun = "dry_run"

func (s *Server) patchConfig(w http.ResponseWriter, r *http.Request) error {
	dry := rest.Query(r).Flag(paramDryRun)

	patch, err := readObject(w, r)
	if err != nil {
		return err
	}
	rest.Note(r, "keys", slices.Sorted(maps.Keys(patch)))

	return s.once(w, r, patch, func(c access.Caller) error {
		at := func(v *state.View) (int64, error) { return state.ConfigAt(v), nil }

		c, err := guarded(r, c, "the configuration", at)
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
	})
}

func (s *Server) reloadConfig(w http.ResponseWriter, r *http.Request) error {
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
