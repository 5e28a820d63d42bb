// SPDX-License-Identifier: Apache-2.0

package job_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
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
	v.Jobs = append(v.Jobs, &old)

	again, _, err := v.Retry(old, RetryRequest{All: true})
	if want := old.Again(nil); err != nil || !again.OverrideWindow || !reflect.DeepEqual(again, want) {
		t.Errorf("%v, %+v\nwant %+v", err, again, want)
	}
}
