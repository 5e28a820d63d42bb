// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/machine"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/job/jobtest"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// facts are those of a view, an hour and ten minutes after jobtest.Noon.
func facts(v *state.View) Facts {
	return Facts{View: v, Groups: inventory.DefaultGroups(), JobLimit: 2, Now: jobtest.Noon.Add(10 * time.Minute)}
}

// put adds a job to the view under its own number, and lets it hold what it runs on.
func put(v *state.View, j job.Job, id string, status job.Status) {
	j.ID, j.Status = id, status
	v.PutJob(&j)

	jobtest.SetNewest(&v.Snapshot, max(v.Newest(), j.Seq()))
	for i := range v.Nodes() {
		if _, ok := j.Target(v.Nodes()[i].Name); ok && status == job.Running {
			v.Nodes()[i].Job, v.Nodes()[i].Verb = id, j.Verb
		}
	}
}

// failed is a commission of a and b that failed on a, and was undone.
func failed(undo string, outcome inventory.Status) job.Job {
	j := jobtest.Planned(inventory.VerbCommission, inventory.GroupMaster, "a-1 Unallocated -", "b-1 Unallocated -")
	jobtest.Record(
		&j,
		job.Step{Phase: job.PhaseConfigure, Playbook: job.PlaybookSite, Hosts: j.Names(), Groups: []string{"m", "m"}},
		"failed a-1=failed b-1=done",
	)
	j.Runs[0].Results["a-1"] = job.HostResult{
		Begun:   true,
		Failed:  1,
		Task:    "etcd : install",
		Message: "no space left\non /dev/sda1",
	}
	jobtest.Record(&j, job.Step{
		Phase: job.PhaseUndo, Playbook: job.PlaybookCleanup, Hosts: j.Names(), Groups: []string{"m", "m"},
	}, undo)
	j.Cause, j.Message, j.Ended = job.CauseFailed, "site.yml failed on a-1", jobtest.Noon.Add(5*time.Minute)
	j.Outcomes = map[string]inventory.Outcome{
		"a-1": {Status: outcome, Error: "task \"etcd : install\": no space left"},
		"b-1": {Status: outcome, Error: "site.yml failed on a-1"},
	}

	return j
}

// undiscovered is a discover of one address, with its result.
func undiscovered(addr string, r job.HostResult) job.Job {
	j := job.Job{Verb: inventory.VerbDiscover, Cause: job.CauseFailed, Message: "it failed", Targets: []job.Target{
		{Name: addr, Addr: addr, Group: inventory.GroupPrepare},
	}}
	j.Runs = []job.Run{{
		Phase: job.PhaseProbe, Kind: job.StepProbe, Hosts: []string{addr}, Exit: "failed",
		Results: map[string]job.HostResult{addr: r},
	}}

	return j
}

// untouched is a job of which no play of the cleanup acted on a; b was cleaned.
func untouched(verb inventory.Verb) job.Job {
	j := jobtest.Planned(verb, inventory.GroupMaster, "a-1 Allocated service-master", "b-1 Allocated service-master")
	jobtest.Record(&j, job.Step{
		Phase: job.PhaseUndo, Playbook: job.PlaybookCleanup, Hosts: j.Names(), Groups: []string{"m", "m"},
	}, "failed b-1=done")
	j.Runs[0].Results["a-1"] = job.HostResult{Message: "no play of cleanup.yml acted on it"}
	j.Outcomes = map[string]inventory.Outcome{
		"a-1": {Status: inventory.Decommissioned, Error: "its cleanup did nothing"},
		"b-1": {Status: inventory.Decommissioned},
	}

	return j
}

// uncleaned is a job of which a task of the cleanup failed on a; b was cleaned.
func uncleaned(verb inventory.Verb) job.Job {
	j := untouched(verb)
	j.Runs[0].Results["a-1"] = job.HostResult{Begun: true, Failed: 1, Task: "Stop it", Message: "no such service"}
	return j
}

