// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/job/jobtest"
	"github.com/contiv/cluster/management/state"
)

// TestWait: a job says what it waits for, since when, until when at the latest, and where that comes from.
func TestWait(t *testing.T) {
	t.Parallel()

	noon := jobtest.Noon
	running := func() job.Job {
		j := jobtest.Planned(inventory.VerbApply, "", "a-1 Allocated service-master")
		j.Started, j.Deadline, j.Timeout, j.TimeoutFrom = noon, noon.Add(time.Hour), time.Hour, job.TimeoutUsual
		j.Runs = []job.Run{{
			Phase: job.PhaseApply, Playbook: job.PlaybookSite, Hosts: []string{"a-1"}, Started: noon.Add(time.Minute),
		}}

		return j
	}

	for name, c := range map[string]struct {
		status job.Status
		job    func() job.Job
		ahead  job.Status // of a job before it, with the same node; empty: there is none
		want   string
		until  time.Time
	}{
		"it runs": {status: job.Running, job: running, until: noon.Add(time.Hour),
			want: "apply (site.yml) of a-1; 1m; 1h after its start, from jobs.timeout"},
		"its cleanup runs": {status: job.Running, until: noon.Add(6 * time.Minute), job: func() job.Job {
			j := running()
			j.Timeout = 5 * time.Minute
			j.Runs[0].Phase, j.Runs[0].Playbook = job.PhaseUndo, job.PlaybookCleanup

			return j
		}, want: "undo (cleanup.yml) of a-1; 1m; 5m after the start of the cleanup, from jobs.timeout"},
		"its instance is gone": {status: job.Running, until: noon.Add(time.Hour), job: func() job.Job {
			j := running()
			j.Former = "m-1"

			return j
		}, want: "the end of what the instance m-1, which is gone, has started; 1m; 1h after its start, " +
			"from jobs.timeout; jobs.runner_lease ends the wait before"},
		"behind one that runs": {status: job.Queued, job: running, ahead: job.Running, until: noon.Add(2 * time.Hour),
			want: "a-1 needed by job 3; 0s; the deadline of job 3"},
		"behind one that waits": {status: job.Queued, job: running, ahead: job.Queued,
			want: "a-1 needed by job 3; 0s; "},
		"its turn has come": {status: job.Queued, job: running},
		"it is over":        {status: job.Complete, job: running},
	} {
		v := &state.View{Snapshot: *jobtest.Snapshot(t, "a m Allocated Discovered")}

		if c.ahead != "" {
			first := jobtest.Planned(inventory.VerbApply, "", "a-1 Allocated service-master")
			if first.Deadline = noon.Add(2 * time.Hour); c.ahead == job.Queued {
				first.Deadline = time.Time{}
			}
			put(v, first, "3", c.ahead)
		}

		j := c.job()
		j.Accepted = noon
		put(v, j, "5", c.status)
		stored, err := v.Job("5")
		if err != nil {
			t.Fatal(err)
		}

		w := ExplainJob(facts(v), stored).Wait

		if c.want == "" {
			if w != nil {
				t.Errorf("%s: %+v", name, w)
			}

			continue
		}

		if w == nil {
			t.Errorf("%s: no wait, want %s", name, c.want)
			continue
		}

		got := strings.Join([]string{w.For, inventory.ShortDuration(w.Since.Sub(noon)), w.Origin}, "; ")
		if got != c.want || !w.Until.Equal(c.until) {
			t.Errorf("%s: %s until %s, want %s until %s", name, got, w.Until, c.want, c.until)
		}

		// A node shows that of its job.
		n, err := v.Node("a-1")
		if err != nil {
			t.Fatal(err)
		}
		if e := ExplainNode(facts(v), n, nil); c.ahead == "" && (e.Wait == nil || e.Wait.For != w.For) {
			t.Errorf("%s: the node has %+v", name, e.Wait)
		}
	}
}

// TestTroublesFirst: what troubled the manager comes before any failure of a host.
func TestTroublesFirst(t *testing.T) {
	t.Parallel()

	v := &state.View{Snapshot: *jobtest.Snapshot(t, "a m Quarantined Discovered", "b m Quarantined Discovered")}
	j := failed("failed a-1=failed b-1=failed", inventory.Quarantined)
	put(v, j, "5", job.Errored)

	stored, err := v.Job("5")
	if err != nil {
		t.Fatal(err)
	}

	if first := ExplainJob(facts(v), stored).Findings[0]; first.About == AboutManager {
		t.Errorf("without troubles: %+v", first)
	}

	stored.Runs = append([]job.Run(nil), stored.Runs...)
	stored.Runs[0].Troubles = []string{"its store took 3s to answer", "its store was away for 12s"}

	const both = "took 3s to answer; its store was away for 12s"

	first := ExplainJob(facts(v), stored).Findings[0]
	if first.About != AboutManager || !strings.Contains(first.Message, both) {
		t.Errorf("the first finding: %+v", first)
	}
}
