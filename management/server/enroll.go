// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/enroll"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/state"
)

func (s *Server) enrollRoutes() []rest.Route {
	return []rest.Route{
		act(s, s.postImport, rest.Route{
			Path: api.PathImport, Allow: access.Operators,
			// As text in JSON, most characters of a file take one byte, and some take two.
			BodyLimit: 2 * api.MaxImportBytes,
			Doc: &openapi.Doc{
				ID: "importNodes", Tag: aboutNodes, Summary: "Register machines from a list",
				Text: "Registers the machines of a list: all of them, or none if the list has a mistake. The form " +
					"is told from the content: TripleO's instackenv as JSON, YAML or CSV, Bifrost's map, or an " +
					"inventory of Ansible as INI or YAML. A fault of the list is `invalid`, and its detail names " +
					"every mistake with entry, line and field. A machine that is registered already, by its BMC, a " +
					"MAC, its UUID or its address, is changed; what the list leaves out stays as it is. A node in " +
					"service, or held by a job, is skipped. With `prune`, imported machines that the list does not " +
					"name are forgotten, unless they are in service or their agent speaks. With `dry_run`, nothing " +
					"is changed. Settings of connections need the role admin. The answer comes once all machines " +
					"are registered, and the first job of `then` is accepted.",
				Success: "What was done with each machine.", Revision: true,
				Fails: openapi.Fails{400: "The list has mistakes: the detail names them all."},
			},
		}),
		list(s, *rest.ListingOf[api.ImportRun]("-started", "id", "actor", "started"), s.getImports, rest.Route{
			Path: api.PathImports, Allow: access.Readers, Doc: &openapi.Doc{
				ID: "listImports", Tag: aboutNodes, Summary: "List the imports",
				Text:    "Returns the imports of the last day, newest first, without their nodes.",
				Success: "The imports, newest first.",
			},
		}),
		show(s, s.getImport, rest.Route{
			Path: api.PathImportRun, Allow: access.Readers, Doc: &openapi.Doc{
				ID:      "getImport",
				Tag:     aboutNodes,
				Summary: "Show how far an import came",
				Text: "Returns what an import did with each node, and how far the node came on the way of `then`: a " +
					"node that fails stops there with the error, and the others go on. It has no secrets.",
				Path: []openapi.Param{
					{Name: "id", Help: "The number of the import.", Example: "Y2YFPQG2BMVLJXJMTCWR2ASZNM"},
				},
				Success: "The import.",
				Fails:   openapi.Fails{404: "There is no such import of the last day."},
			},
		}),
		act(s, s.postConfigure, rest.Route{
			Path: api.PathConfigure, Allow: access.Operators,
			Doc: &openapi.Doc{
				ID: "configureNodes", Tag: aboutNodes, Summary: "Change what is registered of nodes",
				Text: "Changes what is registered of nodes that are Manageable: of all of them, or of none, and then " +
					"the detail names each node with the reason. A hint for the root device must fit a disk of the " +
					"newest inspection; of a node without an inspection it is not checked, and the answer warns of " +
					"it. A strategy becomes the hint of the disk that it chooses. Nodes that have all values already " +
					"are `same`. Settings of connections need the role admin. With `dry_run`, nothing is changed.",
				Success: "What was done with each node.", Revision: true,
				Fails: openapi.Fails{
					400: "A value is wrong: the detail names all of them.", 404: "One of the nodes does not exist.",
					409: "A node is not Manageable, or has no disk that fits: the detail names all of them.",
				},
			},
		}),
		act(s, s.postMerge, rest.Route{
			Path: api.PathMerge, Allow: access.Operators,
			Doc: &openapi.Doc{
				ID:      "mergeNodes",
				Tag:     aboutNodes,
				Summary: "Make two nodes of one machine one",
				Text: "The registration of `machine`, whose agent never spoke, joins `node`, whose agent speaks: with" +
					" its labels, and with its variables and its connection settings where the node has none. The " +
					"newest entries of its history join that of the node. It is refused if the evidence says that " +
					"they are two machines, unless with `force`. Connection settings need the role admin.",
				Success:  "They are one node.",
				Revision: true,
				Fails:    openapi.Fails{404: "One of them does not exist.", 409: refused},
			},
		}),
		act(s, s.postSplit, rest.Route{
			Path: api.PathSplit, Allow: access.Operators,
			Doc: &openapi.Doc{
				ID: "splitNode", Tag: aboutNodes, Summary: "Take the registration of a machine from a node",
				Text: "The registration becomes a node of its own, `Enrolled` and without an address. The node keeps " +
					"its name, its history and everything else.",
				Success: "They are two nodes.", Revision: true,
				Fails: openapi.Fails{404: "The node does not exist.", 409: refused},
			},
		}),
		{
			Method: http.MethodGet, Path: api.PathExport, Allow: access.Readers.Scoped(), Serve: s.reading(s.getExport),
			Doc: &openapi.Doc{
				ID: "exportNodes", Tag: aboutNodes, Summary: "Export the registered machines as a list",
				Text: "Returns the list of machines that an import takes, without passwords and variables. An import " +
					"of it changes nothing.",
				Answer: map[string]any{}, Success: "The list.",
			},
		},
	}
}

func (s *Server) postImport(r *http.Request, c access.Caller, body api.Import) (api.Imported, error) {
	rest.Note(r, "bytes", len(body.File))

	return s.Importer.Import(r.Context(), c, access.AuthorizeReach(access.IdentityOf(r.Context())), body)
}

func (s *Server) getImports(
	_ *http.Request, v *state.Scoped,
) ([]api.ImportRun, func(api.ImportRun) api.ImportRun, error) {
	return enroll.Runs(v.View), func(i api.ImportRun) api.ImportRun { return i }, nil
}

func (s *Server) getImport(r *http.Request, v *state.Scoped) (api.ImportRun, int64, error) {
	run, err := enroll.Run(v.View, rest.Param(r, "id"))
	return run, 0, err
}

func (s *Server) postConfigure(r *http.Request, c access.Caller, body api.Configure) (api.Imported, error) {
	rest.Note(r, "nodes", body.Nodes)

	var connection configuration.Connection
	if body.Connection != nil {
		connection = connectionFrom(*body.Connection)
	}

	mayReach := access.AuthorizeReach(access.IdentityOf(r.Context()))

	return s.Importer.Configure(r.Context(), c, mayReach, body, connection)
}

func (s *Server) postMerge(r *http.Request, c access.Caller, body api.Merge) (api.Changed, error) {
	rest.Note(r, "nodes", []string{body.Machine, body.Node})

	revision, err := s.Importer.Merge(r.Context(), c, access.AuthorizeReach(access.IdentityOf(r.Context())), body)

	return api.Changed{Revision: revision}, err
}

func (s *Server) postSplit(r *http.Request, c access.Caller, body api.Split) (api.Changed, error) {
	rest.Note(r, "nodes", []string{body.Node, body.As})

	revision, err := s.Importer.Split(r.Context(), c, body)

	return api.Changed{Revision: revision}, err
}

func (s *Server) getExport(w http.ResponseWriter, r *http.Request, v *state.Scoped) error {
	return rest.WriteTagged(w, r, 0, enroll.Export(v.View))
}