func TestExplainNode(t *testing.T) {
	t.Parallel()
	running := jobtest.Planned(inventory.VerbCommission, inventory.GroupMaster, "a-1 Unallocated -")

	running.Runs = []job.Run{
		{Phase: job.PhaseConfigure, Playbook: job.PlaybookSite, Hosts: []string{"a-1"}, Started: jobtest.Noon},
	}
	for _, c := range []struct {
		name    string
		nodes   []string
		set     func(v *state.View, a *inventory.Node) // a is the node that is explained
		history []inventory.HistoryEntry
		ready   bool
		about   string   // of the findings, in order
		summary string   // a part of it
		has     []string // parts of findings, remedies, failures, next
	}{
		{name: "in service", nodes: []string{"a m Allocated Discovered"}, ready: true,
			summary: "it is in service; not verified since it was last configured",
			set:     func(_ *state.View, a *inventory.Node) { a.Applied = "1" }, has: []string{
				"nothing, until an operator",
			}},
		{name: "nobody asked", nodes: []string{"a - Unallocated Discovered"}, about: "idle",
			summary: "it is not commissioned",
			has:     []string{"submit verb=commission nodes=a-1"}},
		{name: "taken out", nodes: []string{"a - Decommissioned Discovered"}, about: "idle residue",
			summary: "it was taken out of service by anna",
			set:     func(_ *state.View, a *inventory.Node) { a.Residue = []string{"service-worker"} },
			history: []inventory.HistoryEntry{
				{
					Verb: inventory.VerbDecommission, From: inventory.Decommissioning, To: inventory.Decommissioned,
					Actor: "anna", Time: jobtest.Noon,
				},
				{
					Verb: inventory.VerbDiscovered, From: inventory.Decommissioned, To: inventory.Decommissioned,
					Time: jobtest.Noon.Add(time.Minute),
				},
			},
			has: []string{
				"taken out of service by anna on 2026-01-02T12:00:00Z", "submit verb=decommission nodes=a-1",
			}},
		{name: "observers disagree", nodes: []string{"a m Allocated Discovered"}, ready: true, about: "observers",
			summary: "it is in service",
			set: func(_ *state.View, a *inventory.Node) {
				a.Applied, a.Seen = "1", map[string]bool{"gossip": false, "rack1": true}
			},
			has: []string{"gossip lost it, and rack1 still sees it", "check the network between both"}},
		{name: "silent monitor", nodes: []string{"a m Allocated Disappeared"}, about: "state",
			summary: "it is Disappeared: the monitor rack1 has been silent for 5m",
			set:     func(_ *state.View, a *inventory.Node) { a.Applied, a.Seen = "1", nil },
			history: []inventory.HistoryEntry{{
				Verb: inventory.VerbDisappeared, From: inventory.Allocated, To: inventory.Allocated,
				Reason: "the monitor rack1 has been silent for 5m", Time: jobtest.Noon,
			}}},
		{name: "gone", nodes: []string{"a m Allocated Disappeared"}, about: "state",
			summary: "it is Disappeared: gossip, post lost it since 2026-01-02T12:01:00Z",
			set: func(_ *state.View, a *inventory.Node) {
				a.Applied, a.Seen = "1", map[string]bool{"post": false, "gossip": false}
			},
			history: []inventory.HistoryEntry{
				{
					Verb: inventory.VerbDisappeared, From: inventory.Allocated, To: inventory.Allocated,
					Time: jobtest.Noon.Add(time.Minute),
				},
			},
			has: []string{"submit verb=discover addrs=10.0.0.1", "Discovered again as soon as"}},
		{
			name: "never seen", nodes: []string{"a - Unallocated Unknown"}, about: "state idle",
			summary: "no observer has reported it yet",
		},
		{
			name: "registered without an address", nodes: []string{"a - Enrolled Unknown"}, about: "idle state",
			summary: "it is registered, and its credentials are not verified yet",
			set:     func(_ *state.View, a *inventory.Node) { a.Addr = "" },
			has: []string{
				"submit verb=manage nodes=a-1", "no address of it is known", "at which ssh reaches it",
			},
		},
		{
			name: "credentials that do not work", nodes: []string{"a - Enrolled Unknown"}, about: "failure state",
			summary: "the last verb failed: the BMC refused the login",
			set:     func(_ *state.View, a *inventory.Node) { a.LastError = "the BMC refused the login" },
			has:     []string{"submit verb=manage nodes=a-1", "check the credentials again"},
		},
		{
			name: "manageable", nodes: []string{"a - Manageable Unknown"}, about: "idle",
			summary: "its credentials work, and its hardware was not inspected yet",
			has:     []string{"submit verb=inspect nodes=a-1"},
		},
		{
			name: "inspected", nodes: []string{"a - Manageable Unknown"}, about: "idle identity",
			summary: "its credentials work, and it is not offered for use yet",
			set: func(_ *state.View, a *inventory.Node) {
				a.Hardware = &inventory.Hardware{
					Inspection: 1, Serial: "B5THMY2", UUID: "00000000-0000-0000-0000-000000000000", BMC: "10.9.0.5",
					MACs: []string{"52:54:00:aa:00:01", "52:54:00:aa:00:02"},
				}
			},
			has: []string{
				"submit verb=provide nodes=a-1",
				"it is known by its agent a-1 (60), serial number B5THMY2 (40), BMC 10.9.0.5 (40), " +
					"MAC 52:54:00:aa:00:01, 52:54:00:aa:00:02 (40), address 10.0.0.1 (20)",
			},
		},
		{name: "claimed twice", nodes: []string{"a m Allocated Discovered"}, about: "duplicates",
			summary: "10.0.0.1, 10.0.0.9 (gossip sees it at 10.0.0.1, m2 sees it at 10.0.0.9)",
			set: func(_ *state.View, a *inventory.Node) {
				a.Applied, a.Duplicates = "1", []string{"10.0.0.9"}
				a.Sightings = map[string]inventory.Sighting{
					"gossip": {Addr: "10.0.0.1", Since: jobtest.Noon},
					"m2":     {Addr: "10.0.0.9", Since: jobtest.Noon.Add(time.Minute)},
				}
			}, has: []string{"serial number of its own", "since 2026-01-02 12:01:00"}},
		{name: "fenced by a tombstone", nodes: []string{"a - Quarantined Discovered"}, about: "quarantine tombstone",
			summary: "fenced until an operator clears it: it was forgotten",
			set: func(v *state.View, a *inventory.Node) {
				a.LastError = "it was forgotten and is seen again"
				v.View = record.With(v.View, &state.Tombstones, map[string]*inventory.Tombstone{
					"a-1": {Time: jobtest.Noon, Actor: "anna", Reason: "sold"},
				})
			}, has: []string{"forgotten on 2026-01-02T12:00:00Z by anna: sold", "submit verb=clear nodes=a-1"}},
		{name: "failed and fenced", nodes: []string{"a m Quarantined Discovered", "b - Unallocated Discovered"},
			about: "quarantine", summary: "no space left",
			set: func(v *state.View, a *inventory.Node) {
				put(v, failed("failed a-1=failed b-1=done", inventory.Quarantined), "5", job.Errored)
				a.LastError = "task \"etcd : install\": no space left"
			}, has: []string{"on /dev/sda1", "undo", "submit verb=clear nodes=a-1"}},
		{name: "failed and cleaned", nodes: []string{"a - Unallocated Discovered", "b - Unallocated Discovered"},
			about: "failure idle", summary: "the last verb failed: task",
			set: func(v *state.View, a *inventory.Node) {
				put(v, failed("done", inventory.Unallocated), "5", job.Errored)
				a.LastError = "task \"etcd : install\": no space left"
			}, has: []string{"on /dev/sda1", "explain-job job=5", "retry-job job=5"}},
		{name: "fenced, and no play of its cleanup is for it",
			nodes: []string{"a m Quarantined Discovered", "b m Quarantined Discovered"}, about: "quarantine",
			summary: "it is fenced",
			set: func(v *state.View, a *inventory.Node) {
				put(v, untouched(inventory.VerbCommission), "5", job.Errored)
				a.LastError = "its cleanup did nothing"
			}, has: []string{"submit verb=clear nodes=a-1 playbooks=current"}},
		{name: "fenced, and a task of its cleanup failed",
			nodes: []string{"a m Quarantined Discovered", "b m Quarantined Discovered"}, about: "quarantine",
			summary: "it is fenced",
			set: func(v *state.View, a *inventory.Node) {
				put(v, uncleaned(inventory.VerbClear), "5", job.Errored)
				a.LastError = "the cleanup failed"
			}, has: []string{
				"look at the host, then clear it; if its cleanup.yml is at fault, correct that in the folder",
				"[submit verb=clear nodes=a-1 submit verb=clear nodes=a-1 playbooks=current]",
			}},
		{name: "out of service, and a task of its cleanup failed",
			nodes: []string{"a - Decommissioned Discovered", "b - Decommissioned Discovered"}, about: "idle residue",
			summary: "it was taken out of service",
			set: func(v *state.View, a *inventory.Node) {
				put(v, uncleaned(inventory.VerbDecommission), "5", job.Complete)
				a.Residue = []string{"service-master"}
			}, has: []string{
				"if its cleanup.yml is at fault",
				"[submit verb=decommission nodes=a-1 submit verb=decommission nodes=a-1 playbooks=current]",
			}},
		{name: "out of service, and no play of its cleanup is for it",
			nodes: []string{"a - Decommissioned Discovered", "b - Decommissioned Discovered"}, about: "idle residue",
			summary: "it was taken out of service",
			set: func(v *state.View, a *inventory.Node) {
				put(v, untouched(inventory.VerbDecommission), "5", job.Complete)
				a.Residue = []string{"service-master"}
			}, has: []string{
				"no play of cleanup.yml is for a-1: add one to the folder, then commission it again",
				"no play of cleanup.yml is for a-1: add one to the folder, then decommission it again",
				"submit verb=decommission nodes=a-1 playbooks=current",
			}},
		{name: "its host key changed", nodes: []string{"a m Allocated Discovered"}, about: "failure host-key applied",
			ready: true, summary: "it is in service; not verified since it was last configured",
			set: func(_ *state.View, a *inventory.Node) {
				a.LastError = "the ssh host key of a-1 is not the one recorded at the first contact"
			},
			has: []string{"trust-host-key nodes=a-1", "a job broke off", "submit verb=apply nodes=a-1"}},
		{name: "a worker without masters", nodes: []string{"a w Allocated Discovered", "b m Allocated Disappeared"},
			about: "rule", summary: "requires 1 healthy node of service-master, and there is none; " +
				"not healthy: b-1 (Disappeared)",
			set: func(_ *state.View, a *inventory.Node) { a.Applied = "1" }, has: []string{
				"submit verb=commission group=service-master",
			}},
		{name: "taken out, not clean", nodes: []string{"a - Decommissioned Discovered"}, about: "idle failure residue",
			summary: "it was taken out of service",
			set: func(_ *state.View, a *inventory.Node) {
				a.Residue, a.LastError = []string{
					"service-worker",
				}, "not cleaned: task \"Stop it\": non-zero return code"
			}, has: []string{"the last verb failed: not cleaned"}},
		{name: "a worker without masters, whose upgrade failed",
			nodes: []string{"a w Allocated Discovered", "b m Allocated Disappeared"}, about: "rule failure applied",
			summary: "requires 1 healthy node of service-master, and there is none; not healthy: b-1 (Disappeared)",
			set:     func(_ *state.View, a *inventory.Node) { a.LastError = "task \"Upgrade\": non-zero return code" }},
		{name: "held", nodes: []string{"a m Provisioning Discovered"}, about: "job",
			summary: "job 5 holds it: commission of a-1, configure (site.yml) since 2026-01-02T12:00:00Z; its " +
				"deadline is 2026-01-02T13:00:00Z, in 50m",
			set: func(v *state.View, _ *inventory.Node) { put(v, running, "5", job.Running) },
			has: []string{"cancel-job job=5", "when job 5 succeeds, its nodes become Allocated; when it fails"}},
		{name: "held by a job that cannot be read", nodes: []string{"a m Provisioning Discovered"}, about: "job",
			summary: "job 5 holds it: the record v/jobs/5 in the store cannot be read: it is cut",
			set: func(v *state.View, a *inventory.Node) {
				a.Job, v.Unreadable = "5", map[string]string{"v/jobs/5": "it is cut"}
			},
			has: []string{"clusterm store remove v/jobs/5"}},
		{name: "held by a cancelled job that cleans up",
			nodes: []string{"a m Provisioning Discovered", "b m Provisioning Discovered"}, about: "job",
			summary: "being cancelled by anna",
			set: func(v *state.View, _ *inventory.Node) {
				j := failed("done", "")
				j.Outcomes, j.Cancel, j.CancelBy, j.Runs[1].Exit = nil, 1, "anna", ""
				put(v, j, "5", job.Running)
				// past the verb's own deadline
				v.Jobs()[0].Runs[1].Started, v.Jobs()[0].Timeout = jobtest.Noon.Add(5*time.Minute), 15*time.Minute
				v.Jobs()[0].Deadline = jobtest.Noon.Add(time.Minute)
			}, has: []string{
				"on /dev/sda1", "become Unallocated, or Quarantined where it fails",
				"its deadline is 2026-01-02T12:20:00Z, in 10m",
			}},
		{name: "in the queue behind another", nodes: []string{"a - Unallocated Discovered"}, about: "queue",
			summary: "job 7 (commission) waits for it: place 1 of 1 in the queue, x needed by job 6",
			set: func(v *state.View, _ *inventory.Node) {
				other := jobtest.Planned(inventory.VerbDiscover, "", "x Unallocated -")
				other.Targets[0].Addr = "a-1.example"
				put(v, other, "6", job.Running)
				put(v, jobtest.Planned(inventory.VerbCommission, inventory.GroupMaster, "a-1 Unallocated -"), "7",
					job.Queued)
			}, has: []string{"explain-job job=7", "job 7 begins when it need not wait for job 6"}},
		{name: "being prepared", nodes: []string{"a - Unallocated Disappeared"}, about: "state job",
			summary: "it is Disappeared",
			set: func(v *state.View, _ *inventory.Node) {
				j := jobtest.Planned(inventory.VerbDiscover, "", "x Unallocated -")
				j.Targets[0].Name, j.Targets[0].Addr = "10.0.0.1", "10.0.0.1"
				put(v, j, "8", job.Running)
			}, has: []string{"job 8 prepares its host", "when every address has appeared"}},
		{name: "in service, and helping", nodes: []string{"a m Allocated Discovered", "b m Provisioning Discovered"},
			about: "job", ready: true, summary: "it is in service; not verified since it was last configured",
			set: func(v *state.View, a *inventory.Node) {
				a.Applied = "1"
				j := jobtest.Planned(inventory.VerbCommission, inventory.GroupMaster, "b-1 Unallocated -")
				j.Helpers = []string{"a-1"}
				put(v, j, "5", job.Running)
			}, has: []string{"job 5 needs its help", "wait-for-job job=5", "nothing, until an operator"}},
		{name: "not begun", nodes: []string{"a - Unallocated Discovered"}, about: "refusal idle",
			summary: "job 5 (commission) was not begun: the ground changed",
			set: func(v *state.View, _ *inventory.Node) {
				j := jobtest.Planned(inventory.VerbCommission, inventory.GroupMaster, "a-1 Unallocated -")
				j.Cause, j.Message = job.CausePrecondition, "the ground changed"
				put(v, j, "5", job.Errored)
			}, has: []string{"explain-job job=5"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := &state.View{Snapshot: *jobtest.Snapshot(t, c.nodes...)}
			if c.set != nil {
				c.set(v, v.Nodes()[0])
			}
			e := ExplainNode(facts(v), *v.Nodes()[0], c.history)

			var about, text []string
			for _, f := range e.Findings {
				about = append(about, string(f.About))
				text = append(text, f.Message, f.Remedy, fmt.Sprint(f.Actions))
				text = append(text, "since "+f.Since.Format(time.DateTime))
			}

			for _, f := range e.Failures {
				text = append(text, string(f.Phase), f.Message)
			}

			all := strings.Join(append(text, e.Next), "\n")
			if got := strings.Join(about, " "); got != c.about || e.Ready != c.ready ||
				!strings.Contains(e.Summary, c.summary) {
				t.Errorf(
					"about %q, want %q; ready %t, want %t; %q, want %q\n%s",
					got,
					c.about,
					e.Ready,
					c.ready,
					e.Summary,
					c.summary,
					all,
				)
			}

			for _, want := range c.has {
				if !strings.Contains(all, want) {
					t.Errorf("%q is not said in:\n%s", want, all)
				}
			}
		})
	}
}

