// SPDX-License-Identifier: Apache-2.0

package job_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/optiontest"
	. "github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/job/jobtest"
)

// TestRetryKeepsOptions: a retry of all targets asks for exactly the job that failed, so
// that one that was to begin outside of its window does not wait for it the second time.
func TestRetryKeepsOptions(t *testing.T) {
	t.Parallel()

	v := jobtest.Snapshot(t, "a m Allocated Discovered", "b m Allocated Discovered")

	old, err := Accept(*v, inventory.DefaultGroups(), Request{
		Verb: inventory.VerbMaintenance, Nodes: jobtest.Names("a b"), Timeout: time.Hour,
		JobOptions: inventory.JobOptions{
			Serial: "1", MaxFailures: 1,
			SharedOptions: inventory.SharedOptions{
				Tags: []string{"kernel"}, OverrideWindow: true, Reason: "CVE-2026-0001 is exploited",
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	old.ID, old.Status, old.Cause = "1", Errored, CauseFailed
	v.PutJob(&old)

	again, _, err := v.Retry(old, RetryRequest{All: true})
	want := old.Again(nil)
	want.TimeoutFrom = "job 1"

	if err != nil || !again.OverrideWindow || !reflect.DeepEqual(again, want) {
		t.Errorf("%v, %+v\nwant %+v", err, again, want)
	}
}

// TestOptionsAreRepeated: the same job again, a retry and the action of a remedy have every option of the job.
func TestOptionsAreRepeated(t *testing.T) {
	t.Parallel()

	v := jobtest.Snapshot(t, "a m Allocated Discovered")
	row, _ := inventory.TransitionOf(inventory.VerbApply)
	old := Job{
		ID: "1", Verb: row.Verb, Status: Errored, Targets: []Target{{Name: "a-1"}},
		JobOptions: optiontest.All().For(row),
		Outcomes:   map[string]inventory.Outcome{"a-1": {Status: inventory.Allocated, Error: "bad"}},
	}

	if got := old.Again(nil).JobOptions; !reflect.DeepEqual(got, old.JobOptions) {
		t.Errorf("again with %+v", got)
	}

	if r, _, err := v.Retry(old, RetryRequest{}); err != nil || !reflect.DeepEqual(r.JobOptions, old.JobOptions) {
		t.Errorf("a retry with %+v: %v", r.JobOptions, err)
	}

	a, _ := Anew(old, []string{"a-1"}, nil, 0)
	if len(a) != 1 || !reflect.DeepEqual(a[0].JobOptions, old.JobOptions) {
		t.Errorf("anew: %v", a)
	}
}

// TestOptionsAreAccepted: an accepted job has every option of its request that its verb takes, and a request with
// another option is refused by its name.
func TestOptionsAreAccepted(t *testing.T) {
	t.Parallel()

	for _, row := range inventory.Lifecycle {
		for _, o := range inventory.Options {
			var options inventory.JobOptions

			optiontest.Set(&options, o)
			options.Reason = "because"

			if o.Field == inventory.FieldMaxFailures {
				options.Serial = "1"
			}

			_, err := Accept(*jobtest.Snapshot(t), nil, Request{Verb: row.Verb, JobOptions: options})
			if err == nil {
				t.Fatal("a request without nodes is accepted")
			}

			refused := strings.Contains(err.Error(), " accept ") || strings.Contains(err.Error(), "changes no host")
			if refused == row.Accepts(o.Field) && o.Field != inventory.FieldMaxFailures {
				t.Errorf("%s with %s: %v", row.Verb, o.Field, err)
			}
		}
	}
}
