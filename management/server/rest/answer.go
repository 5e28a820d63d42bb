// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/contiv/cluster/management/api"
)

// Write answers with a complete body. Errors of the connection are ignored:
// nobody is left to receive them.
func Write(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// WriteJSON answers with v as JSON.
func WriteJSON(w http.ResponseWriter, status int, v any) error {
	b, err := EncodeJSON(v)
	if err != nil {
		return err
	}
	writeBody(w, status, b)

	return nil
}

func writeBody(w http.ResponseWriter, status int, json []byte) {
	w.Header().Set("Content-Type", api.TypeJSON)
	Write(w, status, json)
}

// EncodeJSON encodes v in the form of every answer: HTML characters are not
// escaped, and a newline ends it.
func EncodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer

	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)

	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode the answer: %w", err)
	}

	return b.Bytes(), nil
}

// ShowRevision states the revision of the answer in its header.
func ShowRevision(w http.ResponseWriter, revision int64) {
	w.Header().Set(api.HeaderRevision, strconv.FormatInt(revision, 10))
}
