// SPDX-License-Identifier: Apache-2.0

package job_test

import (
	"slices"
	"testing"

	"github.com/contiv/cluster/inventory"
	. "github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/job/jobtest"
)

func TestPlanVerify(t *testing.T) {
	t.Parallel()

	two := []string{"a Allocated service-worker", "b Allocated service-worker"}
	verify := func(change ...func(*Job)) Job {
		j := jobtest.Planned(inventory.VerbVerify, "", two...)
		for _, c := range change {
			c(&j)
		}

		return j
	}

	for name, tt := range map[string]struct {
		job   Job
		story string
	}{
		"clean": {verify(), `
			verify verify.yml a:service-worker b:service-worker
			> done
			drift site.yml a:service-worker b:service-worker
			> done
			cancel
			Complete
			reason: 2 nodes verified clean
			a: Allocated service-worker 3
			b: Allocated service-worker 3`},
		"without verify.yml": {verify(func(j *Job) { j.PlaybookDigest, j.WithoutVerify = "x", []string{"x"} }), `
			drift site.yml a:service-worker b:service-worker
			> done
			Complete
			reason: 2 nodes verified clean`},
		"site.yml would change something": {verify(), `
			verify verify.yml a:service-worker b:service-worker
			> done
			drift site.yml a:service-worker b:service-worker
			> done b=differs
			Errored drifted
			reason: 1 of 2 nodes drifted: b (2 tasks would change)
			a: Allocated service-worker 3
			b: Allocated service-worker 3 | drifted: 2 tasks would change`},
		"a change that was not applied counts, and is named": {verify(func(j *Job) {
			j.Targets[0].Variables, j.Targets[0].Configured = "k-new", "k-old"
			j.Targets[1].Variables, j.Targets[1].Configured = "k-new", "other-old"
		}), `
			verify verify.yml a:service-worker b:service-worker
			> done
			drift site.yml a:service-worker b:service-worker
			> done a=differs b=differs
			Errored drifted
			a: Allocated service-worker 3 | drifted: 2 tasks would change; compared with a configuration that was not applied yet
			b: Allocated service-worker 3 | drifted: 2 tasks would change`},
		"playbooks that were not applied count, and are named": {verify(func(j *Job) {
			j.Playbooks, j.PlaybookDigest = inventory.PlaybooksCurrent, "new"
			j.Targets[0].Playbooks = map[string]string{"service-worker": "old"}
			j.Targets[1].Playbooks = map[string]string{"service-worker": "new"}
		}), `
			verify verify.yml a:service-worker b:service-worker
			> done
			drift site.yml a:service-worker b:service-worker
			> done a=differs
			Errored drifted
			a: Allocated service-worker 3 | drifted: 2 tasks would change; compared with a configuration that was not applied yet
			b: Allocated service-worker 3`},
		"verify.yml fails": {verify(), `
			verify verify.yml a:service-worker b:service-worker
			> failed a=failed b=done
			drift site.yml a:service-worker b:service-worker
			> failed a=differs b=unreachable
			Errored drifted
			reason: 1 of 2 nodes drifted: a (2 tasks would change; verify.yml: task "Install": no such package); 1 of 2 nodes unknown: b (site.yml in check mode: unreachable: timed out)
			a: Allocated service-worker 3 | drifted: 2 tasks would change; verify.yml: task "Install": no such package
			b: Allocated service-worker 3 | unknown: site.yml in check mode: unreachable: timed out`},
		"an unreachable host is tried once": {verify(), `
			verify verify.yml a:service-worker b:service-worker
			> failed a=unreachable b=done
			drift site.yml b:service-worker
			> done
			Errored failed
			reason: 1 of 2 nodes unknown: a (verify.yml: unreachable: timed out)
			a: Allocated service-worker 3 | unknown: verify.yml: unreachable: timed out
			b: Allocated service-worker 3`},
		"a failure in check mode is no verdict, a difference before it is": {verify(), `
			verify verify.yml a:service-worker b:service-worker
			> done
			drift site.yml a:service-worker b:service-worker
			> failed a=failed b=differs-failed
			Errored drifted
			a: Allocated service-worker 3 | unknown: site.yml in check mode: task "Install": no such package
			b: Allocated service-worker 3 | drifted: 1 task would change; site.yml in check mode: task "Install": no such package`},
		"what check mode cannot judge": {verify(), `
			verify verify.yml a:service-worker b:service-worker
			> done
			drift site.yml a:service-worker b:service-worker
			> done a=unjudged b=probed
			Complete
			reason: 2 nodes verified clean
			a: Allocated service-worker 3
			b: Allocated service-worker 3`},
		"a task that is executed, and changes the node": {verify(), `
			verify verify.yml a:service-worker b:service-worker
			> done
			drift site.yml a:service-worker b:service-worker
			> done b=executed
			Errored failed
			reason: 1 of 2 nodes unknown: b (site.yml changed it in spite of check mode; 1 task executed for real)
			a: Allocated service-worker 3
			b: Allocated service-worker | unknown: site.yml changed it in spite of check mode; 1 task executed for real`},
		"what check mode cannot judge is unknown under strict": {verify(func(j *Job) { j.Strict = true }), `
			verify verify.yml a:service-worker b:service-worker
			> done
			drift site.yml a:service-worker b:service-worker
			> done a=unjudged b=probed
			Errored failed
			reason: 1 of 2 nodes unknown: a (strict; 1 task not judged by check mode)
			b: Allocated service-worker 3`},
		"a node that no task judged is not clean": {verify(func(j *Job) {
			j.PlaybookDigest, j.WithoutVerify = "x", []string{"x"}
		}), `
			drift site.yml a:service-worker b:service-worker
			> done a=skipped
			Errored failed
			reason: 1 of 2 nodes unknown: a (no task judged the node; 3 tasks not judged by check mode)`},
		"verify.yml alone judges": {verify(), `
			verify verify.yml a:service-worker b:service-worker
			> done
			drift site.yml a:service-worker b:service-worker
			> done a=skipped
			Complete
			reason: 2 nodes verified clean`},
		"a failure that a playbook ignores": {verify(), `
			verify verify.yml a:service-worker b:service-worker
			> done a=doubtful
			drift site.yml a:service-worker b:service-worker
			> done b=doubtful
			Errored failed
			reason: 2 of 2 nodes unknown: a (verify.yml: task "Start" failed, which the playbook ignores: x); b (site.yml in check mode: task "Start" failed, which the playbook ignores: x)`},
		"every check of verify.yml counts, although the playbook goes on": {verify(), `
			verify verify.yml a:service-worker b:service-worker
			> done a=ignored
			drift site.yml a:service-worker b:service-worker
			> done
			Errored drifted
			reason: 1 of 2 nodes drifted: a (verify.yml: task "Port" failed, which the playbook ignores: closed; 1 more check failed)`},
		"a task of verify.yml in check mode": {verify(), `
			verify verify.yml a:service-worker b:service-worker
			> done a=differs
			drift site.yml a:service-worker b:service-worker
			> done
			Errored drifted
			reason: 1 of 2 nodes drifted: a (2 tasks would change)`},
		"a cancel keeps what is known": {verify(), `
			verify verify.yml a:service-worker b:service-worker
			> failed a=failed b=done
			drift site.yml a:service-worker b:service-worker
			cancel
			> cancelled a=differs b=begun
			Cancelled cancelled
			a: Allocated service-worker 3 | drifted: 2 tasks would change; verify.yml: task "Install": no such package
			b: Allocated service-worker 3 | unknown: site.yml in check mode broke off: cancelled by anna`},
		"a cancel before the first run leaves the earlier verdict": {verify(), `
			cancel
			Cancelled cancelled
			a: Allocated service-worker 3 | not verified: cancelled by anna
			b: Allocated service-worker 3 | not verified: cancelled by anna`},
		"a cancel between the runs": {verify(), `
			verify verify.yml a:service-worker b:service-worker
			cancel
			> done
			Cancelled cancelled
			a: Allocated service-worker 3 | unknown: not compared: cancelled by anna`},
		"an interrupted run is repeated": {verify(), `
			verify verify.yml a:service-worker b:service-worker
			> interrupted
			verify verify.yml a:service-worker b:service-worker
			> done
			drift site.yml a:service-worker b:service-worker
			> interrupted
			drift site.yml a:service-worker b:service-worker
			> done
			Complete
			reason: 2 nodes verified clean`},
		"an interrupted run is repeated once": {verify(), `
			verify verify.yml a:service-worker b:service-worker
			> done
			drift site.yml a:service-worker b:service-worker
			> interrupted
			drift site.yml a:service-worker b:service-worker
			> interrupted
			Errored interrupted`},
		"drift is no failure that stops the batches": {verify(func(j *Job) { j.Serial = "1" }), `
			verify verify.yml a:service-worker
			> failed a=failed
			drift site.yml a:service-worker
			> done
			verify verify.yml b:service-worker
			> done
			drift site.yml b:service-worker
			> done b=differs
			Errored drifted
			reason: 2 of 2 nodes drifted: a (verify.yml: task "Install": no such package); b (2 tasks would change)`},
		"a node without a verdict stops them": {verify(func(j *Job) { j.Serial = "1" }), `
			verify verify.yml a:service-worker
			> failed a=unreachable
			Errored failed
			reason: 2 of 2 nodes unknown: a (verify.yml: unreachable: timed out); b (not begun: 1 node failed and max_failures is 0)`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tell(t, tt.job, nobodyMinds, tt.story)
		})
	}
}

