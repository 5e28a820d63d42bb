// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

func row(name string, t Type) Metric {
	m, ok := Lookup(name)
	if !ok || m.Type != t {
		panic(fmt.Sprintf("the table of metrics has no %s %s", t, name))
	}

	return m
}

// NewCounter makes the counter of that name. One without labels is got by
// WithLabelValues().
func NewCounter(name string) *prometheus.CounterVec {
	m := row(name, Counter)
	return begun(m, prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.Name, Help: m.Meaning}, m.Labels))
}

// NewGauge makes the gauge of that name.
func NewGauge(name string) *prometheus.GaugeVec {
	m := row(name, Gauge)
	return begun(m, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: m.Name, Help: m.Meaning}, m.Labels))
}

// NewHistogram makes the histogram of that name.
func NewHistogram(name string) *prometheus.HistogramVec {
	m := row(name, Histogram)
	return begun(
		m,
		prometheus.NewHistogramVec(
			prometheus.HistogramOpts{Name: m.Name, Help: m.Meaning, Buckets: m.Buckets},
			m.Labels,
		),
	)
}

// begun shows a metric without labels from the start.
func begun[T any, V interface{ WithLabelValues(...string) T }](m Metric, vec V) V {
	if len(m.Labels) == 0 {
		vec.WithLabelValues()
	}

	return vec
}

// Snapshot emits metrics that are looked up at every scrape rather than
// counted. It may be called by several scrapes at once.
type Snapshot func(emit func(name string, value float64, labels ...string))

// Describe says nothing: what a Snapshot emits is known when it does.
func (Snapshot) Describe(chan<- *prometheus.Desc) {}

// Collect emits counters and gauges of the table.
func (s Snapshot) Collect(to chan<- prometheus.Metric) {
	s(func(name string, value float64, labels ...string) {
		m, ok := Lookup(name)
		if !ok || m.Type == Histogram {
			panic("the table of metrics has no counter or gauge " + name)
		}

		kind := prometheus.GaugeValue
		if m.Type == Counter {
			kind = prometheus.CounterValue
		}

		to <- prometheus.MustNewConstMetric(prometheus.NewDesc(m.Name, m.Meaning, m.Labels, nil), kind, value, labels...)
	})
}
