// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"net/http"
	"reflect"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// note carries the state of one request through its context.
type note struct {
	route     Route
	id        string // of the request
	principal string
	bodyLimit int64             // bytes
	params    map[string]string // of the path
	query     Values
	fields    logrus.Fields
}

type noteKey struct{}

func noteOf(r *http.Request) *note { return r.Context().Value(noteKey{}).(*note) }

// Bounds of the values in the log: a refused request may be as large as the
// largest body.
const (
	maxLogged   = 1 << 10 // bytes of a text
	maxNames    = 32      // in a list
	maxName     = 128     // bytes
	maxIncident = 64 << 10
)

// Note adds a field to the access log of the request. value must not contain
// secrets. A long text or list is cut.
func Note(r *http.Request, field string, value any) { noteOf(r).fields[field] = loggable(value) }

func loggable(value any) any {
	if names, ok := value.([]string); ok {
		return inventory.ShortenAll(names, maxNames, maxName)
	}

	if v := reflect.ValueOf(value); v.Kind() == reflect.String && v.Len() > maxLogged {
		return inventory.Shorten(v.String(), maxLogged)
	}
	return value
}

// loggablePath returns the path of a request for the log.
func loggablePath(r *http.Request) string { return inventory.Shorten(r.URL.Path, maxLogged) }

// RequestID returns the id of the request.
func RequestID(r *http.Request) string { return noteOf(r).id }

// requestID returns the id that the client chose for a request, or a new one.
func requestID(r *http.Request) string {
	if ids := r.Header.Values(api.HeaderRequestID); len(ids) == 1 && api.IsRequestID(ids[0]) {
		return ids[0]
	}
	return api.NewRequestID()
}

// RouteOf returns the route of the request.
func RouteOf(r *http.Request) Route { return noteOf(r).route }

// Principal returns the authenticated principal of the request.
func Principal(r *http.Request) string { return noteOf(r).principal }
