// SPDX-License-Identifier: Apache-2.0

package present

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/job/jobtest"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
)

func TestJobMetrics(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	running := func(id string, hosts int, exit string) job.Job {
		return job.Job{ID: id, Verb: inventory.VerbUpdate, Status: job.Running,
			Runs: []job.Run{{Playbook: "site.yml", Hosts: make([]string, hosts), Exit: exit}}}
	}
	v := &state.View{}
	v.SetJobs(jobtest.List(
		job.Job{ID: "1", Verb: inventory.VerbCommission, Status: job.Queued, Accepted: now.Add(-time.Minute)},
		job.Job{ID: "2", Verb: inventory.VerbCommission, Status: job.Queued, Accepted: now.Add(-time.Hour)},
		running("3", 80, ""), running("4", 3, ""), running("5", 7, "done"),
	)...)
	got := map[string]float64{}
	jobMetrics(v, 50, now, func(name string, value float64, labels ...string) { got[fmt.Sprint(name, labels)] = value })

	for name, want := range map[string]float64{
		"clusterm_queue_length[]": 2, "clusterm_queue_oldest_age_seconds[]": 3600, "clusterm_runner_forks[]": 53,
		"clusterm_jobs[commission Queued]": 2, "clusterm_jobs[update Running]": 3, "clusterm_jobs[clear Errored]": 0,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v, want %v", name, v, want)
		}
	}
}

// TestDayTwoMetrics counts verdicts of nodes in service, and rollouts.
func TestDayTwoMetrics(t *testing.T) {
	t.Parallel()

	v := &state.View{Snapshot: *jobtest.Snapshot(t,
		"a m Allocated Discovered", "b m Allocated Discovered", "c - Unallocated Discovered")}
	v.Nodes()[0].Verification = &inventory.Verdict{Result: inventory.Drifted}
	v.Nodes()[2].Verification = &inventory.Verdict{Result: inventory.Clean}
	v.View = record.WithList(v.View, &rollout.Kind, &rollout.Record{ID: "r1", Status: rollout.Running},
		&rollout.Record{ID: "r2", Status: rollout.Done}, &rollout.Record{ID: "r3", Status: rollout.Done})

	got := map[string]float64{}
	dayTwoMetrics(v, func(name string, value float64, labels ...string) {
		if value != 0 {
			got[name+" "+strings.Join(labels, " ")] = value
		}
	})

	want := map[string]float64{
		"clusterm_nodes_verification drifted": 1, "clusterm_nodes_verification none": 1,
		"clusterm_rollouts Running": 1, "clusterm_rollouts Done": 2,
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
