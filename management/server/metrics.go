// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics count requests by route, never by path: a path may hold anything.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	streams  prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clusterm_http_requests_total", Help: "Answered requests, by route and status.",
		}, []string{"method", "route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "clusterm_http_request_seconds", Help: "How long requests took, those that stream or wait on demand excepted.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}, []string{"method", "route"}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "clusterm_http_streams", Help: "Logs that are being read now.",
		}),
	}
	if r != nil {
		r.MustRegister(m.requests, m.seconds, m.streams)
	}
	return m
}

func (m *metrics) count(r *http.Request, route string, status int, took time.Duration, lasting bool) {
	method := r.Method
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
	default:
		method = "other" // it is the client's word
	}
	m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Inc()
	if !lasting {
		m.seconds.WithLabelValues(method, route).Observe(took.Seconds())
	}
}