// TestNextOfADiscoverThatRestoresHosts: a discover changes no status, so none is named.
func TestNextOfADiscoverThatRestoresHosts(t *testing.T) {
	t.Parallel()

	j := jobtest.Planned(inventory.VerbDiscover, "", "a-1 Unallocated -")
	j.Runs = append(j.Runs, job.Run{Phase: job.PhaseUndo})

	want := "job 5 restores the hosts that did not become nodes, and ends"
	if got := (Facts{}).nextOfJob(j); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestOriginOfDeadline: a job that runs, and one that ran into its deadline, show where that comes from and how long 99
// of 100 jobs of the kind took.
func TestOriginOfDeadline(t *testing.T) {
	t.Parallel()

	for runs, want := range map[int]string{
		0:   "1h after its start, from jobs.timeout",
		1:   "1h after its start, from jobs.timeout; p99 of 1 runs: 1s",
		99:  "1h after its start, from jobs.timeout; p99 of 99 runs: 1m39s",
		100: "1h after its start, from jobs.timeout; p99 of 100 runs: 1m39s",
		212: "1h after its start, from jobs.timeout; p99 of 212 runs: 3m30s",
	} {
		v := &state.View{Snapshot: *jobtest.Snapshot(t, "a m Maintenance Discovered")}

		// The nth took n seconds. Those that failed, and those of another kind, do not count.
		add := func(id int, verb inventory.Verb, status job.Status, check bool, took time.Duration) {
			j := jobtest.Planned(verb, "", "a-1 Allocated service-master")
			j.Started, j.Ended, j.Check = jobtest.Noon, jobtest.Noon.Add(took), check
			put(v, j, strconv.Itoa(id), status)
		}

		for i := range runs {
			add(4*i+1, inventory.VerbApply, job.Complete, false, time.Duration(i+1)*time.Second)
			add(4*i+2, inventory.VerbApply, job.Complete, true, time.Hour)
			add(4*i+3, inventory.VerbApply, job.Errored, false, time.Hour)
			add(4*i+4, inventory.VerbVerify, job.Complete, false, time.Hour)
		}

		for _, status := range []job.Status{job.Running, job.Errored} {
			j := jobtest.Planned(inventory.VerbApply, "", "a-1 Allocated service-master")
			j.ID, j.Status, j.Started, j.TimeoutFrom = "9999", status, jobtest.Noon, job.TimeoutUsual

			if status == job.Errored {
				j.Cause, j.Runs = job.CauseDeadline, []job.Run{{Phase: job.PhaseApply, Exit: "deadline"}}
			}

			e := ExplainJob(facts(v), j)
			if !slices.ContainsFunc(e.Findings, func(f Finding) bool {
				_, got, _ := strings.Cut(f.Message, "its deadline ")
				return got == "is "+want || got == "was "+want
			}) {
				t.Errorf("%s after %d runs: %+v, want %q", status, runs, e.Findings, want)
			}
		}
	}
}

func TestExplainJob(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name    string
		status  job.Status
		nodes   []string
		job     func() job.Job
		before  func(v *state.View)
		about   string
		summary string
		has     []string
	}{
		{name: "queued behind a running one", status: job.Queued, nodes: []string{"a - Unallocated Discovered"},
			job: func() job.Job {
				return jobtest.Planned(inventory.VerbCommission, inventory.GroupMaster, "a-1 Unallocated -")
			},
			before: func(v *state.View) {
				put(v, jobtest.Planned(inventory.VerbDiscover, "", "a-1 Unallocated -"), "3", job.Running)
				put(v, jobtest.Planned(inventory.VerbCommission, inventory.GroupMaster, "a-1 Unallocated -"), "4",
					job.Queued)
			},
			about: "job queue", summary: "it is queued: place 2 of 2 in the queue, a-1 needed by jobs 3, 4",
			has: []string{"wait-for-job job=3", "explain-job job=4"}},
		{name: "queued and hopeless", status: job.Queued, nodes: []string{"a m Allocated Discovered"},
			job: func() job.Job {
				return jobtest.Planned(inventory.VerbCommission, inventory.GroupMaster, "a-1 Unallocated -")
			},
			summary: "it will not be begun: a-1 is Allocated", has: []string{"ends Errored without touching"}},
		{name: "running, and failed already", status: job.Running,
			nodes: []string{"a m Provisioning Discovered", "b m Provisioning Discovered"}, about: "failure",
			job:     func() job.Job { j := failed("done", ""); j.Outcomes = nil; j.Runs[1].Exit = ""; return j },
			summary: "it runs: commission of a-1, b-1, undo (cleanup.yml)", has: []string{
				"configure (site.yml) failed on a-1", "undo (cleanup.yml) runs on a-1, b-1", "follow-log job=5",
			}},
		{name: "taken over, and waiting for what may go on", status: job.Running,
			nodes: []string{"a m Provisioning Discovered"}, about: "job job",
			job: func() job.Job {
				j := jobtest.Planned(inventory.VerbCommission, inventory.GroupMaster, "a-1 Unallocated -")
				j.Instance, j.Former = "m-2", "m-1"
				return j
			},
			summary: "it runs: commission of a-1", has: []string{"the instance m-1, which ran it, is gone",
				"it goes on at m-2", "jobs.runner_lease", "follow-log job=5"}},
		{name: "failed and cleaned", status: job.Errored,
			nodes: []string{"a - Unallocated Discovered", "b - Unallocated Discovered"}, about: "failure",
			job:     func() job.Job { return failed("done", inventory.Unallocated) },
			summary: "it ended Errored: site.yml failed on a-1",
			has: []string{"configure (site.yml) failed on a-1", "undo (cleanup.yml) succeeded on a-1, b-1",
				"ended as Unallocated: a-1, b-1",
				"retry-job job=5", "no space left\non /dev/sda1", "not as the verb wants it: a-1, b-1"}},
		{name: "failed, not cleaned", status: job.Errored,
			nodes: []string{"a m Quarantined Discovered", "b m Quarantined Discovered"}, about: "quarantine failure",
			job:     func() job.Job { return failed("failed a-1=failed b-1=failed", inventory.Quarantined) },
			summary: "it ended Errored",
			has:     []string{"submit verb=clear nodes=a-1,b-1", "ended as Quarantined: a-1, b-1"}},
		{name: "not cleaned, for want of a play", status: job.Errored,
			nodes: []string{"a m Quarantined Discovered", "b m Quarantined Discovered"}, about: "quarantine failure",
			job: func() job.Job {
				j := untouched(inventory.VerbCommission)
				j.Cause, j.Message = job.CauseFailed, "site.yml failed"
				return j
			}, summary: "it ended Errored",
			has: []string{"[submit verb=clear nodes=b-1 submit verb=clear nodes=a-1 playbooks=current]"}},
		{name: "out of service, not cleaned", status: job.Complete,
			nodes: []string{"a - Decommissioned Discovered", "b - Decommissioned Discovered"}, about: "failure residue",
			job: func() job.Job {
				j := untouched(inventory.VerbDecommission)
				j.Message = "not everything could be cleaned"
				return j
			},
			before:  func(v *state.View) { v.Nodes()[0].Residue = []string{"service-master"} },
			summary: "it is complete, but not everything could be cleaned",
			has:     []string{"decommission them again", "submit verb=decommission nodes=a-1 playbooks=current"}},
		{name: "a task of the cleanup failed", status: job.Complete,
			nodes: []string{"a - Decommissioned Discovered", "b - Decommissioned Discovered"}, about: "failure residue",
			job: func() job.Job {
				j := uncleaned(inventory.VerbDecommission)
				j.Message = "not everything could be cleaned"
				return j
			},
			before:  func(v *state.View) { v.Nodes()[0].Residue = []string{"service-master"} },
			summary: "it is complete, but not everything could be cleaned",
			has: []string{
				"decommission them again; if its cleanup.yml is at fault, correct that in the folder",
				"[submit verb=decommission nodes=a-1 submit verb=decommission nodes=a-1 playbooks=current]",
			}},
		{name: "not updated, because a task of the cleanup failed", status: job.Errored,
			nodes: []string{"a m Allocated Discovered", "b m Allocated Discovered"}, about: "failure",
			job: func() job.Job {
				j := uncleaned(inventory.VerbUpdate)
				j.Cause, j.Message = job.CauseFailed, "cleanup.yml failed on a-1"
				j.Outcomes["a-1"] = inventory.Outcome{Status: inventory.Allocated, Error: "the cleanup failed"}
				j.Outcomes["b-1"] = inventory.Outcome{Status: inventory.Allocated}
				return j
			}, summary: "it ended Errored",
			has: []string{"[read-log job=5 retry-job job=5 failed retry-job job=5 playbooks=current failed]"}},
		{name: "an upgrade failed after a cleanup of long ago", status: job.Errored,
			nodes: []string{"a m Allocated Discovered"}, about: "failure",
			before: func(v *state.View) { put(v, uncleaned(inventory.VerbUpdate), "4", job.Errored) },
			job: func() job.Job {
				j := jobtest.Planned(inventory.VerbMaintenance, "", "a-1 Allocated service-master")
				jobtest.Record(&j, job.Step{
					Phase: job.PhaseUpgrade, Playbook: job.PlaybookUpgrade, Hosts: j.Names(),
				}, "failed a-1=failed")
				j.Cause, j.Message = job.CauseFailed, "rolling-upgrade.yml failed"
				j.Outcomes = map[string]inventory.Outcome{"a-1": {Status: inventory.Allocated, Error: "failed"}}

				return j
			}, summary: "it ended Errored", has: []string{"[read-log job=5 retry-job job=5]"}},
		{name: "precondition", status: job.Errored, nodes: []string{"a - Unallocated Discovered"}, about: "refusal",
			job: func() job.Job {
				j := jobtest.Planned(inventory.VerbCommission, inventory.GroupMaster, "a-1 Unallocated -")
				j.Cause, j.Message = job.CausePrecondition, "a-1 is gone"
				return j
			}, summary: "it ended Errored: a-1 is gone", has: []string{"it touched nothing", "retry-job job=5"}},
		{name: "deadline", status: job.Errored, nodes: []string{"a m Allocated Discovered"}, about: "failure failure",
			job: func() job.Job {
				j := jobtest.Planned(inventory.VerbMaintenance, "", "a-1 Allocated service-master")
				jobtest.Record(&j, job.Step{
					Phase: job.PhaseUpgrade, Playbook: job.PlaybookUpgrade, Hosts: j.Names(),
				}, "deadline")
				j.Cause, j.Message = job.CauseDeadline, "it ran longer than 1h"
				j.Outcomes = map[string]inventory.Outcome{
					"a-1": {Status: inventory.Allocated, Error: "it ran longer than 1h"},
				}

				return j
			}, summary: "longer than 1h", has: []string{
				"show-settings key=jobs.timeout",
				"upgrade (rolling-upgrade.yml) ended (deadline) on a-1", "retry-job job=5 timeout=2h",
			}},
		{name: "cancelled in the queue", status: job.Cancelled, nodes: []string{"a - Unallocated Discovered"},
			about: "failure",
			job: func() job.Job {
				j := jobtest.Planned(inventory.VerbCommission, inventory.GroupMaster, "a-1 Unallocated -")
				j.Cause, j.Message = job.CauseCancelled, "cancelled by anna while it was queued"
				return j
			}, summary: "it ended Cancelled: cancelled by anna", has: []string{"no host touched", "retry-job job=5"}},
		{name: "discovered by now", status: job.Errored, nodes: []string{"a - Unallocated Discovered"}, about: "state",
			job:     func() job.Job { return undiscovered("10.0.0.1", job.HostResult{Unreachable: true}) },
			summary: "it ended Errored", has: []string{"10.0.0.1 is node a-1 by now", "nothing is to be done for it"}},
		{name: "powered off", status: job.Errored, nodes: []string{"a - Unallocated Discovered"}, about: "failure",
			job:     func() job.Job { return undiscovered("10.0.0.9", job.HostResult{Unreachable: true}) },
			summary: "it ended Errored", has: []string{"see that 10.0.0.9 is powered on", "retry-job job=5"}},
		{name: "foreign", status: job.Errored, nodes: []string{"a - Unallocated Discovered"}, about: "failure",
			job: func() job.Job {
				return undiscovered("10.0.0.9", job.HostResult{
					Begun: true, Failed: 1, Message: "This host belongs to another manager: it has an agent.",
				})
			},
			summary: "it ended Errored", has: []string{
				"[submit verb=discover addrs=10.0.0.9 take_over=true reason=its manager is gone]",
			}},
		{name: "complete", status: job.Complete, nodes: []string{"a m Allocated Discovered"},
			job: func() job.Job {
				return jobtest.Planned(inventory.VerbMaintenance, "", "a-1 Allocated service-master")
			}, summary: "it succeeded", has: []string{"nothing: it has ended"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := &state.View{Snapshot: *jobtest.Snapshot(t, c.nodes...)}
			if c.before != nil {
				c.before(v)
			}
			put(v, c.job(), "5", c.status)
			e := ExplainJob(facts(v), *v.Jobs()[len(v.Jobs())-1])

			var about, text []string
			for _, f := range e.Findings {
				about = append(about, string(f.About))
				text = append(text, f.Message, f.Remedy, fmt.Sprint(f.Actions))
			}

			for _, f := range e.Failures {
				text = append(text, f.Message)
			}

			all := strings.Join(append(append(text, e.Steps...), e.Next), "\n")
			if got := strings.Join(about, " "); got != c.about || !strings.Contains(e.Summary, c.summary) {
				t.Errorf("about %q, want %q; %q, want %q\n%s", got, c.about, e.Summary, c.summary, all)
			}

			for _, want := range c.has {
				if !strings.Contains(all, want) {
					t.Errorf("%q is not said in:\n%s", want, all)
				}
			}
		})
	}
}

