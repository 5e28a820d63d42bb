// SPDX-License-Identifier: Apache-2.0

package job_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	. "github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/job/jobtest"
)

// TestPartialRunsKeepService: a verb takes options that leave out changes only if its
// nodes stay Allocated whatever happens, and refuses them otherwise.
func TestPartialRunsKeepService(t *testing.T) {
	t.Parallel()

	for _, row := range inventory.Lifecycle {
		// A verification runs everything, and changes nothing anyway.
		stays := !row.Verifies && row.KeepsService && row.Success == inventory.Allocated &&
			row.Failed == inventory.Allocated &&
			row.Dirty == inventory.Allocated && len(row.From) == 1 &&
			row.From[0] == inventory.Allocated

		for _, field := range []inventory.Field{
			inventory.FieldCheck, inventory.FieldTags, inventory.FieldSkipTags,
		} {
			if row.Accepts(field) != stays {
				t.Errorf("%s: accepts %s: %v, stays in service: %v", row.Verb, field, row.Accepts(field), stays)
			}
		}

		for field, options := range map[string]inventory.JobOptions{
			"check":     {Check: true},
			"tags":      {SharedOptions: inventory.SharedOptions{Tags: []string{"web"}}},
			"skip_tags": {SharedOptions: inventory.SharedOptions{SkipTags: []string{"web"}}},
		} {
			_, err := Accept(*jobtest.Snapshot(t), nil, Request{Verb: row.Verb, JobOptions: options})
			if err == nil {
				t.Fatal("a request without nodes is accepted")
			}

			refused := strings.Contains(err.Error(), "does not accept "+field+": a host")
			if refused == stays || refused && !strings.Contains(err.Error(), "apply and maintenance") {
				t.Errorf("%s with %s: %v", row.Verb, field, err)
			}
		}

		_, err := Accept(*jobtest.Snapshot(t), nil, Request{
			Verb: row.Verb, JobOptions: inventory.JobOptions{Diff: true, Verbosity: 4},
		})
		if err == nil || strings.Contains(err.Error(), "accept") {
			t.Errorf("%s with diff and verbosity: %v", row.Verb, err)
		}

		_, err = Accept(*jobtest.Snapshot(t), nil, Request{
			Verb: row.Verb, JobOptions: inventory.JobOptions{Verbosity: 5},
		})
		if inventory.KindOf(err) != inventory.KindInvalid || !strings.Contains(err.Error(), "verbosity is 5") {
			t.Errorf("%s: %v", row.Verb, err)
		}
	}
}

// inPlaceJob is a Running apply on two nodes that other jobs had configured.
func inPlaceJob(o inventory.JobOptions, serial string) Job {
	j := jobtest.Planned(inventory.VerbApply, "", "a Allocated service-worker", "b Allocated service-worker")
	j.PlaybookDigest, j.JobOptions, j.Serial = "new", o, serial

	for i := range j.Targets {
		j.Targets[i].Playbooks = map[string]string{"service-worker": "old"}
		j.Targets[i].Residue = nil
	}

	return j
}

// finish plans the job to its end, with one exit after the other.
func finish(t *testing.T, j Job, exits ...string) Step {
	t.Helper()

	for {
		s := Plan(j, jobtest.Noon, nobodyMinds)
		if s.Kind == "" {
			return s
		}
		if len(exits) == 0 {
			t.Fatalf("there is no exit for %+v", s)
		}

		jobtest.Record(&j, s, exits[0])
		exits = exits[1:]
	}
}

// TestCheckChangesNothing: whatever the end of a check, its nodes are as they were.
func TestCheckChangesNothing(t *testing.T) {
	t.Parallel()

	check := inventory.JobOptions{Check: true}

	for _, c := range []struct {
		name, serial  string
		cancel        int
		exits         []string
		status        Status
		message, note string
		failed        string // the targets with an error of the job
	}{
		{
			name: "success", exits: []string{"done a=changed"}, status: Complete,
			message: "checked; nothing was changed", note: "would change a: 3 tasks; b: 0 tasks",
		},
		{
			name: "batches", serial: "1", exits: []string{"done a=changed", "done"}, status: Complete,
			message: "checked; nothing was changed", note: "would change a: 3 tasks; b: 0 tasks",
		},
		{
			name: "failure", exits: []string{"failed a=half-way b=done"}, status: Errored, failed: "a",
			message: `site.yml failed on a: task "Install": no such package`,
			note:    "checked; nothing was changed; would change a: 1 task; b: 0 tasks",
		},
		{
			name: "early end", serial: "1", exits: []string{"failed a=half-way"}, status: Errored, failed: "a b",
			message: `site.yml failed on a: task "Install": no such package; not begun, because 1 node failed and ` +
				`max_failures is 0: b`,
			note: "checked; nothing was changed; would change a: 1 task",
		},
		{
			name: "interruption", exits: []string{"interrupted a=begun"}, status: Errored, failed: "a b",
			message: "site.yml broke off", note: "checked; nothing was changed",
		},
		{
			name: "cancel", cancel: 1, status: Cancelled, failed: "a b",
			message: "cancelled by somebody", note: "checked; nothing was changed",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			j := inPlaceJob(check, c.serial)
			j.Cancel = c.cancel

			s := finish(t, j, c.exits...)
			if s.Status != c.status || c.name != "interruption" && s.Message != c.message ||
				!strings.HasPrefix(s.Note, c.note) {
				t.Errorf("%s: %q, note %q", s.Status, s.Message, s.Note)
			}

			for _, target := range j.Targets {
				o := s.Outcomes[target.Name]
				if wrong := strings.Contains(c.failed, target.Name); wrong != (o.Error != "") {
					t.Errorf("%s: the error is %q", target.Name, o.Error)
				}
				o.Error, o.Reason = "", ""

				want := inventory.Outcome{
					Status: inventory.Allocated, Group: "service-worker", Applied: "3", AsBefore: true,
					Playbooks: map[string]string{"service-worker": "old"},
				}
				if !reflect.DeepEqual(o, want) {
					t.Errorf("%s: %+v", target.Name, o)
				}
			}
		})
	}
}

