// SPDX-License-Identifier: Apache-2.0

package job_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	. "github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/job/jobtest"
)

// configuringVerbs are the verbs that put a configuration on their nodes.
func configuringVerbs() []inventory.Verb {
	var verbs []inventory.Verb
	for _, v := range Verbs() {
		if v.Row.Success == inventory.Allocated && !v.Row.Verifies {
			verbs = append(verbs, v.Name)
		}
	}

	return verbs
}

// configuringJob is a Running job on nodes a and b, of the only status that the verb takes.
func configuringJob(v inventory.Verb) Job {
	row, _ := inventory.TransitionOf(v)

	from, group := string(row.From[0]), " -"
	if row.From[0] == inventory.Allocated {
		group = " service-worker"
	}

	joined := ""
	if row.From[0] != inventory.Allocated {
		joined = inventory.GroupWorker
	}
	j := jobtest.Planned(v, joined, "a "+from+group, "b "+from+group)
	j.PlaybookDigest, j.ExtraNames = "digest", []string{"x"}
	j.Targets[0].Variables, j.Targets[1].Variables = "k-a", "k-b"

	return j
}

// TestConfigured: every verb that configures nodes records the configuration, on each node
// that it has configured to the end.
func TestConfigured(t *testing.T) {
	t.Parallel()

	verbs := configuringVerbs()
	for _, v := range []inventory.Verb{
		inventory.VerbCommission, inventory.VerbUpdate, inventory.VerbApply, inventory.VerbMaintenance,
	} {
		if !slices.Contains(verbs, v) {
			t.Errorf("%s configures no node", v)
		}
	}

	for _, v := range verbs {
		step := finishAll(t, configuringJob(v), func(Step) string { return "done" })

		for name, o := range step.Outcomes {
			want := &inventory.Configured{
				Configuration: inventory.Configuration{
					Playbooks: "digest", Group: inventory.GroupWorker, Variables: "k-" + name,
				},
				Time: jobtest.Noon, Extra: []string{"x"},
			}
			if !reflect.DeepEqual(o.Configured, want) || o.Applied != "5" {
				t.Errorf("%s: %s got %+v by job %q", v, name, o.Configured, o.Applied)
			}
		}
	}
}

// TestNotConfigured: no node has a configuration of a job that failed, was cancelled, or
// left out tasks. One that the job did not touch keeps its own.
func TestNotConfigured(t *testing.T) {
	t.Parallel()

	for _, v := range configuringVerbs() {
		row, _ := inventory.TransitionOf(v)

		for _, ending := range []string{"failed a=half-way b=half-way", "cancelled a=begun b=begun", "never"} {
			step := finishAll(t, configuringJob(v), func(s Step) string {
				if s.Phase.Configures() {
					return ending
				}
				return "done"
			})

			for name, o := range step.Outcomes {
				untouched := ending == "never" && row.KeepsService
				if o.Configured != nil || untouched != (o.Applied == "3") {
					t.Errorf("%s, %s: %s got %+v by job %q", v, ending, name, o.Configured, o.Applied)
				}
			}
		}

		if !row.Accepts(inventory.FieldTags) {
			continue
		}

		for _, options := range []inventory.JobOptions{
			{SharedOptions: inventory.SharedOptions{Tags: []string{"web"}}},
			{SharedOptions: inventory.SharedOptions{SkipTags: []string{"web"}}},
			{Check: true},
		} {
			j := configuringJob(v)
			j.JobOptions = options

			step := finishAll(t, j, func(Step) string { return "done" })
			for name, o := range step.Outcomes {
				if o.Configured != nil || options.Check != (o.Applied == "3") {
					t.Errorf("%s with %+v: %s got %+v by job %q", v, options, name, o.Configured, o.Applied)
				}
			}
		}
	}
}

// TestConfiguredInBatches: a node was configured when its own batch was.
func TestConfiguredInBatches(t *testing.T) {
	t.Parallel()

	j := configuringJob(inventory.VerbApply)
	j.Serial = "1"

	ends := jobtest.Noon

	for {
		s := Plan(j, jobtest.Noon.Add(time.Hour), nobodyMinds)
		if s.Kind == "" {
			first, second := s.Outcomes["a"].Configured.Time, s.Outcomes["b"].Configured.Time
			if !first.Equal(jobtest.Noon.Add(time.Minute)) || !second.Equal(jobtest.Noon.Add(2*time.Minute)) {
				t.Errorf("configured at %s and %s", first, second)
			}
			return
		}

		jobtest.Record(&j, s, "done")

		ends = ends.Add(time.Minute)
		j.LastRun().Ended = ends
	}
}

// finishAll plans the job to its end, with the exit of each step.
func finishAll(t *testing.T, j Job, exit func(Step) string) Step {
	t.Helper()

	for range 20 {
		s := Plan(j, jobtest.Noon, nobodyMinds)
		if s.Kind == "" {
			return s
		}
		jobtest.Record(&j, s, exit(s))
	}

	t.Fatalf("%s does not end", j.Verb)

	return Step{}
}