// TestCorrectionInARepository: a corrected cleanup.yml is fetched before it cleans.
func TestCorrectionInARepository(t *testing.T) {
	t.Parallel()

	v := &state.View{Snapshot: *jobtest.Snapshot(t, "a m Quarantined Discovered", "b m Quarantined Discovered")}
	j := uncleaned(inventory.VerbCommission)
	j.Cause, j.Message = job.CauseFailed, "site.yml failed"
	put(v, j, "5", job.Errored)

	f := facts(v)
	f.Playbooks.Commit = "c0ffee"

	const want = "[submit verb=clear nodes=a-1,b-1 sync-repository submit verb=clear nodes=a-1 playbooks=current]"
	if found := ExplainJob(f, *v.Jobs()[0]).Findings[0]; fmt.Sprint(found.Actions) != want ||
		!strings.Contains(found.Remedy, "commit a correction, fetch it, and clean with the playbooks of today") {
		t.Errorf("%s: %s, want %s", found.Remedy, found.Actions, want)
	}
}

// TestExplainIncompleteSettings: a queued job names the settings that keep it from its turn, and
// the way out.
func TestExplainIncompleteSettings(t *testing.T) {
	t.Parallel()

	v := &state.View{Snapshot: *jobtest.Snapshot(t, "a - Unallocated Discovered")}
	j := jobtest.Planned(inventory.VerbCommission, inventory.GroupMaster, "a-1 Unallocated -")
	put(v, j, "5", job.Queued)

	f := facts(v)
	f.Incomplete = inventory.Errorf(inventory.KindRefused, "groups does not fit").Do("remove it").
		With(inventory.UnsetSetting("groups"))

	e := ExplainJob(f, *v.Jobs()[0])
	if !strings.Contains(e.Summary, "no job begins: groups does not fit") || len(e.Findings) != 1 {
		t.Fatalf("%+v", e)
	}
	found := e.Findings[0]
	if found.Message != "no job begins: groups does not fit" || found.Remedy != "remove it" ||
		!reflect.DeepEqual(found.Actions, []inventory.Action{inventory.UnsetSetting("groups")}) {
		t.Errorf("%+v", found)
	}
}

