// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// row returns the row of a metric. A missing row is a bug in the caller.
func row(name string, t Type) Metric {
	m, ok := Lookup(name)
	if !ok || m.Type != t {
		panic(fmt.Sprintf("metrics: the table has no %s %s", t, name))
	}
	return m
}

// NewCounter returns a new counter of the table. Get a counter without labels with
// WithLabelValues().
func NewCounter(name string) *prometheus.CounterVec {
	m := row(name, Counter)
	return begun(m, prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.Name, Help: m.Meaning}, m.Labels))
}

// NewGauge returns a new gauge of the table.
func NewGauge(name string) *prometheus.GaugeVec {
	m := row(name, Gauge)
	return begun(m, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: m.Name, Help: m.Meaning}, m.Labels))
}

// NewHistogram returns a new histogram of the table.
func NewHistogram(name string) *prometheus.HistogramVec {
	m := row(name, Histogram)
	opts := prometheus.HistogramOpts{Name: m.Name, Help: m.Meaning, Buckets: m.Buckets}
	return begun(m, prometheus.NewHistogramVec(opts, m.Labels))
}

// begun exports a metric without labels from the start, with the value 0.
func begun[T any, V interface{ WithLabelValues(...string) T }](m Metric, vec V) V {
	// Prometheus exports a vector only after its first use.
	if len(m.Labels) == 0 {
		vec.WithLabelValues()
	}
	return vec
}

type (
	// CounterVec is a counter with labels.
	CounterVec = prometheus.CounterVec
	// GaugeVec is a gauge with labels.
	GaugeVec = prometheus.GaugeVec
	// HistogramVec is a histogram with labels.
	HistogramVec = prometheus.HistogramVec
)

// Snapshot is a collector of metrics that are read at every scrape. It has to be
// safe for concurrent scrapes.
type Snapshot func(emit func(name string, value float64, labels ...string))

// Describe sends no description: the metrics vary from scrape to scrape.
func (Snapshot) Describe(chan<- *prometheus.Desc) {}

// Collect sends counters and gauges of the table.
func (s Snapshot) Collect(to chan<- prometheus.Metric) {
	s(func(name string, value float64, labels ...string) {
		m, ok := Lookup(name)
		if !ok || m.Type == Histogram {
			panic("metrics: the table has no counter or gauge " + name)
		}

		// A histogram needs observations; a snapshot has only current values.
		kind := prometheus.GaugeValue
		if m.Type == Counter {
			kind = prometheus.CounterValue
		}

		desc := prometheus.NewDesc(m.Name, m.Meaning, m.Labels, nil)
		to <- prometheus.MustNewConstMetric(desc, kind, value, labels...)
	})
}

// Registry has the metrics of a process. Each part makes its own. Nobody reads those of the zero value.
type Registry struct{ *prometheus.Registry }

// NewRegistry returns a registry with the metrics of the process itself.
func NewRegistry() Registry {
	r := Registry{prometheus.NewRegistry()}
	r.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)

	return r
}

// Counter adds a counter of the table. Get a counter without labels with WithLabelValues().
func (r Registry) Counter(name string) *prometheus.CounterVec { return register(r, NewCounter(name)) }

// Gauge adds a gauge of the table.
func (r Registry) Gauge(name string) *prometheus.GaugeVec { return register(r, NewGauge(name)) }

// Histogram adds a histogram of the table.
func (r Registry) Histogram(name string) *prometheus.HistogramVec {
	return register(r, NewHistogram(name))
}

func register[C prometheus.Collector](r Registry, c C) C {
	if r.Registry != nil {
		r.MustRegister(c)
	}
	return c
}

// Handler serves the metrics.
func (r Registry) Handler() http.Handler {
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}