// TestVerdict: a verification leaves the record as it was, but for the verdict, and a
// job that may have changed the host clears the verdict.
func TestVerdict(t *testing.T) {
	t.Parallel()

	j := jobtest.Planned(inventory.VerbVerify, "", "a Allocated service-worker", "b Allocated service-worker")
	jobtest.Record(&j, Plan(j, jobtest.Noon, nobodyMinds), "done a=changed")
	jobtest.Record(&j, Plan(j, jobtest.Noon, nobodyMinds), "done b=unjudged")

	end := Plan(j, jobtest.Noon, nobodyMinds)
	o := end.Outcomes["a"]

	want := inventory.Verdict{Result: inventory.Clean, Time: jobtest.Noon, Job: "5", Executed: 3}
	if !o.AsBefore || *o.Verdict != want {
		t.Errorf("%+v, verdict %+v", o, o.Verdict)
	}

	const note = "a: 3 tasks executed for real; b: 1 task not judged by check mode"
	if end.Note != note {
		t.Errorf("the note is %q", end.Note)
	}

	for exit, untouched := range map[string]bool{
		"done": false, "failed a=failed": false, "failed a=closed": true, "never": true, "interrupted": true,
	} {
		apply := jobtest.Planned(inventory.VerbApply, "", "a Allocated service-worker")
		jobtest.Record(&apply, Plan(apply, jobtest.Noon, nobodyMinds), exit)

		if o := Plan(apply, jobtest.Noon, nobodyMinds).Outcomes["a"]; o.Untouched != untouched {
			t.Errorf("apply that ends %s: %+v", exit, o)
		}
	}
}