// TestExplainToWhoCancelled: who cancelled a job does not read the own name.
func TestExplainToWhoCancelled(t *testing.T) {
	t.Parallel()

	ended := func(v *state.View) {
		j := jobtest.Planned(inventory.VerbMaintenance, "", "a-1 Allocated service-master")
		j.Cause, j.Message, j.Cancel, j.CancelBy = job.CauseCancelled, "cancelled by anna", 1, "anna"
		lastError := "not upgraded: cancelled by anna"
		j.Outcomes = map[string]inventory.Outcome{"a-1": {Status: inventory.Allocated, Error: lastError}}
		put(v, j, "5", job.Cancelled)
		v.Nodes()[0].LastError = lastError
	}
	queued := func(v *state.View) {
		j := jobtest.Planned(inventory.VerbMaintenance, "", "a-1 Allocated service-master")
		j.Cause, j.Cancel, j.CancelBy = job.CauseCancelled, 1, "anna"
		j.Message = job.CancelledWhileQueued("anna")
		put(v, j, "5", job.Cancelled)
	}
	running := func(v *state.View) {
		j := jobtest.Planned(inventory.VerbMaintenance, "", "a-1 Allocated service-master")
		j.Cancel, j.CancelBy = 1, "anna"
		put(v, j, "5", job.Running)
	}

	for _, c := range []struct {
		reader   string
		before   func(*state.View)
		job, why string // in the explanation of the job and of the node
	}{
		{"anna", ended, "it ended Cancelled: you cancelled it", "the last verb failed: not upgraded: you cancelled it"},
		{"bob", ended, "it ended Cancelled: cancelled by anna", "verb failed: not upgraded: cancelled by anna"},
		{"", ended, "cancelled by anna", "cancelled by anna"},
		{"anna", queued, "it ended Cancelled: you cancelled it while it was queued", ""},
		{"bob", queued, "cancelled by anna while it was queued", ""},
		{"anna", running, ", being cancelled by you", "being cancelled by you"},
		{"bob", running, ", being cancelled by anna", "being cancelled by anna"},
	} {
		v := &state.View{Snapshot: *jobtest.Snapshot(t, "a m Allocated Discovered")}
		c.before(v)

		f := facts(v)
		f.Reader.Name = c.reader

		if got := ExplainJob(f, *v.Jobs()[0]).Summary; !strings.Contains(got, c.job) {
			t.Errorf("job, to %q: %q, want %q", c.reader, got, c.job)
		}

		var why []string
		for _, found := range ExplainNode(f, *v.Nodes()[0], nil).Findings {
			why = append(why, found.Message)
		}

		if got := strings.Join(why, "\n"); !strings.Contains(got, c.why) {
			t.Errorf("node, to %q: %q, want %q", c.reader, got, c.why)
		}
	}
}

