// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	table "github.com/contiv/cluster/management/metrics"
	"github.com/contiv/cluster/management/server/rest"
)

// metrics count requests by route. A path would create a series for every node.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	inFlight prometheus.Gauge
	streams  prometheus.Gauge
	watches  prometheus.Gauge
	dropped  prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	inFlight, streams := table.NewGauge("clusterm_http_requests_in_flight"), table.NewGauge("clusterm_http_streams")
	watches, dropped := table.NewGauge("clusterm_http_watches"), table.NewCounter("clusterm_http_watches_dropped_total")

	m := &metrics{
		requests: table.NewCounter("clusterm_http_requests_total"),
		seconds:  table.NewHistogram("clusterm_http_request_duration_seconds"),
		inFlight: inFlight.WithLabelValues(),
		streams:  streams.WithLabelValues(),
		watches:  watches.WithLabelValues(),
		dropped:  dropped.WithLabelValues(),
	}
	if r != nil {
		r.MustRegister(m.requests, m.seconds, inFlight, streams, watches, dropped)
	}
	return m
}

// Begin counts a request in flight.
func (m *metrics) Begin() { m.inFlight.Inc() }

// End counts the answer of a request. Streams are left out of the histogram of
// durations: they last as long as their clients want.
func (m *metrics) End(r *http.Request, rt rest.Route, status int, took time.Duration) {
	m.inFlight.Dec()

	method := r.Method
	switch method {
	case http.MethodGet,
		http.MethodHead,
		http.MethodPost,
		http.MethodPut,
		http.MethodPatch,
		http.MethodDelete,
		http.MethodOptions:
	default:
		method = "other" // a client could create any number of series
	}

	code := strconv.Itoa(status)
	m.requests.WithLabelValues(method, rt.Path, code).Inc()

	if !rt.Streams {
		m.seconds.WithLabelValues(method, rt.Path, code).Observe(took.Seconds())
	}
}
