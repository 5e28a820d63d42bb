// SPDX-License-Identifier: Apache-2.0

package job_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	. "github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/job/jobtest"
)

func serial(j Job, size string, failures int) Job {
	j.Serial, j.MaxFailures = size, failures
	return j
}

func allocated(labels, group string) []string {
	var targets []string
	for _, label := range strings.Fields(labels) {
		targets = append(targets, label+" Allocated "+group)
	}

	return targets
}

// TestPlanInBatches has stories as TestPlan.
func TestPlanInBatches(t *testing.T) {
	t.Parallel()

	const w = inventory.GroupWorker
	mayNotBegin := rules{begin: inventory.Errorf(inventory.KindRefused, "it would leave w alone").Do("mind w")}

	for _, tt := range []struct {
		name  string
		job   Job
		rules Rules
		story string
	}{
		{"apply in batches of two", serial(jobtest.Planned(inventory.VerbApply, "", allocated("a b c", w)...), "2", 0),
			nobodyMinds, `
			apply site.yml a:service-worker b:service-worker
			> done
			apply site.yml c:service-worker
			> done
			late
			Complete
			a: Allocated service-worker 5
			b: Allocated service-worker 5
			c: Allocated service-worker 5`},
		{"a share is rounded down",
			serial(jobtest.Planned(inventory.VerbApply, "", allocated("a b c", w)...), "99%", 0), nobodyMinds, `
			apply site.yml a:service-worker b:service-worker
			> done
			apply site.yml c:service-worker
			> done
			Complete`},
		{"a failure leaves the other batches as they are",
			serial(jobtest.Planned(inventory.VerbApply, "", allocated("a b c d", w)...), "1", 0), nobodyMinds, `
			apply site.yml a:service-worker
			> done
			apply site.yml b:service-worker
			> failed b=failed
			Errored failed
			reason: site.yml failed on b: task "Install": no such package; not begun, because 1 node failed and max_failures is 0: c, d
			a: Allocated service-worker 5
			b: Allocated service-worker | task "Install": no such package
			c: Allocated service-worker 3 | not begun: 1 node failed and max_failures is 0
			d: Allocated service-worker 3 | not begun: 1 node failed and max_failures is 0`},
		{"a failure within the limit",
			serial(jobtest.Planned(inventory.VerbMaintenance, "", allocated("a b c", w)...), "1", 1), nobodyMinds, `
			upgrade rolling-upgrade.yml a:service-worker
			> failed a=failed
			upgrade rolling-upgrade.yml b:service-worker
			> done
			upgrade rolling-upgrade.yml c:service-worker
			> failed c=unreachable
			Errored failed
			reason: rolling-upgrade.yml failed on a: task "Install": no such package; rolling-upgrade.yml failed on c: unreachable: timed out
			a: Allocated service-worker | task "Install": no such package
			b: Allocated service-worker 5
			c: Allocated service-worker | unreachable: timed out`},
		{"an update cleans no batch that it does not begin",
			serial(jobtest.Planned(inventory.VerbUpdate, "", allocated("a b c d", w)...), "50%", 1), nobodyMinds, `
			cleanup cleanup.yml a:service-worker b:service-worker
			> done
			configure site.yml a:service-worker b:service-worker
			> failed a=done b=failed
			undo cleanup.yml a:service-worker b:service-worker
			> done
			Errored failed
			a: Unallocated | site.yml failed on b: task "Install": no such package
			b: Unallocated | task "Install": no such package
			c: Allocated service-worker 3 | not begun: 2 nodes failed and max_failures is 1
			d: Allocated service-worker 3 | not begun: 2 nodes failed and max_failures is 1`},
		{"a decommission that leaves configuration on a node is complete, with a warning",
			serial(jobtest.Planned(inventory.VerbDecommission, "", allocated("a b", w)...), "1", 1), nobodyMinds, `
			cleanup cleanup.yml a:service-worker
			> failed a=unreachable
			cleanup cleanup.yml b:service-worker
			> done
			Complete
			reason: not everything could be cleaned: cleanup.yml failed on a: unreachable: timed out
			a: Decommissioned +service-worker | not cleaned: unreachable: timed out
			b: Decommissioned`},
		{"a cancel in batch 2 leaves batch 3 as it is",
			serial(jobtest.Planned(inventory.VerbUpdate, "", allocated("a b c", w)...), "1", 3), nobodyMinds, `
			cleanup cleanup.yml a:service-worker
			> done
			configure site.yml a:service-worker
			> done
			cleanup cleanup.yml b:service-worker
			cancel
			> cancelled b=begun
			undo cleanup.yml b:service-worker
			> done
			Cancelled cancelled
			reason: cancelled by anna; not begun: c
			a: Allocated service-worker 5
			b: Unallocated | cancelled by anna
			c: Allocated service-worker 3 | not begun: cancelled by anna`},
		{"a cancel between two batches, after a failure",
			serial(jobtest.Planned(inventory.VerbApply, "", allocated("a b c", w)...), "1", 3), nobodyMinds, `
			apply site.yml a:service-worker
			> failed a=failed
			cancel
			Cancelled cancelled
			reason: site.yml failed on a: task "Install": no such package; not begun, because cancelled by anna: b, c`},
		{"the deadline passes between two batches",
			serial(jobtest.Planned(inventory.VerbApply, "", allocated("a b", w)...), "1", 0), nobodyMinds, `
			apply site.yml a:service-worker
			> done
			late
			Errored deadline
			reason: it ran longer than 1h; not begun: b
			a: Allocated service-worker 5
			b: Allocated service-worker 3 | not begun: it ran longer than 1h`},
		{"a batch that a rule forbids",
			serial(jobtest.Planned(inventory.VerbUpdate, "", allocated("a b", w)...), "1", 0), mayNotBegin, `
			Errored precondition
			reason: it would leave w alone; not begun: a, b
			a: Allocated service-worker 3 | not begun: it would leave w alone
			b: Allocated service-worker 3 | not begun: it would leave w alone`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tell(t, tt.job, tt.rules, tt.story)
		})
	}
}