// TestExplainConnection: a key or a login that a jump host refuses is not a matter of the
// node's recorded key, and the explanation names the jump host of the settings.
func TestExplainConnection(t *testing.T) {
	t.Parallel()

	const jump = "ops@gate.example:2222"

	explained := func(message string) string {
		h := configuration.Host{Name: "a-1", Label: "a", Addr: "10.0.0.1"}
		h.Connection.Jump = jump
		return configuration.ExplainFailure(message, h)
	}
	connect := func(*state.View, string, string) configuration.Connection {
		return configuration.Connection{Jump: jump}
	}

	const changed = " has changed and you have requested strict checking.\nHost key verification failed."

	for _, c := range []struct{ message, job, node, remedy, action string }{
		{
			"Host key for [gate.example]:2222" + changed,
			"ssh does not accept the host key of the jump host gate.example, by which it reaches a-1",
			"ssh does not accept the host key of the jump host gate.example, by which it reaches it",
			"it is recorded with no node", "set-connection nodes=a-1",
		},
		{
			"Host key for a-1" + changed, "ssh does not accept the host key of a-1", "ssh does not accept its host key",
			"trust the new one", "trust-host-key nodes=a-1",
		},
		{
			"Host key verification failed.", "ssh could not verify a host key on the way to a-1",
			"ssh could not verify a host key on the way to it", "reached by a jump host", "set-connection nodes=a-1",
		},
		{
			"ops@gate.example: Permission denied (publickey).",
			"the jump host gate.example, by which ssh reaches a-1, does not accept the credentials",
			"the jump host gate.example, by which ssh reaches it, does not accept the credentials",
			"authorize the public key on the jump host", "set-connection nodes=a-1",
		},
		{
			"root@10.0.0.1: Permission denied (publickey).", "a-1 does not accept the credentials for ssh",
			"it does not accept the credentials for ssh", "authorize the public key on the host",
			"set-connection nodes=a-1",
		},
	} {
		v := &state.View{Snapshot: *jobtest.Snapshot(t, "a m Allocated Discovered")}

		j := jobtest.Planned(inventory.VerbMaintenance, "", "a-1 Allocated service-master")
		jobtest.Record(&j, job.Step{
			Phase: job.PhaseUpgrade, Playbook: job.PlaybookUpgrade, Hosts: j.Names(),
		}, "failed a-1=unreachable")

		message := explained(c.message)
		j.Cause, j.Message = job.CauseFailed, "rolling-upgrade.yml failed"
		j.Runs[0].Results["a-1"] = job.HostResult{Unreachable: true, Message: message}
		j.Outcomes = map[string]inventory.Outcome{"a-1": {Status: inventory.Allocated, Error: message}}
		put(v, j, "5", job.Errored)
		v.Nodes()[0].LastError = message

		f := facts(v)
		f.Connect = connect

		check := func(what, want string, findings []Finding) {
			t.Helper()

			for _, found := range findings {
				if found.About != AboutHostKey && found.About != AboutAccess {
					continue
				}

				actions := fmt.Sprint(found.Actions)
				if found.Message != want || !strings.Contains(found.Remedy, c.remedy) || actions != "["+c.action+"]" {
					t.Errorf(
						"%s: %q, %q, %s; want %q, %q, %s",
						what,
						found.Message,
						found.Remedy,
						actions,
						want,
						c.remedy,
						c.action,
					)
				}

				return
			}

			t.Errorf("%s: nothing is said about %q", what, message)
		}

		check("job", c.job, ExplainJob(f, *v.Jobs()[0]).Findings)
		check("node", c.node, ExplainNode(f, *v.Nodes()[0], nil).Findings)
	}
}

