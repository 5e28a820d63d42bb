// SPDX-License-Identifier: Apache-2.0

// Package metrics is the table of everything that /metrics shows under
// clusterm_, and the instruments made from it. Whoever measures asks for an
// instrument by name; a name, a type or a label that the table does not have is
// a mistake in the program and panics. The documentation, the Grafana board and
// the alert rules are held against the same table.
package metrics

// Type is what kind of number a metric is.
type Type string

// The types.
const (
	Counter   Type = "counter"   // only grows, from 0 at the start of the daemon
	Gauge     Type = "gauge"     // goes up and down
	Histogram Type = "histogram" // how often which size
)

// Metric is one row of the table.
type Metric struct {
	Name    string
	Type    Type
	Labels  []string
	Buckets []float64 // of a Histogram, upper bounds in its unit
	Meaning string
	// Absent says when it is not shown; empty: it always is.
	Absent string
}

// Room is a group of metrics with a common source.
type Room struct {
	Title   string
	Metrics []Metric
}

const noGossip = "with `gossip: off`"

// Table is every metric of ours, by room.
var Table = []Room{
	{
		"The daemon",
		[]Metric{
			{
				Name:    "clusterm_build_info",
				Type:    Gauge,
				Labels:  []string{"version", "commit", "go"},
				Meaning: "always 1; what was built",
			},
		},
	},
	{
		"API",
		[]Metric{
			{
				Name:    "clusterm_http_requests_total",
				Type:    Counter,
				Labels:  []string{"method", "route", "code"},
				Meaning: "answered requests, by the template of the path and the HTTP status",
				Absent:  "before the first request",
			},
			{
				Name:    "clusterm_http_request_duration_seconds",
				Type:    Histogram,
				Labels:  []string{"method", "route", "code"},
				Buckets: exponential(0.001, 4, 8),
				Meaning: "how long requests took, those that stream or wait on demand excepted",
				Absent:  "before the first request",
			},
			{
				Name:    "clusterm_http_requests_in_flight",
				Type:    Gauge,
				Meaning: "requests that are being answered, streams included",
			},
			{Name: "clusterm_http_streams", Type: Gauge, Meaning: "logs that are being read"},
			{Name: "clusterm_http_watches", Type: Gauge, Meaning: "watches that are open (`/v1/watch`)"},
			{
				Name:    "clusterm_http_watches_dropped_total",
				Type:    Counter,
				Meaning: "watches that were ended because they were read too slowly",
			},
		},
	},
	{
		"Nodes",
		[]Metric{
			{
				Name:    "clusterm_nodes",
				Type:    Gauge,
				Labels:  []string{"status", "state"},
				Meaning: "nodes; every combination is there, 0 included",
			},
			{Name: "clusterm_nodes_with_error", Type: Gauge, Meaning: "nodes whose last verb failed (`last_error`)"},
			{
				Name:    "clusterm_nodes_with_residue",
				Type:    Gauge,
				Meaning: "nodes with configuration that could not be cleaned off (`residue`)",
			},
			{Name: "clusterm_nodes_duplicated", Type: Gauge, Meaning: "nodes whose identity several live hosts claim"},
		},
	},
	{
		"Jobs",
		[]Metric{
			{
				Name:    "clusterm_jobs",
				Type:    Gauge,
				Labels:  []string{"verb", "status"},
				Meaning: "jobs that are kept; every combination is there, 0 included",
			},
			{Name: "clusterm_queue_length", Type: Gauge, Meaning: "jobs that wait for their turn"},
			{
				Name:    "clusterm_queue_oldest_age_seconds",
				Type:    Gauge,
				Meaning: "since when the oldest of them waits; 0 where none does",
			},
			{
				Name:    "clusterm_jobs_ended_total",
				Type:    Counter,
				Labels:  []string{"verb", "cause"},
				Meaning: "jobs that this daemon ended; the cause is `done`, or the one that the job shows: `failed`, `cancelled`, `deadline`, `interrupted`, `precondition`, `absent`, `internal`",
			},
			{
				Name:    "clusterm_job_duration_seconds",
				Type:    Histogram,
				Labels:  []string{"verb", "status"},
				Buckets: []float64{1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200},
				Meaning: "from claim to end, of jobs that ran",
			},
		},
	},
	{
		"Runner",
		[]Metric{
			{
				Name:    "clusterm_runner_processes",
				Type:    Gauge,
				Meaning: "runs of ansible-playbook that this daemon attends to",
			},
			{
				Name:    "clusterm_runner_forks",
				Type:    Gauge,
				Meaning: "hosts that these may work on at a time (`jobs.forks`, or fewer where a run has fewer)",
			},
			{Name: "clusterm_runner_starts_total", Type: Counter, Meaning: "runs that were started"},
			{
				Name:    "clusterm_runner_adoptions_total",
				Type:    Counter,
				Meaning: "runs that an earlier daemon had started and this one went on with",
			},
			{
				Name:    "clusterm_runner_ends_total",
				Type:    Counter,
				Labels:  []string{"cause"},
				Meaning: "runs that ended; the cause is `done`, `failed`, `cancelled` (by a cancel, or by a signal to the runner), `deadline`, `interrupted` or `internal`",
			},
			{
				Name:    "clusterm_runner_cancellations_total",
				Type:    Counter,
				Meaning: "how often a runner was told to end its run",
			},
			{
				Name:    "clusterm_runner_output_bytes_total",
				Type:    Counter,
				Labels:  []string{"stream"},
				Meaning: "bytes taken from runs: `text`, and `events`",
			},
			{
				Name:    "clusterm_runner_output_lines_total",
				Type:    Counter,
				Labels:  []string{"stream"},
				Meaning: "the lines in them",
			},
			{
				Name:    "clusterm_runner_truncated_total",
				Type:    Counter,
				Labels:  []string{"stream"},
				Meaning: "runs whose output went over `jobs.output_limit`",
			},
		},
	},
	{
		"Gossip",
		[]Metric{
			{
				Name:    "clusterm_gossip_connected",
				Type:    Gauge,
				Meaning: "1 while the gossip is being listened to",
				Absent:  noGossip,
			},
			{
				Name:    "clusterm_gossip_members",
				Type:    Gauge,
				Labels:  []string{"status"},
				Meaning: "members, this one included: `alive`, `failed`, `left`",
				Absent:  noGossip,
			},
			{
				Name:    "clusterm_gossip_strangers",
				Type:    Gauge,
				Meaning: "members that are not nodes, or claim to be what no node can be",
				Absent:  noGossip,
			},
			{
				Name:    "clusterm_gossip_events_total",
				Type:    Counter,
				Meaning: "changes of members that were heard of",
				Absent:  noGossip,
			},
			{
				Name:    "clusterm_gossip_pending_nodes",
				Type:    Gauge,
				Meaning: "nodes with news that is not yet recorded",
				Absent:  noGossip,
			},
			{
				Name:    "clusterm_gossip_reports_total",
				Type:    Counter,
				Meaning: "reports that were recorded, full ones (one a minute) included",
				Absent:  noGossip,
			},
			{
				Name:    "clusterm_gossip_report_errors_total",
				Type:    Counter,
				Meaning: "reports that were not recorded; they are made again",
				Absent:  noGossip,
			},
			{
				Name:    "clusterm_gossip_queue_depth",
				Type:    Gauge,
				Labels:  []string{"queue"},
				Meaning: "messages that wait to be passed on: `intent`, `event`, `query`",
				Absent:  noGossip,
			},
			{
				Name:    "clusterm_gossip_health_score",
				Type:    Gauge,
				Meaning: "0 is best; above that, this host answers its peers late",
				Absent:  noGossip,
			},
		},
	},
	{
		"Store",
		[]Metric{
			{
				Name:    "clusterm_etcd_up",
				Type:    Gauge,
				Labels:  []string{"endpoint"},
				Meaning: "1 where the endpoint answers",
			},
			{
				Name:    "clusterm_etcd_db_size_bytes",
				Type:    Gauge,
				Labels:  []string{"endpoint"},
				Meaning: "the size of its database file",
				Absent:  "while it does not answer",
			},
			{
				Name:    "clusterm_etcd_db_in_use_bytes",
				Type:    Gauge,
				Labels:  []string{"endpoint"},
				Meaning: "of that, what holds data",
				Absent:  "while it does not answer",
			},
			{
				Name:    "clusterm_etcd_db_quota_bytes",
				Type:    Gauge,
				Labels:  []string{"endpoint"},
				Meaning: "the size at which it refuses to write",
				Absent:  "while it does not answer, and of an etcd before 3.6",
			},
			{
				Name:    "clusterm_etcd_restarts_total",
				Type:    Counter,
				Meaning: "how often the embedded etcd exited and was restarted",
				Absent:  "with an etcd of your own",
			},
			{
				Name:    "clusterm_etcd_round_trip_seconds",
				Type:    Histogram,
				Buckets: exponential(0.0005, 4, 7),
				Meaning: "how long it takes to ask the store, by quorum, how far it is; asked once a second",
			},
			{
				Name:    "clusterm_etcd_unanswered_total",
				Type:    Counter,
				Meaning: "how often that was not answered within a second",
			},
			{
				Name:    "clusterm_view_revision",
				Type:    Gauge,
				Meaning: "the revision of the store that reads are answered from",
			},
			{
				Name:    "clusterm_view_staleness_seconds",
				Type:    Gauge,
				Meaning: "since when the store has not said that this view is up to date",
			},
			{
				Name:    "clusterm_view_stale",
				Type:    Gauge,
				Meaning: "1 from 3 seconds of that on: answers are marked stale, and nothing is changed",
			},
		},
	},
}

// exponential are n upper bounds, each factor times the one before.
func exponential(first, factor float64, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = first
		first *= factor
	}

	return out
}

// Lookup returns the row of that name.
func Lookup(name string) (Metric, bool) {
	for _, room := range Table {
		for _, m := range room.Metrics {
			if m.Name == name {
				return m, true
			}
		}
	}

	return Metric{}, false
}
