// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/metrics"
)

// scrape reads /metrics as Prometheus does.
func (s *site) scrape() map[string]*dto.MetricFamily {
	s.t.Helper()
	resp, err := http.Get(s.url + api.PathMetrics)
	s.must(err)
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	s.must(err)

	return families
}

// value returns one number of a scrape; of a histogram, the number of observations.
func value(families map[string]*dto.MetricFamily, name string, labels ...string) float64 {
	sum := 0.0
	for _, m := range families[name].GetMetric() {
		have := map[string]bool{}
		for _, l := range m.GetLabel() {
			have[l.GetName()+"="+l.GetValue()] = true
		}

		if !slices.ContainsFunc(labels, func(l string) bool { return !have[l] }) {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}

	return sum
}

// TestMetrics checks that, after some work, a daemon shows exactly the metrics of the
// table, with the numbers of that work.
func TestMetrics(t *testing.T) {
	t.Parallel()
	s := begin(t, "gossip: {bind: 127.0.0.1:0}", `node: {label: manager, serial: "1", addr: 127.0.0.1}`,
		"listen: 127.0.0.1:0")
	s.state("manager-1", inventory.Discovered)
	s.report("a b")
	j, fifo := s.submitWaiting(
		api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}, Group: "service-master"},
	)
	behind, err := s.Client.Submit(
		s.ctx(),
		api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"b-1"}, Group: "service-worker"},
	)
	s.must(err)
	expect := func(when string, families map[string]*dto.MetricFamily, want map[string]float64) {
		t.Helper()

		for _, what := range slices.Sorted(maps.Keys(want)) {
			name, labels, _ := strings.Cut(what, " ")
			if got := value(families, name, strings.Fields(labels)...); got != want[what] {
				t.Errorf("%s: %s is %v, want %v", when, what, got, want[what])
			}
		}
	}
	expect("while it runs", s.scrape(), map[string]float64{
		"clusterm_nodes status=Provisioning state=Discovered": 1,
		"clusterm_nodes": 3,
		"clusterm_jobs verb=commission status=Running": 1,
		"clusterm_queue_length":                        1,
		"clusterm_runner_processes":                    1,
		"clusterm_runner_forks":                        1,
		"clusterm_runner_starts_total":                 1,
		"clusterm_runner_adoptions_total":              0,
		"clusterm_gossip_members status=alive":         1,
		"clusterm_http_requests_in_flight":             1,
		"clusterm_jobs_ended_total":                    0,
	})

	if age := value(s.scrape(), "clusterm_queue_oldest_age_seconds"); age <= 0 {
		t.Errorf("the oldest queued job is %v s old", age)
	}

	s.restart()
	s.until(j.ID, "it runs", func(j api.Job) bool { return j.Status == api.Running })

	// A run that ends before the daemon owns its job again is not adopted.
	s.eventually("the run is adopted", func() bool {
		return value(s.scrape(), "clusterm_runner_adoptions_total") == 1
	})
	s.release(fifo)
	_, err = s.Client.WaitJob(s.ctx(), behind.ID)
	s.must(err)

	if j := s.runJob(
		api.JobRequest{
			Verb:      inventory.VerbMaintenance,
			Nodes:     []string{"b-1"},
			ExtraVars: []byte(`{"fails_on":"b-1"}`),
		},
	); j.Status != api.Errored {
		t.Fatalf("%+v", j)
	}

	// A job is seen to have ended a moment before it is counted, and an etcd that
	// takes more than a moment to answer counts as down.
	families := s.scrape()
	for ctx := s.ctx(); (value(families, "clusterm_jobs_ended_total") < 3 ||
		value(families, "clusterm_etcd_up") != 1) && ctx.Err() == nil; {
		families = s.scrape()
	}

	expect("after it", families, map[string]float64{
		"clusterm_jobs_ended_total verb=commission cause=done":             2,
		"clusterm_jobs_ended_total verb=maintenance cause=failed":          1,
		"clusterm_jobs_ended_total":                                        3,
		"clusterm_job_duration_seconds verb=commission status=Complete":    2,
		"clusterm_jobs status=Complete":                                    2,
		"clusterm_jobs status=Errored":                                     1,
		"clusterm_runner_adoptions_total":                                  1,
		"clusterm_runner_starts_total":                                     2,
		"clusterm_runner_ends_total cause=done":                            2,
		"clusterm_runner_ends_total cause=failed":                          1,
		"clusterm_runner_processes":                                        0,
		"clusterm_runner_forks":                                            0,
		"clusterm_nodes_with_error":                                        1,
		"clusterm_queue_length":                                            0,
		"clusterm_queue_oldest_age_seconds":                                0,
		"clusterm_etcd_up":                                                 1,
		"clusterm_loop_on_duty loop=rollouts":                              1,
		"clusterm_loop_failing loop=rollouts":                              0,
		"clusterm_loop_failures_total loop=policies":                       0,
		"clusterm_view_stale":                                              0,
		"clusterm_build_info version=test":                                 1,
		"clusterm_http_requests_total route=/v1/jobs method=POST code=202": 1,
	})

	for _, name := range []string{"clusterm_runner_output_bytes_total", "clusterm_runner_output_lines_total"} {
		if value(families, name, "stream=text") == 0 || value(families, name, "stream=events") == 0 {
			t.Errorf("%s did not grow", name)
		}
	}

	if size, quota := value(families, "clusterm_etcd_db_size_bytes"), value(
		families,
		"clusterm_etcd_db_quota_bytes",
	); size <= 0 || quota <= size {
		t.Errorf("the database has %v of %v bytes", size, quota)
	}

	if n, want := len(families["clusterm_nodes"].GetMetric()), len(inventory.Statuses)*len(
		inventory.States,
	); n != want {
		t.Errorf("%d combinations of status and state, want %d", n, want)
	}

	inTable(t, families)

	for _, name := range []string{"go_goroutines", "process_start_time_seconds"} {
		if families[name] == nil {
			t.Errorf("no %s", name)
		}
	}
}

// inTable compares a scrape with the table, in both directions.
func inTable(t *testing.T, families map[string]*dto.MetricFamily) {
	t.Helper()

	for _, room := range metrics.Table {
		for _, m := range room.Metrics {
			f := families[m.Name]
			if f == nil {
				t.Errorf("no %s", m.Name)
				continue
			}

			if got := strings.ToLower(f.GetType().String()); got != string(m.Type) {
				t.Errorf("%s is a %s, the table says %s", m.Name, got, m.Type)
			}

			for _, one := range f.GetMetric() {
				var labels []string
				for _, l := range one.GetLabel() {
					labels = append(labels, l.GetName())
				}

				if want := slices.Sorted(slices.Values(m.Labels)); !slices.Equal(labels, want) {
					t.Errorf("%s has the labels %v, the table says %v", m.Name, labels, want)
				}
			}
		}
	}

	for name := range families {
		if _, ok := metrics.Lookup(name); !ok && strings.HasPrefix(name, "clusterm_") {
			t.Errorf("%s is not in the table", name)
		}
	}
}
