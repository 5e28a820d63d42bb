// SPDX-License-Identifier: Apache-2.0

package server

import (
	_ "embed" // for the rendered reference
	"encoding/json"
	"net/http"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/management/api"
)

// referencePage is openapi.yaml rendered by make docs.
//
//go:embed reference.html
var referencePage []byte

// reference returns the served forms of the API document by path.
var reference = sync.OnceValues(func() (map[string][]byte, error) {
	var document any
	if err := yaml.Unmarshal(api.OpenAPI, &document); err != nil {
		return nil, err
	}

	text, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}

	return map[string][]byte{
		api.PathOpenAPI: api.OpenAPI, api.PathOpenAPIJSON: append(text, '\n'), api.PathDocs: referencePage,
	}, nil
})

// getReference serves one form of the API document.
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
			Set("Content-Security-Policy",
				"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "+
					"frame-ancestors 'none'")

		if done, err := unchanged(w, r, tagOf(0, forms[path])); done || err != nil {
			return err
		}

		write(w, http.StatusOK, forms[path])

		return nil
	}
}