// TestBatchesOfAnyJob drives jobs in batches through any ends of their runs. A
// batch ends as a job on its targets alone does; no run spans two batches or
// comes after the limit; and the targets of the others stay as they were.
func TestBatchesOfAnyJob(t *testing.T) {
	t.Parallel()

	for seed := range uint64(5_000) {
		r := rand.New(rand.NewPCG(seed, 1))
		verb := pick(r, inventory.VerbUpdate, inventory.VerbApply, inventory.VerbMaintenance, inventory.VerbReapply)
		size, limit := pick(r, "1", "2", "3", "9", "1%", "34%", "50%", "100%"), r.IntN(4)

		var targets []string
		for i := range 1 + r.IntN(7) {
			targets = append(targets, fmt.Sprintf("n%d Allocated %s", i, inventory.GroupWorker))
		}

		j := serial(jobtest.Planned(verb, "", targets...), size, limit)
		if err := walkBatches(r, j); err != nil {
			t.Fatalf("seed %d: %s of %d nodes, serial %s, max failures %d: %v",
				seed, verb, len(targets), size, limit, err)
		}
	}
}

// walkBatches takes the job to its end and compares each batch with a job of its own.
func walkBatches(r *rand.Rand, j Job) error {
	now, last := jobtest.Noon, 0

	for range 60 {
		if r.IntN(20) == 0 && j.Cancel < 2 {
			j.Cancel, j.CancelBy = j.Cancel+1, "anna"
		}

		if r.IntN(40) == 0 {
			now = jobtest.Noon.Add(2 * time.Hour)
		}

		step := Plan(j, now, nobodyMinds)
		if again := Plan(j, now, nobodyMinds); !reflect.DeepEqual(step, again) {
			return fmt.Errorf("planned differently the second time: %+v, %+v", step, again)
		}
		if step.Kind == "" {
			return checkBatches(j, now, step)
		}

		if err := checkStep(alone(j, step.Hosts), step, now); err != nil {
			return err
		}

		number, _ := j.BatchOf(step.Hosts[0])
		if number < last {
			return fmt.Errorf("batch %d after batch %d", number, last)
		}
		last = number
		for _, h := range step.Hosts {
			if n, _ := j.BatchOf(h); n != number {
				return fmt.Errorf("a run on batches %d and %d", number, n)
			}
		}

		jobtest.Record(&j, step, anyExit(r, j, step, now))
	}

	return fmt.Errorf("no end after %d runs", len(j.Runs))
}

