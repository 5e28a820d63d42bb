// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/server/rest"
)

// The initial limits of one caller; see SetCallerLimits.
const (
	DefaultRequests = 64
	DefaultStreams  = 64
)

// callerLimit bounds what one caller does at once. Callers do not share it: one at its
// limit is refused, and the others are served.
type callerLimit struct {
	most atomic.Int64

	mu   sync.Mutex
	open map[string]int64 // by caller
}

func newCallerLimit(most int64) *callerLimit {
	l := &callerLimit{open: map[string]int64{}}
	l.most.Store(most)
	return l
}

// enter counts one more of the caller's, and reports whether it is within the limit.
// If it is, the caller must leave.
func (l *callerLimit) enter(caller string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.open[caller] >= l.most.Load() {
		return false
	}

	l.open[caller]++

	return true
}

func (l *callerLimit) leave(caller string) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.open[caller]--; l.open[caller] == 0 {
		delete(l.open, caller)
	}
}

// SetCallerLimits sets how many requests, and how many streams beside them, each caller
// may have open at once. It applies to later requests.
func (s *Server) SetCallerLimits(requests, streams int) {
	s.requests.most.Store(int64(requests))
	s.streams.most.Store(int64(streams))
}

// isStream reports whether a request lasts as long as its client wants: a watch, a log,
// or a wait for a job.
func isStream(r *http.Request, rt rest.Route) bool {
	return rt.Streams && (rt.Path != api.PathJob || r.URL.Query().Has("wait"))
}

// bound serves a route within the limits of each caller.
func (s *Server) bound(rt rest.Route) rest.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		limit, what, key := s.requests, "requests", "max_requests"
		if isStream(r, rt) {
			limit, what, key = s.streams, "watches, followed logs and waits", "max_streams"
		}

		caller := clientOf(r)
		if !limit.enter(caller) {
			return inventory.Errorf(inventory.KindBusy, "%s has %d %s open already",
				rest.Principal(r), limit.most.Load(), what).
				Do("wait until one of them has ended, or let an admin raise %s in the configuration", key)
		}

		defer limit.leave(caller)

		return rt.Serve(w, r)
	}
}
