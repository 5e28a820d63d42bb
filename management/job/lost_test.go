// SPDX-License-Identifier: Apache-2.0

package job_test

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	. "github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/job/jobtest"
)

// TestLostRunIsBegunAgain: a run that is known not to have begun, because the manager died, is
// begun again, and the last attempt takes the failure path of a run that did not begin.
func TestLostRunIsBegunAgain(t *testing.T) {
	t.Parallel()

	j := jobtest.Planned(inventory.VerbCommission, inventory.GroupMaster, "a Unallocated -")

	for attempt := 1; attempt <= BeginAttempts; attempt++ {
		step := Plan(j, jobtest.Noon, nobodyMinds)
		if step.Phase != PhaseConfigure {
			t.Fatalf("attempt %d: %s", attempt, show(step))
		}
		if got, of := j.Attempt(step); got != attempt || of != BeginAttempts {
			t.Errorf("attempt %d of %d, want %d", got, of, attempt)
		}

		jobtest.Record(&j, step, "lost")
	}

	end := Plan(j, jobtest.Noon, nobodyMinds)
	if end.Kind != "" || end.Cause != CauseInterrupted || end.Outcomes["a"].Status != inventory.Unallocated {
		t.Errorf("after the last attempt: %s", show(end))
	}
}

// TestLostCleanup: a cleanup has its own attempts, and each lost one is repeated.
func TestLostCleanup(t *testing.T) {
	t.Parallel()

	j := jobtest.Planned(inventory.VerbCommission, inventory.GroupMaster, "a Unallocated -")
	jobtest.Record(&j, Plan(j, jobtest.Noon, nobodyMinds), "failed a=half-way")

	for range BeginAttempts * UndoAttempts {
		step := Plan(j, jobtest.Noon, nobodyMinds)
		if step.Phase != PhaseUndo {
			t.Fatalf("after %d runs: %s", len(j.Runs), show(step))
		}
		jobtest.Record(&j, step, "lost")
	}

	if end := Plan(j, jobtest.Noon, nobodyMinds); end.Outcomes["a"].Status != inventory.Quarantined {
		t.Errorf("after the last attempt: %s", show(end))
	}
}

// TestUnknownRunIsNotRepeated: a run that may have begun takes the failure path at once.
func TestUnknownRunIsNotRepeated(t *testing.T) {
	t.Parallel()

	j := jobtest.Planned(inventory.VerbCommission, inventory.GroupMaster, "a Unallocated -")
	jobtest.Record(&j, Plan(j, jobtest.Noon, nobodyMinds), "interrupted a=begun")

	if step := Plan(j, jobtest.Noon, nobodyMinds); step.Phase != PhaseUndo {
		t.Errorf("planned %s", show(step))
	}
}

// TestLostRunsChangeNothing: wherever the manager dies before a run begins, the job takes the same
// steps, and has the same outcomes, as without.
func TestLostRunsChangeNothing(t *testing.T) {
	t.Parallel()

	for seed := range uint64(5_000) {
		r := rand.New(rand.NewPCG(seed, 1))
		now := jobtest.Noon

		plain := anyJob(r)
		if v, err := VerbOf(plain.Verb); err == nil && v.Row.Accepts(inventory.FieldSerial) {
			plain.Serial, plain.MaxFailures = pick(r, "", "1", "2"), r.IntN(2)
		}
		crashed := plain
		crashes := r.IntN(BeginAttempts) // before the next run begins

		for ended := false; !ended; {
			want, got := Plan(plain, now, nobodyMinds), Plan(crashed, now, nobodyMinds)
			if ended = want.Kind == ""; !reflect.DeepEqual(want, got) {
				t.Fatalf("seed %d, %s after %d lost runs:\nwant %s\ngot  %s", seed, plain.Verb,
					len(crashed.Runs)-len(plain.Runs), show(want), show(got))
			}

			if ended {
				break
			}

			if crashes > 0 {
				crashes--
				jobtest.Record(&crashed, got, "lost")
				continue
			}

			// A cancel or the deadline may come first, and the step may be another one then.
			switch r.IntN(8) {
			case 0:
				plain.Cancel, crashed.Cancel = 1, 1
				continue
			case 1:
				now = jobtest.Noon.Add(2 * time.Hour)
				continue
			}

			exit := anyExit(r, plain, want, now)
			jobtest.Record(&plain, want, exit)
			jobtest.Record(&crashed, got, exit)

			crashes = r.IntN(BeginAttempts)
		}
	}
}
