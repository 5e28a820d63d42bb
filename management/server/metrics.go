// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	table "github.com/contiv/cluster/management/metrics"
)

// metrics count requests by route, never by path: a path may hold anything.
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
		requests: table.NewCounter(
			"clusterm_http_requests_total",
		),
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

func (m *metrics) count(r *http.Request, route string, status int, took time.Duration, lasting bool) {
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
		method = "other" // it is the client's word
	}

	code := strconv.Itoa(status)
	m.requests.WithLabelValues(method, route, code).Inc()

	if !lasting {
		m.seconds.WithLabelValues(method, route, code).Observe(took.Seconds())
	}
}