func checkBatches(j Job, now time.Time, end Step) error {
	failures, stopped, good := 0, false, true

	for i, batch := range j.Batches() {
		single := alone(j, []string{batch[0].Name})

		if len(single.Runs) == 0 {
			stopped = true
		} else if stopped {
			return fmt.Errorf("the batch of %s began after one that did not", batch[0].Name)
		}

		if failures > j.MaxFailures && !stopped {
			return fmt.Errorf("the batch of %s began after %d failures", batch[0].Name, failures)
		}

		// A stop during a later batch does not concern this one, which is over.
		at := now
		if stopped {
			single.Runs = nil
		} else if last, _ := j.BatchOf(j.LastRun().Hosts[0]); i+1 < last {
			single.Cancel, at = 0, jobtest.Noon
		}

		want := Plan(single, at, nobodyMinds)
		if !stopped {
			if err := checkEnd(single, want); err != nil {
				return err
			}
		}

		for _, target := range batch {
			got := end.Outcomes[target.Name]
			same := reflect.DeepEqual(got, want.Outcomes[target.Name])
			untouched := got.Status == target.From && got.Group == target.FromGroup && got.Applied == target.Applied &&
				strings.HasPrefix(got.Error, "not begun: ")

			if stopped && !untouched || !stopped && !same {
				return fmt.Errorf("%s ends as %+v, alone as %+v", target.Name, got, want.Outcomes[target.Name])
			}

			good = good && got.Error == ""
			if got.Error != "" && !stopped {
				failures++
			}
		}
	}

	if stopped != strings.Contains(end.Message, "not begun") {
		return fmt.Errorf("the message is %q", end.Message)
	}

	if good != (end.Status == Complete) || good != (end.Cause == "") || !good && end.Message == "" {
		return fmt.Errorf("ended %s %s: %s", end.Status, end.Cause, end.Message)
	}

	return nil
}

// alone returns the job as one on the batch with the host, at once.
func alone(j Job, hosts []string) Job {
	number, _ := j.BatchOf(hosts[0])
	single := j
	single.Serial, single.Targets, single.Runs = "", j.Batches()[number-1], nil

	for _, run := range j.Runs {
		if n, _ := j.BatchOf(run.Hosts[0]); n == number {
			single.Runs = append(single.Runs, run)
		}
	}

	return single
}

