// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/api"
	store "github.com/contiv/cluster/management/etcd"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/metrics"
	"github.com/contiv/cluster/management/notify"
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
)

// etcdTimeout limits the wait of a scrape for an endpoint of the store.
const etcdTimeout = time.Second

// instruments count events as they happen. Metrics of the present state are read
// by each scrape instead; see snapshot.
type instruments struct {
	jobsEnded   *prometheus.CounterVec
	jobDuration *prometheus.HistogramVec

	decisions *prometheus.CounterVec

	roundTrip  prometheus.Observer
	unanswered prometheus.Counter
	upkeep     *prometheus.CounterVec
}

// succeeded is the cause label of a success.
const succeeded = job.ExitDone

var jobCauses = []string{
	succeeded,
	string(job.CauseFailed),
	string(job.CauseCancelled),
	string(job.CauseDeadline),
	string(job.CauseInterrupted),
	string(job.CausePrecondition),
	string(job.CauseAbsent),
	string(job.CauseInternal),
}

var jobStatuses = []job.Status{
	job.Queued,
	job.Running,
	job.Complete,
	job.Errored,
	job.Cancelled,
}

// jobVerbs returns the verbs of jobs.
func jobVerbs() []inventory.Verb {
	var verbs []inventory.Verb
	for _, t := range inventory.Lifecycle {
		verbs = append(verbs, t.Verb)
	}

	return verbs
}

func newInstruments(r metrics.Registry, v api.Version) *instruments {
	m := &instruments{
		jobsEnded: r.Counter("clusterm_jobs_ended_total"), jobDuration: r.Histogram("clusterm_job_duration_seconds"),
		decisions:  r.Counter("clusterm_policy_decisions_total"),
		roundTrip:  r.Histogram("clusterm_etcd_round_trip_seconds").WithLabelValues(),
		unanswered: r.Counter("clusterm_etcd_unanswered_total").WithLabelValues(),
		upkeep:     r.Counter("clusterm_etcd_upkeep_total"),
	}
	r.Gauge("clusterm_build_info").WithLabelValues(v.Version, v.Commit, runtime.Version()).Set(1)

	// Create each series at 0: without a sample before it, the first event would
	// not be an increase.
	for _, action := range policy.Actions {
		m.decisions.WithLabelValues(action.Policy, string(action.Action))
	}

	for _, action := range etcd.UpkeepActions {
		m.upkeep.WithLabelValues(string(action))
	}

	for _, verb := range jobVerbs() {
		for _, cause := range jobCauses {
			m.jobsEnded.WithLabelValues(string(verb), cause)
		}

		for _, status := range []job.Status{job.Complete, job.Errored, job.Cancelled} {
			m.jobDuration.WithLabelValues(string(verb), string(status))
		}
	}

	return m
}

// roundTripEnded counts a round trip to the store.
func (m *instruments) roundTripEnded(took time.Duration, err error) {
	switch {
	case err == nil:
		m.roundTrip.Observe(took.Seconds())
	case !errors.Is(err, context.Canceled): // a stop of the daemon is no failure of the store
		m.unanswered.Inc()
	}
}

// upkeepDone counts an action of the upkeep.
func (m *instruments) upkeepDone(a etcd.UpkeepAction) { m.upkeep.WithLabelValues(string(a)).Inc() }

// countingStore counts the jobs that end.
type countingStore struct {
	*store.Store
	instruments *instruments
}

// Finish writes the end of a job and counts it.
func (s countingStore) Finish(ctx context.Context, j job.Job, writes []state.NodeWrite) (job.Job, error) {
	out, err := s.Store.Finish(ctx, j, writes)
	if err == nil {
		s.instruments.jobsEnded.WithLabelValues(string(out.Verb), cmp.Or(string(out.Cause), succeeded)).Inc()

		// A job that was cancelled in the queue has no duration.
		if !out.Started.IsZero() {
			s.instruments.jobDuration.WithLabelValues(string(out.Verb), string(out.Status)).
				Observe(out.Ended.Sub(out.Started).Seconds())
		}
	}

	return out, err
}

// snapshot emits the metrics of the present state.
func (d *Daemon) snapshot(emit func(name string, value float64, labels ...string)) {
	v := d.store.View()
	nodeMetrics(v, emit)

	counts := d.desired.Of(v).Count(v.Nodes)
	emit("clusterm_nodes_outdated", float64(counts.Outdated))
	emit("clusterm_nodes_configuration_unknown", float64(counts.Unknown))
	jobMetrics(v, d.settings.Current().Jobs.Forks, time.Now(), emit)
	policyMetrics(v, emit)
	dayTwoMetrics(v, d.notifier.Counts(), emit)
	emit("clusterm_view_revision", float64(v.Revision))
	emit("clusterm_view_staleness_seconds", d.store.Staleness().Seconds())
	emit("clusterm_view_stale", gaugeOf(v.Stale))
	emit("clusterm_ssh_key_laggards", float64(len(d.sshKey.Laggards())))
	d.etcdMetrics(emit)
	d.gossip.Measure(emit)

	if d.certificates != nil {
		server, ca := d.certificates.Expiry()
		emit("clusterm_certificate_expiry_timestamp_seconds", float64(server.Unix()), "server")
		emit("clusterm_certificate_expiry_timestamp_seconds", float64(ca.Unix()), "ca")
	}
}