// TestExplainPower: of a node that nobody sees, its BMC tells whether it is off, or its agent alone is silent.
func TestExplainPower(t *testing.T) {
	t.Parallel()

	noon := jobtest.Noon
	const (
		at   = " since 2026-01-02T12:00:00Z"
		look = "see that it has power"
	)

	for _, c := range []struct {
		name   string
		power  *inventory.Power
		has    string
		remedy string
	}{
		{"no BMC", nil, "", look},
		{"off", &inventory.Power{Power: "off", Since: &noon},
			"; it is powered off, as its BMC says" + at, "turn it on"},
		{"on", &inventory.Power{Power: "on", Since: &noon},
			"; it is powered on, as its BMC says" + at + ", but its agent is silent", "look at 'systemctl status"},
		{"between", &inventory.Power{Power: "changing", Since: &noon},
			"; it is being turned on or off, as its BMC says" + at, look},
		{"a BMC that fails", &inventory.Power{Power: "on", Since: &noon, Problem: "no answer", ProblemSince: &noon},
			"; its BMC does not say whether it is on" + at + ": no answer; before, it said on", look},
		{"a refused login", &inventory.Power{Problem: "no", LoginRefused: true},
			"; its BMC does not say whether it is on: no", "give the login that it takes: clusterctl power login a-1 "},
		{"a BMC that never answered", &inventory.Power{Problem: "no answer"},
			"; its BMC does not say whether it is on: no answer", look},
	} {
		for _, status := range []inventory.Status{inventory.Allocated, inventory.Quarantined, inventory.Unallocated} {
			v := &state.View{}
			n := inventory.Node{Name: "a-1", Addr: "10.0.0.1", Status: status, State: inventory.Disappeared}
			v.PutNode(&n)

			if c.power != nil {
				c.power.Node = "a-1"
				v.View = record.Set(v.View, &state.Powers, "a-1", c.power)
			}

			var got *Finding
			for _, f := range ExplainNode(facts(v), n, nil).Findings {
				if f.About == AboutState {
					got = &f
				}
			}

			if got == nil || !strings.HasSuffix(got.Message, c.has) || !strings.HasPrefix(got.Remedy, c.remedy) {
				t.Errorf("%s, %s: %+v, want %q with the remedy %q", c.name, status, got, c.has, c.remedy)
			}
		}
	}
}