func TestAcceptInBatches(t *testing.T) {
	t.Parallel()

	nodes := []string{
		"a m Allocated Discovered", "b m Allocated Discovered", "c w Allocated Discovered", "d w Allocated Discovered",
	}

	for _, tt := range []struct {
		name, labels, group, serial string
		verb                        inventory.Verb
		failures                    int
		want                        string // part of the refusal; empty: accepted
	}{
		{"zero", "c", "", "0", inventory.VerbApply, 0, `serial is "0"; write the number of nodes in a batch`},
		{"negative", "c", "", "-1", inventory.VerbApply, 0, `serial is "-1"`},
		{"a word", "c", "", "x", inventory.VerbApply, 0, `serial is "x"`},
		{"no share", "c", "", "0%", inventory.VerbApply, 0, `serial is "0%"`},
		{"more than all", "c", "", "200%", inventory.VerbApply, 0, `their share from 1% to 100%`},
		{"a fraction", "c", "", "1.5", inventory.VerbApply, 0, `serial is "1.5"`},
		{"a sign", "c", "", "+1", inventory.VerbApply, 0, `serial is "+1"`},
		{"more than fits", "c", "", "99999999999999999999", inventory.VerbApply, 0, "serial is"},
		{"negative failures", "c", "", "1", inventory.VerbApply, -1, "max_failures is -1"},
		{"failures of one batch", "c", "", "", inventory.VerbApply, 1, "set serial to the size of a batch"},
		{"another verb", "c", "", "1", inventory.VerbClear, 0, "clear does not accept serial"},
		{"failures of another verb", "c", "", "", inventory.VerbClear, 2, "does not accept max_failures"},
		{"apply", "a b c d", "", "9", inventory.VerbApply, 0, ""},
		{"both masters at once", "a b", "", "", inventory.VerbUpdate, 0, "without a-1, b-1"},
		{"both masters in one batch", "a b", "", "2", inventory.VerbUpdate, 0, "without a-1, b-1"},
		{"both masters one by one", "a b", "", "1", inventory.VerbUpdate, 0, ""},
		{"all nodes one by one", "a b c d", "", "25%", inventory.VerbUpdate, 0, ""},
		{"both masters into workers", "a b", inventory.GroupWorker, "1", inventory.VerbUpdate, 0,
			"in batch 2 of 2: without b-1"},
	} {
		r := request(tt.verb, tt.labels, tt.group)
		r.Serial, r.MaxFailures = tt.serial, tt.failures

		j, err := Accept(*jobtest.Snapshot(t, nodes...), inventory.DefaultGroups(), r)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
		if err == nil && (j.Serial != tt.serial || j.MaxFailures != tt.failures) {
			t.Errorf("%s: accepted as %+v", tt.name, j)
		}
	}
}

// TestServing expects the rules to count the targets of a job in batches as they
// serve, though the job holds all of them.
func TestServing(t *testing.T) {
	t.Parallel()

	groups := inventory.DefaultGroups()
	v := jobtest.Snapshot(t, "a m Allocated Discovered", "b m Allocated Discovered", "c m Allocated Discovered",
		"w w Allocated Discovered")

	r := request(inventory.VerbUpdate, "a b c", "")
	r.Serial, r.MaxFailures = "1", 9
	queue(t, v, r)
	claimed(t, v, "1")

	j := *v.Jobs()[0]
	serves := func() string {
		var names []string
		for _, n := range j.Serving(v.Nodes()) {
			if n.Commissioned() {
				names = append(names, n.Label)
			}
		}

		return strings.Join(names, " ")
	}
	expect := func(serving, helpers string) {
		t.Helper()

		if got := serves(); got != serving {
			t.Errorf("after %d runs %q serve, want %q", len(j.Runs), got, serving)
		}

		if got := j.HelpersOf(*j.LastRun(), j.Serving(v.Nodes()), groups); strings.Join(got, " ") != helpers {
			t.Errorf("after %d runs the helpers are %q, want %q", len(j.Runs), got, helpers)
		}
	}
	run := func(exit string) {
		t.Helper()

		step := Plan(j, jobtest.Noon, RulesOf(j, v.Nodes(), groups))
		if step.Kind == "" {
			t.Fatalf("ended: %+v", step)
		}
		jobtest.Record(&j, step, exit)
	}

	if got := serves(); got != "a b c w" {
		t.Errorf("before its begin %q serve", got)
	}

	run(ExitDone) // the cleanup of a
	expect("b c w", "b-1")
	run("failed a-1=failed")

	// The cleanup after the failure may run: b and c serve.
	run(ExitDone)
	expect("b c w", "b-1")
	run(ExitDone) // the cleanup of b
	expect("c w", "c-1")
	run(ExitDone)
	expect("b c w", "c-1")

	// b disappears, so c is the last master of w.
	v.Nodes()[1].State = inventory.Disappeared
	end := Plan(j, jobtest.Noon, RulesOf(j, v.Nodes(), groups))

	if end.Kind != "" || !strings.Contains(end.Message, "without c-1") ||
		end.Outcomes["c-1"].Status != inventory.Allocated {
		t.Errorf("planned %+v", end)
	}

	if got := end.Outcomes["b-1"]; got.Status != inventory.Allocated || got.Error != "" {
		t.Errorf("b ends as %+v", got)
	}
}
