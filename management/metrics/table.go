// SPDX-License-Identifier: Apache-2.0

// Package metrics is the table of all metrics under clusterm_ at /metrics, and
// the instruments for them. Callers request an instrument by name; a name, type
// or label outside the table is a bug and panics. Tests compare the
// documentation, the Grafana board and the alert rules with the table.
package metrics

// Type is the type of a metric in Prometheus.
type Type string

// The types.
const (
	Counter   Type = "counter"   // only grows, from 0 at the start of the daemon
	Gauge     Type = "gauge"     // goes up and down
	Histogram Type = "histogram" // counts of observations by size
)

// Metric is one row of the table.
type Metric struct {
	Name    string
	Type    Type
	Labels  []string
	Buckets []float64 // of a Histogram, upper bounds in its unit
	Meaning string    // the help text, with the unit
	// Absent is the condition for a missing metric; empty for one that is always
	// present.
	Absent string
}

// Room is a group of metrics with a common source.
type Room struct {
	Title   string
	Metrics []Metric
}

const noGossip = "with `gossip: off`"

// Table lists all metrics by room.
var Table = []Room{
	{
		"The daemon",
		[]Metric{
			{
				Name:    "clusterm_build_info",
				Type:    Gauge,
				Labels:  []string{"version", "commit", "go"},
				Meaning: "always 1; the labels identify the build",
			},
		},
	},
	{
		"Loops",
		[]Metric{
			{
				Name:    "clusterm_loop_on_duty",
				Type:    Gauge,
				Labels:  []string{"loop"},
				Meaning: "1 while this instance runs the loop; some are for the leader only",
			},
			{
				Name:    "clusterm_loop_failing",
				Type:    Gauge,
				Labels:  []string{"loop"},
				Meaning: "1 if the newest round of the loop failed; the log has the reason",
			},
			{
				Name:    "clusterm_loop_rounds_total",
				Type:    Counter,
				Labels:  []string{"loop"},
				Meaning: "rounds of the loop, in each of which it decides what to do",
			},
			{
				Name:    "clusterm_loop_failures_total",
				Type:    Counter,
				Labels:  []string{"loop"},
				Meaning: "rounds of the loop, and attempts to carry out what it decided, that failed",
			},
		},
	},
	{
		"TLS",
		[]Metric{
			{
				Name:    "clusterm_certificate_expiry_timestamp_seconds",
				Type:    Gauge,
				Labels:  []string{"certificate"},
				Meaning: "the end of a certificate in Unix time; certificate is server or ca",
				Absent:  "without `listen`",
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
				Meaning: "answered requests, by route template and HTTP status",
				Absent:  "before the first request",
			},
			{
				Name:    "clusterm_http_request_duration_seconds",
				Type:    Histogram,
				Labels:  []string{"method", "route", "code"},
				Buckets: exponential(0.001, 4, 8),
				Meaning: "duration of requests in seconds, without streams and long polls",
				Absent:  "before the first request",
			},
			{
				Name:    "clusterm_http_requests_in_flight",
				Type:    Gauge,
				Meaning: "requests in progress, streams included",
			},
			{Name: "clusterm_http_streams", Type: Gauge, Meaning: "open log streams"},
			{Name: "clusterm_http_watches", Type: Gauge, Meaning: "open watches (`/v1/watch`)"},
			{
				Name:    "clusterm_http_watches_dropped_total",
				Type:    Counter,
				Meaning: "watches closed because the client was too slow",
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
				Meaning: "nodes, by lifecycle status and monitor state; every combination is present, 0 included",
			},
			{Name: "clusterm_nodes_with_error", Type: Gauge, Meaning: "nodes with a failed last verb (`last_error`)"},
			{
				Name:    "clusterm_nodes_with_residue",
				Type:    Gauge,
				Meaning: "nodes with configuration that no cleanup has removed yet (`residue`)",
			},
			{
				Name:    "clusterm_nodes_outdated",
				Type:    Gauge,
				Meaning: "nodes that would be configured with something else now than what was applied to them",
			},
			{
				Name:    "clusterm_nodes_configuration_unknown",
				Type:    Gauge,
				Meaning: "nodes in `Allocated` of which it is not known whether they are outdated",
			},
			{Name: "clusterm_nodes_duplicated", Type: Gauge, Meaning: "nodes with several live hosts of one identity"},
			{
				Name: "clusterm_lifecycle_violations_total",
				Type: Counter,
				Meaning: "changes of the status of nodes, by any instance, that the lifecycle table does not have; " +
					"it has to be 0",
			},
		},
	},
	{
		"Jobs",
		[]Metric{
			{
				Name:    "clusterm_jobs",
				Type:    Gauge,
				Labels:  []string{"verb", "status"},
				Meaning: "stored jobs; every combination is present, 0 included",
			},
			{Name: "clusterm_queue_length", Type: Gauge, Meaning: "queued jobs"},
			{
				Name:    "clusterm_queue_oldest_age_seconds",
				Type:    Gauge,
				Meaning: "age of the oldest queued job in seconds; 0 without one",
			},
			{
				Name:   "clusterm_jobs_ended_total",
				Type:   Counter,
				Labels: []string{"verb", "cause"},
				Meaning: "jobs ended by this daemon; the cause is `done` or the cause of the failure: `failed`, " +
					"`cancelled`, `deadline`, `interrupted`, `precondition`, `absent`, `internal`",
			},
			{
				Name:    "clusterm_job_duration_seconds",
				Type:    Histogram,
				Labels:  []string{"verb", "status"},
				Buckets: []float64{1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200},
				Meaning: "duration of jobs from start to end, in seconds",
			},
		},
	},
	{
		"Policies",
		[]Metric{
			{
				Name:   "clusterm_policy_decisions_total",
				Type:   Counter,
				Labels: []string{"policy", "action"},
				Meaning: "decisions that this daemon took by itself, by policy and action: `verify`, `repair`, " +
					"`record`, " +
					"`quarantine`, `commission`, `stop`, `yield`, and `brake` and `release` of the brake",
			},
			{
				Name:    "clusterm_policy_brake",
				Type:    Gauge,
				Meaning: "1 while the brake holds automation, because many nodes vanished at once; else 0",
			},
			{
				Name:    "clusterm_policy_pending_nodes",
				Type:    Gauge,
				Meaning: "nodes that disappeared and appeared again, and that no policy has decided on",
			},
		},
	},
	{
		"Verification, rollouts and notifications",
		[]Metric{
			{
				Name:   "clusterm_nodes_verification",
				Type:   Gauge,
				Labels: []string{"result"},
				Meaning: "nodes in `Allocated` by the result of their last verification: `clean`, `drifted`, " +
					"`unknown`, and `none` without one",
			},
			{
				Name:    "clusterm_rollouts",
				Type:    Gauge,
				Labels:  []string{"status"},
				Meaning: "stored rollouts by status; every status is present, 0 included",
			},
			{
				Name:    "clusterm_notification_deliveries",
				Type:    Gauge,
				Labels:  []string{"status"},
				Meaning: "kept deliveries to all targets by status: `pending`, `delivered`, `dead`",
			},
		},
	},
	{
		"Runner",
		[]Metric{
			{
				Name:    "clusterm_runner_processes",
				Type:    Gauge,
				Meaning: "runs of ansible-playbook under supervision of this daemon",
			},
			{
				Name: "clusterm_runner_forks",
				Type: Gauge,
				Meaning: "maximum number of hosts that these runs configure in parallel " +
					"(`jobs.forks`, or the size of a smaller run)",
			},
			{Name: "clusterm_runner_starts_total", Type: Counter, Meaning: "started runs"},
			{
				Name:    "clusterm_runner_adoptions_total",
				Type:    Counter,
				Meaning: "runs adopted from an earlier daemon process",
			},
			{
				Name:   "clusterm_runner_ends_total",
				Type:   Counter,
				Labels: []string{"cause"},
				Meaning: "ended runs; the cause is `done`, `failed`, `cancelled` (by a cancel, or by a signal " +
					"to the runner), `deadline`, `interrupted` or `internal`",
			},
			{
				Name:    "clusterm_runner_cancellations_total",
				Type:    Counter,
				Meaning: "cancel signals sent to runs",
			},
			{
				Name:    "clusterm_runner_output_bytes_total",
				Type:    Counter,
				Labels:  []string{"stream"},
				Meaning: "output of runs in bytes, by stream: `text` or `events`",
			},
			{
				Name:    "clusterm_runner_output_lines_total",
				Type:    Counter,
				Labels:  []string{"stream"},
				Meaning: "output of runs in lines, by stream: `text` or `events`",
			},
			{
				Name:    "clusterm_runner_truncated_total",
				Type:    Counter,
				Labels:  []string{"stream"},
				Meaning: "runs with output beyond `jobs.output_limit`",
			},
		},
	},
	{
		"Gossip",
		[]Metric{
			{
				Name:    "clusterm_gossip_connected",
				Type:    Gauge,
				Meaning: "1 while connected to the gossip, else 0",
				Absent:  noGossip,
			},
			{
				Name:    "clusterm_gossip_members",
				Type:    Gauge,
				Labels:  []string{"status"},
				Meaning: "members by status, this host included: `alive`, `failed`, `left`",
				Absent:  noGossip,
			},
			{
				Name:    "clusterm_gossip_strangers",
				Type:    Gauge,
				Meaning: "members without a valid node identity",
				Absent:  noGossip,
			},
			{
				Name:    "clusterm_gossip_events_total",
				Type:    Counter,
				Meaning: "received membership changes",
				Absent:  noGossip,
			},
			{
				Name:    "clusterm_gossip_pending_nodes",
				Type:    Gauge,
				Meaning: "nodes with observations that are not yet recorded",
				Absent:  noGossip,
			},
			{
				Name:    "clusterm_gossip_reports_total",
				Type:    Counter,
				Meaning: "recorded reports, including the full report every minute",
				Absent:  noGossip,
			},
			{
				Name:    "clusterm_gossip_report_errors_total",
				Type:    Counter,
				Meaning: "failed attempts to record a report; each is retried",
				Absent:  noGossip,
			},
			{
				Name:    "clusterm_gossip_queue_depth",
				Type:    Gauge,
				Labels:  []string{"queue"},
				Meaning: "queued messages by queue: `intent`, `event`, `query`",
				Absent:  noGossip,
			},
			{
				Name:    "clusterm_gossip_health_score",
				Type:    Gauge,
				Meaning: "gossip health score of this host; 0 is healthy, higher means late answers to peers",
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
				Meaning: "1 if the endpoint responds, else 0",
			},
			{
				Name:    "clusterm_etcd_db_size_bytes",
				Type:    Gauge,
				Labels:  []string{"endpoint"},
				Meaning: "size of the database file in bytes",
				Absent:  "while the endpoint does not respond",
			},
			{
				Name:    "clusterm_etcd_db_in_use_bytes",
				Type:    Gauge,
				Labels:  []string{"endpoint"},
				Meaning: "part of the database file with data, in bytes",
				Absent:  "while the endpoint does not respond",
			},
			{
				Name:    "clusterm_etcd_db_quota_bytes",
				Type:    Gauge,
				Labels:  []string{"endpoint"},
				Meaning: "size in bytes at which etcd refuses writes",
				Absent:  "while the endpoint does not respond, and before etcd 3.6",
			},
			{
				Name:    "clusterm_etcd_alarm",
				Type:    Gauge,
				Labels:  []string{"endpoint", "alarm"},
				Meaning: "1 if etcd refuses changes because of this alarm, `NOSPACE` or `CORRUPT`, else 0",
				Absent:  "while the endpoint does not respond",
			},
			{
				Name:    "clusterm_etcd_upkeep_total",
				Type:    Counter,
				Labels:  []string{"action"},
				Meaning: "upkeep of the embedded etcd's database: `compact` before its time, `defragment`, `disarm`",
			},
			{
				Name:    "clusterm_etcd_restarts_total",
				Type:    Counter,
				Meaning: "restarts of the embedded etcd after it exited",
				Absent:  "with an external etcd",
			},
			{
				Name:    "clusterm_etcd_round_trip_seconds",
				Type:    Histogram,
				Buckets: exponential(0.0005, 4, 7),
				Meaning: "duration of a quorum read of the store's revision in seconds; measured every second",
			},
			{
				Name:    "clusterm_etcd_unanswered_total",
				Type:    Counter,
				Meaning: "quorum reads without an answer within a second",
			},
			{
				Name:   "clusterm_store_conflicts_total",
				Type:   Counter,
				Labels: []string{"kind"},
				Meaning: "changes that were decided again because a record of this kind had changed meanwhile; each " +
					"instance counts its own, and every kind of record is present, 0 included",
			},
			{
				Name:    "clusterm_view_revision",
				Type:    Gauge,
				Meaning: "the store's revision that reads show",
			},
			{
				Name:    "clusterm_view_staleness_seconds",
				Type:    Gauge,
				Meaning: "time in seconds since the store last confirmed that the view is up to date",
			},
			{
				Name:    "clusterm_view_stale",
				Type:    Gauge,
				Meaning: "1 if the view is over 3 seconds stale: answers are marked stale, and changes are refused",
			},
		},
	},
	{
		"The ssh key",
		[]Metric{
			{
				Name:    "clusterm_ssh_key_laggards",
				Type:    Gauge,
				Meaning: "nodes that a rotation of the manager's ssh key waits for; 0 without one",
			},
		},
	},
}

// exponential returns n bucket bounds, each factor times the previous one.
func exponential(first, factor float64, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = first
		first *= factor
	}

	return out
}

// Lookup returns the row of a metric.
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
