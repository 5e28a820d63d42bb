// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"
	"sync"

	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/openapi"
)

// reference is the contract in the forms in which it is served, made when
// somebody asks for the first time.
var reference = sync.OnceValues(func() (map[string][]byte, error) {
	document, err := openapi.Parse(api.OpenAPI)
	if err != nil {
		return nil, err
	}

	page, err := document.Page()
	if err != nil {
		return nil, err
	}

	return map[string][]byte{
		api.PathOpenAPI: api.OpenAPI, api.PathOpenAPIJSON: append(document.JSON, '\n'), api.PathDocs: page,
	}, nil
})

// getReference serves one form of the contract.
func (s *Server) getReference(path, contentType string) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if _, err := query(r); err != nil {
			return err
		}

		forms, err := reference()
		if err != nil {
			return err
		}

		w.Header().Set("Content-Type", contentType)
		// The page brings its style along and needs nothing else.
		w.Header().
			Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")

		if done, err := unchanged(w, r, tagOf(0, forms[path])); done || err != nil {
			return err
		}

		write(w, http.StatusOK, forms[path])

		return nil
	}
}
