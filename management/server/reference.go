// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/json"
	"net/http"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/server/rest"
)

// renderReference returns the served forms of the API document by path.
func renderReference() (map[string][]byte, error) {
	document, err := Document()
	if err != nil {
		return nil, err
	}

	var value any
	if err := yaml.Unmarshal(document, &value); err != nil {
		return nil, err
	}

	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}

	loaded, err := openapi.Load(document)
	if err != nil {
		return nil, err
	}
	page, err := loaded.Page()

	return map[string][]byte{
		api.PathOpenAPI: document, api.PathOpenAPIJSON: append(text, '\n'), api.PathDocs: page,
	}, err
}

func (s *Server) referenceRoutes() []rest.Route {
	get := http.MethodGet

	return []rest.Route{
		{
			Method: get, Path: api.PathOpenAPI,
			Allow: access.Everyone.Scoped(), Serve: s.getReference(api.PathOpenAPI, api.TypeYAML),
			Doc: &openapi.Doc{
				ID: "getContract", Summary: "Read this document", Answer: "", Type: api.TypeYAML,
				Success: "This document.", Tagged: true,
			},
		},
		{
			Method: get, Path: api.PathOpenAPIJSON,
			Allow: access.Everyone.Scoped(), Serve: s.getReference(api.PathOpenAPIJSON, api.TypeJSON),
			Doc: &openapi.Doc{
				ID: "getContractJSON", Summary: "Read this document as JSON",
				Answer: json.RawMessage{}, Success: "This document.", Tagged: true,
			},
		},
		{
			Method: get, Path: api.PathDocs,
			Allow: access.Everyone.Scoped(), Serve: s.getReference(api.PathDocs, api.TypeHTML),
			Doc: &openapi.Doc{
				ID: "getReference", Summary: "Read this document as a page",
				Text: "The reference as one page of HTML, without scripts and external files.", Answer: "",
				Type: api.TypeHTML, Success: "The page.", Tagged: true,
			},
		},
	}
}

// pagePolicy lets the page use its own style sheet and load nothing else.
const pagePolicy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; " +
	"frame-ancestors 'none'"

// getReference serves one form of the API document.
func (s *Server) getReference(path, contentType string) rest.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		forms, err := s.reference()
		if err != nil {
			return err
		}

		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Content-Security-Policy", pagePolicy)

		if done, err := rest.NotModified(w, r, rest.Tag(0, forms[path])); done || err != nil {
			return err
		}

		rest.Write(w, http.StatusOK, forms[path])

		return nil
	}
}
