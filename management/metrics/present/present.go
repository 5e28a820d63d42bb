// SPDX-License-Identifier: Apache-2.0

// Package present has the metrics of the present state: what each scrape reads from the view.
package present

import (
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
)

// Measure emits the metrics of the view. forks is the number of hosts of one job at a time.
func Measure(v *state.View, forks int, now time.Time, emit func(name string, value float64, labels ...string)) {
	nodeMetrics(v, emit)
	jobMetrics(v, forks, now, emit)
	policyMetrics(v, emit)
	dayTwoMetrics(v, emit)
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

	for _, n := range v.Nodes() {
		if n.State == inventory.Discovered && n.Presence.Pending() {
			pending++
		}
	}

	emit("clusterm_policy_pending_nodes", float64(pending))
	emit("clusterm_policy_brake", gaugeOf(state.AutomationOf(v).Brake.On))
}

func dayTwoMetrics(v *state.View, emit func(string, float64, ...string)) {
	verified := map[inventory.VerdictResult]int{}

	for _, n := range v.Nodes() {
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
	for _, n := range v.Nodes() {
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

func jobMetrics(v *state.View, limit int, now time.Time, emit func(string, float64, ...string)) {
	type kind struct {
		verb   inventory.Verb
		status job.Status
	}
	count := map[kind]int{}
	queued, forks := 0, 0

	oldest := now
	for _, j := range v.Jobs() {
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
