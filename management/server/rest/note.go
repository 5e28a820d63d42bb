// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"net/http"

	"github.com/sirupsen/logrus"
)

// note carries the state of one request through its context.
type note struct {
	route     Route
	principal string
	bodyLimit int64 // bytes
	fields    logrus.Fields
}

type noteKey struct{}

func noteOf(r *http.Request) *note { return r.Context().Value(noteKey{}).(*note) }

// Note adds a field to the access log of the request. value must not contain
// secrets.
func Note(r *http.Request, field string, value any) { noteOf(r).fields[field] = value }

// Principal returns the authenticated principal of the request.
func Principal(r *http.Request) string { return noteOf(r).principal }
