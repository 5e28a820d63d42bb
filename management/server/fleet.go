// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"

	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/fleet"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/state"
)

func (s *Server) fleetRoutes() []rest.Route {
	return []rest.Route{
		{
			Method: http.MethodGet, Path: api.PathFleet, Allow: access.Readers.Scoped(), Serve: s.reading(s.getFleet),
			Doc: &openapi.Doc{
				ID: "getFleet", Summary: "Export the fleet file",
				Text: "Returns the fleet file of the manager as JSON, which is YAML as well, with its sections in " +
					"order: settings, connection, variables, groups and nodes. Secrets are marked as ones to keep. " +
					"A caller with a scope gets the part within it: settings, and connection and variables of " +
					"every node, are absent. `clusterctl fleet schema` prints its JSON schema.",
				Answer: openapi.Ref("FleetFileContent"), Success: "The fleet file.",
			},
		},
		{
			Method: http.MethodPost, Path: api.PathFleetDiff,
			Allow: access.Readers.Scoped(), Serve: s.postFleetDiff, ReadOnly: true,
			// As text in JSON, most characters of a file take one byte, and some take two.
			BodyLimit: 2 * api.MaxFleetBytes,
			Doc: &openapi.Doc{
				ID: "diffFleet", Summary: "Compare fleet files with the manager",
				Text: "Returns the difference, and the steps that carry it out; changes nothing. Carry the steps " +
					"out in order, each once the one before is done: send `apply` to `POST /v1/fleet/apply`, and " +
					"`job` to `POST /v1/jobs`, and wait for the end of the job. The files may have 16 MiB " +
					"together. A fault of the files is `invalid`, and its detail names every problem with file, " +
					"line and column. Settings, groups and connections are checked as by a change of the " +
					"configuration with `dry_run`, if the caller may make it.",
				Body: api.FleetRequest{}, Answer: api.FleetDiff{}, Success: "The difference.", Revision: true,
			},
		},
		act(s, s.postFleetApply, rest.Route{
			Path: api.PathFleetApply, Allow: access.Operators.Scoped(),
			Doc: &openapi.Doc{
				ID: "applyFleet", Summary: "Carry out one step of a fleet difference",
				Text: "Changes the values of one record, all or none. A value that is neither as the difference " +
					"shows it nor as it is to be fails with `precondition`, by name; other values of the record " +
					"may have changed. A step that is done already changes nothing, so an interrupted sequence " +
					"goes on with its first step. Changes of settings, groups and connections take the role admin, " +
					"and no step changes more than the scope of its caller. In place of `secret`, send the value " +
					"of the secret as `to`.",
				Success:  "The values are as they are to be.",
				Revision: true, Fails: openapi.Fails{412: "A value was changed meanwhile."},
			},
		}),
	}
}

// fleet compares fleet files by the use cases of the server.
func (s *Server) fleet() fleet.Manager {
	return fleet.Manager{State: s.State, Settings: s.Settings, Variables: s.Variables, Nodes: s.Nodes}
}

func (s *Server) getFleet(w http.ResponseWriter, r *http.Request, v *state.Scoped) error {
	file, err := s.fleet().Export(v, access.IdentityOf(r.Context()))
	if err != nil {
		return err
	}
	return rest.WriteTagged(w, r, 0, file)
}

func (s *Server) postFleetDiff(w http.ResponseWriter, r *http.Request) error {
	var body api.FleetRequest
	if err := rest.ReadJSON(w, r, &body); err != nil {
		return err
	}

	if err := s.sync(r.Context()); err != nil {
		return err
	}

	v := s.view(r.Context())
	rest.ShowRevision(w, v.Revision)

	diff, err := s.fleet().Diff(r.Context(), v, access.IdentityOf(r.Context()), body)
	if err != nil {
		return err
	}
	return rest.WriteJSON(w, http.StatusOK, diff)
}

func (s *Server) postFleetApply(r *http.Request, c access.Caller, body api.FleetApply) (api.Changed, error) {
	// Log the names only: values may be secrets.
	names := make([]string, len(body.Changes))
	for i, c := range body.Changes {
		names[i] = c.String()
	}

	rest.Note(r, "changes", names)

	if err := s.sync(r.Context()); err != nil {
		return api.Changed{}, err
	}

	revision, err := s.fleet().Apply(r.Context(), access.IdentityOf(r.Context()), body)

	return api.Changed{Revision: revision}, err
}