// gaugeOf returns 1 for true and 0 for false.
func gaugeOf(b bool) float64 {
	if b {
		return 1
	}

	return 0
}

func policyMetrics(v *state.View, emit func(string, float64, ...string)) {
	pending := 0

	for _, n := range v.Nodes {
		if n.State == inventory.Discovered && n.Presence.Pending() {
			pending++
		}
	}

	emit("clusterm_policy_pending_nodes", float64(pending))
	emit("clusterm_policy_brake", gaugeOf(state.AutomationOf(v).Brake.On))
}

func dayTwoMetrics(v *state.View, deliveries map[notify.Status]int, emit func(string, float64, ...string)) {
	verified := map[inventory.VerdictResult]int{}

	for _, n := range v.Nodes {
		if n.Status != inventory.Allocated {
			continue
		}

		result := noVerdict
		if n.Verification != nil {
			result = n.Verification.Result
		}

		verified[result]++
	}

	for _, result := range []inventory.VerdictResult{
		inventory.Clean, inventory.Drifted, inventory.Unverified, noVerdict,
	} {
		emit("clusterm_nodes_verification", float64(verified[result]), string(result))
	}

	rollouts := map[rollout.Status]int{}
	for _, r := range record.All(v, &rollout.Kind) {
		rollouts[r.Status]++
	}

	for _, status := range rollout.Statuses {
		emit("clusterm_rollouts", float64(rollouts[status]), string(status))
	}

	for _, status := range []notify.Status{notify.Pending, notify.Delivered, notify.Dead} {
		emit("clusterm_notification_deliveries", float64(deliveries[status]), string(status))
	}
}

// noVerdict is the label of nodes without a verification.
const noVerdict inventory.VerdictResult = "none"

func nodeMetrics(v *state.View, emit func(string, float64, ...string)) {
	type kind struct {
		status inventory.Status
		state  inventory.State
	}
	count := map[kind]int{}

	var failed, residue, duplicated int
	for _, n := range v.Nodes {
		count[kind{n.Status, n.State}]++
		if n.LastError != "" {
			failed++
		}

		if len(n.Residue) > 0 {
			residue++
		}

		if len(n.Duplicates) > 0 {
			duplicated++
		}
	}

	for _, status := range inventory.Statuses {
		for _, state := range inventory.States {
			n := count[kind{status.Status, state.State}]
			emit("clusterm_nodes", float64(n), string(status.Status), string(state.State))
		}
	}

	emit("clusterm_nodes_with_error", float64(failed))
	emit("clusterm_nodes_with_residue", float64(residue))
	emit("clusterm_nodes_duplicated", float64(duplicated))
}

func jobMetrics(v *state.View, limit int, now time.Time, emit func(string, float64, ...string)) {
	type kind struct {
		verb   inventory.Verb
		status job.Status
	}
	count := map[kind]int{}
	queued, forks := 0, 0

	oldest := now
	for _, j := range v.Jobs {
		count[kind{j.Verb, j.Status}]++
		switch j.Status {
		case job.Queued:
			queued++

			if j.Accepted.Before(oldest) {
				oldest = j.Accepted
			}
		case job.Running:
			if n := len(j.Runs); n > 0 && j.Runs[n-1].Exit == "" && j.Runs[n-1].Playbook != "" {
				forks += min(limit, len(j.Runs[n-1].Hosts))
			}
		}
	}

	for _, verb := range jobVerbs() {
		for _, status := range jobStatuses {
			emit("clusterm_jobs", float64(count[kind{verb, status}]), string(verb), string(status))
		}
	}

	emit("clusterm_queue_length", float64(queued))
	emit("clusterm_queue_oldest_age_seconds", now.Sub(oldest).Seconds())
	emit("clusterm_runner_forks", float64(forks))
}

func (d *Daemon) etcdMetrics(emit func(string, float64, ...string)) {
	ctx, cancel := context.WithTimeout(context.Background(), etcdTimeout)
	defer cancel()

	for _, s := range d.etcd.Spaces(ctx) {
		endpoint := s.Endpoint
		emit("clusterm_etcd_up", gaugeOf(s.Err == nil), endpoint)

		// Without an answer there is no size to emit; clusterm_etcd_up is 0.
		if s.Err != nil {
			continue
		}

		emit("clusterm_etcd_db_size_bytes", float64(s.File), endpoint)
		emit("clusterm_etcd_db_in_use_bytes", float64(s.InUse), endpoint)

		if s.Quota > 0 {
			emit("clusterm_etcd_db_quota_bytes", float64(s.Quota), endpoint)
		}

		for _, alarm := range etcd.Alarms {
			emit("clusterm_etcd_alarm", gaugeOf(s.Raised(alarm)), endpoint, string(alarm))
		}
	}

	if d.embedded != nil {
		emit("clusterm_etcd_restarts_total", float64(d.embedded.Restarts()))
	}
}