// TestVerdictOfFailedChecks: a node that failed a check of verify.yml does not serve as it should, also if the
// playbook goes on after it. A difference alone, and a failure in check mode, are no failed check.
func TestVerdictOfFailedChecks(t *testing.T) {
	t.Parallel()

	for exits, failed := range map[[2]string]bool{
		{"failed a=failed", "done"}: true,
		{"done a=ignored", "done"}:  true,
		{"done a=differs", "done"}:  false,
		{"done", "done a=differs"}:  false,
		{"done", "done a=ignored"}:  false,
		{"done a=doubtful", "done"}: false,
		{"done", "failed a=failed"}: false,
	} {
		j := jobtest.Planned(inventory.VerbVerify, "", "a Allocated service-worker")
		for _, exit := range exits {
			if step := Plan(j, jobtest.Noon, nobodyMinds); step.Playbook != "" {
				jobtest.Record(&j, step, exit)
			}
		}

		if v := Plan(j, jobtest.Noon, nobodyMinds).Outcomes["a"].Verdict; v == nil || v.Failed != failed {
			t.Errorf("%q: %+v", exits, v)
		}
	}
}

// TestVerificationThatChanged: after a verification that executed a part of site.yml, the
// applied configuration is unknown, and the node keeps everything else.
func TestVerificationThatChanged(t *testing.T) {
	t.Parallel()

	for exit, known := range map[string]bool{
		"done a=executed": false, "done a=probed": true, "done a=differs": true, "failed a=executed-failed": false,
		"interrupted a=executed": false,
	} {
		j := configuredBy(inventory.VerbVerify, "", "a Allocated service-worker v1")
		j.Targets[0].Residue = []string{"service-master"}

		step := finishAll(t, j, func(s Step) string {
			if s.Phase == PhaseDrift {
				return exit
			}
			return "done"
		})

		o := step.Outcomes["a"]
		if o.AsBefore != known || (o.Applied == "3") != known || o.Status != inventory.Allocated ||
			o.Group != "service-worker" || o.Playbooks["service-worker"] != "v1" ||
			!slices.Equal(o.Residue, []string{"service-master"}) {
			t.Errorf("%s: %+v", exit, o)
		}

		if !known && (o.Verdict.Result == inventory.Clean || o.Error != o.Verdict.Describe()) {
			t.Errorf("%s: %+v", exit, o.Verdict)
		}
	}
}

// TestVerifyWithOwnPlaybooks: each node is compared with the playbooks that configured
// it, unless the request wants those of today.
func TestVerifyWithOwnPlaybooks(t *testing.T) {
	t.Parallel()

	j := configuredBy(inventory.VerbVerify, "", "a Allocated service-worker v1", "b Allocated service-worker v2")
	j.WithoutVerify = []string{"v2"}

	steps, _ := walk(t, j, "done", "done", "done")
	if want := []string{
		"verify verify.yml a:service-worker with v1",
		"drift site.yml a:service-worker with v1",
		"drift site.yml b:service-worker with v2",
	}; !slices.Equal(steps, want) {
		t.Errorf("%q", steps)
	}

	targets, others := j.Own()
	if others || !slices.Equal(targets["v1"], []string{"a"}) || !slices.Equal(targets["v2"], []string{"b"}) {
		t.Errorf("%v, and others: %v", targets, others)
	}

	j.Playbooks = inventory.PlaybooksCurrent

	steps, _ = walk(t, j, "done", "done")
	if want := []string{
		"verify verify.yml a:service-worker b:service-worker with new",
		"drift site.yml a:service-worker b:service-worker with new",
	}; !slices.Equal(steps, want) {
		t.Errorf("%q", steps)
	}

	if targets, others := j.Own(); !others || len(targets) > 0 {
		t.Errorf("%v, and others: %v", targets, others)
	}
}