// TestExplainSilentBMC: of a node that is seen, the BMC is named only if it fails, and the summary stays.
func TestExplainSilentBMC(t *testing.T) {
	t.Parallel()

	n := inventory.Node{
		Name:   "a-1",
		Addr:   "10.0.0.1",
		Status: inventory.Allocated,
		State:  inventory.Discovered,
		Group:  "service-master",
	}
	quiet := facts(&state.View{})

	for problem, want := range map[string]string{
		"": "", "the BMC refused the login": "its BMC cannot switch it: the BMC refused the login",
	} {
		v := &state.View{}
		v.PutNode(&n)
		v.View = record.Set(v.View, &state.Powers, "a-1", &inventory.Power{Node: "a-1", Power: "on", Problem: problem})

		got := ExplainNode(facts(v), n, nil)
		has := ""

		for _, f := range got.Findings {
			if f.About == AboutHardware {
				has = f.Message
			}
		}

		if without := ExplainNode(quiet, n, nil); has != want || got.Summary != without.Summary {
			t.Errorf("%q: %q with the summary %q, want %q with %q", problem, has, got.Summary, want, without.Summary)
		}
	}
}

// TestExplainInspectable: a machine that nothing tells the facts of is not told to be inspected.
func TestExplainInspectable(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		addr   string
		driver machine.Driver
		want   inventory.Verb
	}{
		{"10.0.0.1", "", inventory.VerbInspect}, {"10.0.0.1", machine.IPMI, inventory.VerbInspect},
		{"", machine.ILO, inventory.VerbInspect}, {"", machine.IPMI, inventory.VerbProvide},
	} {
		v := &state.View{}
		n := inventory.Node{Name: "r1", Addr: c.addr, Status: inventory.Manageable, State: inventory.Unknown}
		v.PutNode(&n)

		m := &state.Machine{Machine: machine.Machine{Node: "r1"}}
		if c.driver != "" {
			m.BMC = &machine.BMC{Driver: c.driver, Address: "127.0.0.9"}
		}

		v.View = record.Set(v.View, &state.Machines, "r1", m)

		got := ExplainNode(facts(v), n, nil).Findings[0]
		if want := inventory.Submit(c.want, "r1"); !reflect.DeepEqual(got.Actions, []inventory.Action{want}) {
			t.Errorf("%s by %q: %+v, want %+v", c.addr, c.driver, got.Actions, want)
		}
	}
}

// TestExplainTwin names another node that seems to be the same machine, and none that only shares an address or what
// vendors make up.
func TestExplainTwin(t *testing.T) {
	t.Parallel()

	const madeUp = "03000200-0400-0500-0006-000700080009"

	v := &state.View{}

	for name, m := range map[string]machine.Machine{
		"r1": {UUID: "4c4c4544-0042-3510-8054-b4c04f4d5932", Ports: []machine.Port{{MAC: "52:54:00:aa:00:01"}}},
		"r2": {UUID: "4c4c4544-0042-3510-8054-b4c04f4d5932", Ports: []machine.Port{{MAC: "52:54:00:aa:00:02"}}},
		"r3": {UUID: madeUp}, "r4": {UUID: madeUp},
		"r5": {Ports: []machine.Port{{MAC: "52:54:00:aa:00:03"}}},
		"r6": {BMC: &machine.BMC{Driver: machine.IPMI, Address: "127.9.0.6"}},
		"r7": {BMC: &machine.BMC{Driver: machine.IPMI, Address: "127.9.0.6"}},
	} {
		m.Node = name
		addr := "10.0.0.1"
		if m.BMC != nil {
			addr = ""
		}
		v.PutNode(&inventory.Node{Name: name, Addr: addr, Status: inventory.Enrolled})
		v.View = record.Set(v.View, &state.Machines, name, &state.Machine{Machine: m})
	}

	for name, want := range map[string]string{
		"r1": "r2 seems to be the same machine: it has the same UUID 4c4c4544-0042-3510-8054-b4c04f4d5932, " +
			"address 10.0.0.1, but another MAC (60)",
		"r2": "r1 seems to be", "r3": "", "r4": "", "r5": "",
		"r6": "r7 may be the same machine: it has the same BMC 127.9.0.6:623 (40)", "r7": "r6 may be",
	} {
		n, _ := v.Lookup(name)

		var got []string
		for _, f := range ExplainNode(facts(v), n, nil).Findings {
			if f.About == AboutIdentity && !strings.HasPrefix(f.Message, "it is known by") {
				got = append(got, f.Message)
			}
		}

		if text := strings.Join(got, "; "); want == "" && text != "" || !strings.HasPrefix(text, want) {
			t.Errorf("%s: %q, want %q", name, text, want)
		}
	}
}