// TestCheckThatExecuted: a task with check_mode: false may have changed its host, so
// nothing is claimed about it.
func TestCheckThatExecuted(t *testing.T) {
	t.Parallel()

	j := inPlaceJob(inventory.JobOptions{Check: true}, "")
	jobtest.Record(&j, Plan(j, jobtest.Noon, nobodyMinds), "done a=changed b=done")

	r := j.Runs[0].Results["a"]
	r.Executed = 1
	j.Runs[0].Results["a"] = r

	s := Plan(j, jobtest.Noon, nobodyMinds)
	if a := s.Outcomes["a"]; a.AsBefore || a.Applied != "" || a.Status != inventory.Allocated {
		t.Errorf("a: %+v", a)
	}
	if b := s.Outcomes["b"]; !b.AsBefore || b.Applied != "3" {
		t.Errorf("b: %+v", b)
	}

	if s.Message != "checked; but tasks with check_mode: false were executed, and may have changed a; "+
		"the configuration there is unknown now" {
		t.Errorf("the message is %q", s.Message)
	}
}

// TestPartialRun: some tasks are no configuration of a job.
func TestPartialRun(t *testing.T) {
	t.Parallel()

	j := inPlaceJob(inventory.JobOptions{SharedOptions: inventory.SharedOptions{Tags: []string{"web"}}}, "")

	s := finish(t, j, "failed a=done b=closed")
	if a := s.Outcomes["a"]; a.Applied != "" || a.AsBefore || a.Error != "" || a.Playbooks["service-worker"] != "new" {
		t.Errorf("a: %+v", a)
	}
	if b := s.Outcomes["b"]; b.Applied != "3" || b.Playbooks["service-worker"] != "old" || b.Error == "" {
		t.Errorf("b, which nothing reached: %+v", b)
	}

	s = finish(t, j, "done")
	if s.Status != Complete || !strings.HasPrefix(s.Message, "only a part of the tasks ran (tags web)") {
		t.Errorf("%s: %q", s.Status, s.Message)
	}
}

// TestCheckAhead: a node keeps its playbooks while a check of other playbooks is ahead.
func TestCheckAhead(t *testing.T) {
	t.Parallel()

	v := jobtest.Snapshot(t, "a m Allocated Discovered")
	v.Nodes()[0].Playbooks = map[string]string{"service-master": "old"}
	v.SetJobs([]*Job{{
		ID: "1", Verb: inventory.VerbApply, Status: Queued, PlaybookDigest: "new",
		Targets:    []Target{{Name: "a-1", Group: "service-master"}},
		JobOptions: inventory.JobOptions{Check: true},
	}}...)
	jobtest.SetNewest(v, 1)

	j, err := Accept(*v, inventory.DefaultGroups(), Request{Verb: inventory.VerbDecommission, Nodes: []string{"a-1"}})
	if err != nil || j.Targets[0].Playbooks["service-master"] != "old" {
		t.Errorf("%+v, %v", j.Targets, err)
	}
}

// TestRetryOfACheck: a retry takes the same options, and no remedy drops them.
func TestRetryOfACheck(t *testing.T) {
	t.Parallel()

	v := jobtest.Snapshot(t, "a m Allocated Discovered")
	old := Job{
		ID:      "1",
		Verb:    inventory.VerbApply,
		Status:  Errored,
		Cause:   CauseFailed,
		Targets: []Target{{Name: "a-1"}},
		JobOptions: inventory.JobOptions{
			Check:         true,
			Verbosity:     2,
			SharedOptions: inventory.SharedOptions{Tags: []string{"web"}},
		},
		Outcomes: map[string]inventory.Outcome{"a-1": {Status: inventory.Allocated, Error: "bad", AsBefore: true}},
	}

	r, _, err := v.Retry(old, RetryRequest{})
	if err != nil || !reflect.DeepEqual(r.JobOptions, old.JobOptions) {
		t.Errorf("%+v, %v", r.JobOptions, err)
	}

	old.Outcomes["a-1"] = inventory.Outcome{Status: inventory.Allocated, AsBefore: true}
	old.ExtraNames, old.Timeout = []string{"release"}, time.Hour
	_, _, err = v.Retry(old, RetryRequest{Usual: time.Hour})

	const with = "with the values of its variables release"

	const again = "[submit verb=apply nodes=a-1 check=true tags=web verbosity=2 extra_vars={\"release\":\"(hidden)\"}]"

	e, ok := errors.AsType[*inventory.Error](err)
	if !ok || fmt.Sprint(e.Actions) != again || !strings.Contains(e.Error(), with) {
		t.Errorf("%v", err)
	}
}
