// SPDX-License-Identifier: Apache-2.0

package job_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	. "github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/job/jobtest"
)

// configuredBy returns a running job of the verb, pinned to the playbooks "new", on
// targets given as "name from group digest".
func configuredBy(verb inventory.Verb, group string, targets ...string) Job {
	var lines []string

	digests := map[string]string{}
	for _, target := range targets {
		f := strings.Fields(target)
		lines = append(lines, strings.Join(f[:3], " "))
		digests[f[0]] = f[3]
	}

	j := jobtest.Planned(verb, group, lines...)
	j.PlaybookDigest = "new"

	for i := range j.Targets {
		t := &j.Targets[i]
		if d := digests[t.Name]; d != "-" {
			t.Playbooks = map[string]string{t.FromGroup: d}
		}
	}

	return j
}

// walk plans the job to its end. exits are the ends of its runs in turn. It returns
// a line for each step, and the outcomes with their playbooks.
func walk(t *testing.T, j Job, exits ...string) (steps []string, outcomes string) {
	t.Helper()

	for {
		step := Plan(j, jobtest.Noon, nobodyMinds)
		if step.Kind == "" {
			var after []string
			for _, name := range slices.Sorted(maps.Keys(step.Outcomes)) {
				o := step.Outcomes[name]
				after = append(after, strings.TrimSpace(fmt.Sprintf("%s: %s %v", name, o.Status, o.Playbooks)))
			}

			return steps, strings.Join(after, "; ")
		}

		steps = append(steps, show(step)+" with "+step.PlaybookDigest)

		if len(exits) == 0 {
			t.Fatalf("no exit for %s", show(step))
		}

		jobtest.Record(&j, step, exits[0])
		j.Runs[len(j.Runs)-1].PlaybookDigest = step.PlaybookDigest
		exits = exits[1:]
	}
}

// TestOwnPlaybooks: each node is cleaned with the playbooks that configured it, and
// its record has the digest of those that configure it.
func TestOwnPlaybooks(t *testing.T) {
	t.Parallel()

	const w, m = inventory.GroupWorker, inventory.GroupMaster

	current := func(j Job) Job { j.Playbooks = inventory.PlaybooksCurrent; return j }
	residue := func(j Job) Job {
		j.Targets[0].Residue = []string{m, w}
		j.Targets[0].Playbooks = map[string]string{m: "v1", w: "v2"}
		return j
	}

	for _, tt := range []struct {
		name     string
		job      Job
		exits    string
		steps    string
		outcomes string
	}{
		{
			"decommission", configuredBy(inventory.VerbDecommission, "",
				"a Allocated service-worker v1", "b Allocated service-worker v2", "c Allocated service-worker v1",
				"d Allocated service-worker -"),
			"done, failed b=failed, done", `
			cleanup cleanup.yml a:service-worker c:service-worker with v1
			cleanup cleanup.yml b:service-worker with v2
			cleanup cleanup.yml d:service-worker with new`,
			"a: Decommissioned map[]; b: Decommissioned map[service-worker:v2]; c: Decommissioned map[]; " +
				"d: Decommissioned map[]",
		},
		{
			"decommission with the current ones", current(configuredBy(inventory.VerbDecommission, "",
				"a Allocated service-worker v1", "b Allocated service-worker v2")),
			"done", `
			cleanup cleanup.yml a:service-worker b:service-worker with new`,
			"a: Decommissioned map[]; b: Decommissioned map[]",
		},
		{
			"clear", configuredBy(inventory.VerbClear, "",
				"a Quarantined service-worker v1", "b Quarantined service-worker v2"),
			"done, failed b=failed", `
			cleanup cleanup.yml a:service-worker with v1
			cleanup cleanup.yml b:service-worker with v2`,
			"a: Unallocated map[]; b: Quarantined map[service-worker:v2]",
		},
		{
			"update", configuredBy(inventory.VerbUpdate, m,
				"a Allocated service-worker v1", "b Allocated service-worker v2"),
			"done, done, done", `
			cleanup cleanup.yml a:service-worker with v1
			cleanup cleanup.yml b:service-worker with v2
			configure site.yml a:service-master b:service-master with new`,
			"a: Allocated map[service-master:new]; b: Allocated map[service-master:new]",
		},
		{
			"update with a second cleanup that fails", configuredBy(inventory.VerbUpdate, "",
				"a Allocated service-worker v1", "b Allocated service-worker v2", "c Allocated service-worker v2",
				"d Allocated service-worker v3"),
			"done, failed b=failed c=none, done, failed b=failed", `
			cleanup cleanup.yml a:service-worker with v1
			cleanup cleanup.yml b:service-worker c:service-worker with v2
			undo cleanup.yml a:service-worker with v1
			undo cleanup.yml b:service-worker with v2`,
			"a: Unallocated map[]; b: Quarantined map[service-worker:v2]; c: Allocated map[service-worker:v2]; " +
				"d: Allocated map[service-worker:v3]",
		},
		{
			"update whose configuration fails", configuredBy(inventory.VerbUpdate, "",
				"a Allocated service-worker v1", "b Allocated service-worker v2"),
			"done, done, failed a=failed, failed a=failed b=done", `
			cleanup cleanup.yml a:service-worker with v1
			cleanup cleanup.yml b:service-worker with v2
			configure site.yml a:service-worker b:service-worker with new
			undo cleanup.yml a:service-worker b:service-worker with new`,
			"a: Quarantined map[service-worker:new]; b: Unallocated map[]",
		},
		{
			"commission with residue", residue(configuredBy(inventory.VerbCommission, w, "a Decommissioned - -")),
			"done, done, done", `
			residue cleanup.yml a:service-master with v1
			residue cleanup.yml a:service-worker with v2
			configure site.yml a:service-worker with new`,
			"a: Allocated map[service-worker:new]",
		},
		{
			"commission with residue that stays",
			residue(configuredBy(inventory.VerbCommission, w, "a Decommissioned - -")),
			"done, failed a=failed", `
			residue cleanup.yml a:service-master with v1
			residue cleanup.yml a:service-worker with v2`,
			"a: Unallocated map[service-worker:v2]",
		},
		{
			"maintenance", configuredBy(inventory.VerbMaintenance, "",
				"a Allocated service-worker v1", "b Allocated service-worker v2", "c Allocated service-worker v3"),
			"failed a=done b=failed c=none", `
			upgrade rolling-upgrade.yml a:service-worker b:service-worker c:service-worker with new`,
			"a: Allocated map[service-worker:new]; b: Allocated map[service-worker:new]; " +
				"c: Allocated map[service-worker:v3]",
		},
		{
			"apply", configuredBy(inventory.VerbApply, "", "a Allocated service-worker v1"),
			"never", `
			apply site.yml a:service-worker with new`,
			"a: Allocated map[service-worker:v1]",
		},
	} {
		steps, outcomes := walk(t, tt.job, strings.Split(tt.exits, ", ")...)

		var want []string
		for line := range strings.Lines(strings.TrimSpace(tt.steps)) {
			want = append(want, strings.TrimSpace(line))
		}

		if !slices.Equal(steps, want) {
			t.Errorf("%s: got the steps\n%s", tt.name, strings.Join(steps, "\n"))
		}

		if outcomes != tt.outcomes {
			t.Errorf("%s: got the outcomes\n%s", tt.name, outcomes)
		}
	}
}

// TestOwnPlaybooksOfAJob: a job names the playbooks of its nodes, and keeps them until it ends.
func TestOwnPlaybooksOfAJob(t *testing.T) {
	t.Parallel()

	j := configuredBy(inventory.VerbDecommission, "",
		"a Allocated service-worker v1", "b Allocated service-worker v2", "c Allocated service-worker v1")

	own, others := j.Own()
	if want := map[string][]string{"v1": {"a", "c"}, "v2": {"b"}}; !reflect.DeepEqual(own, want) || others {
		t.Errorf("own %v, others %v", own, others)
	}

	if got := j.InUse(); !slices.Equal(got, []string{"new", "v1", "v2"}) {
		t.Errorf("in use: %v", got)
	}

	if j.Status = Complete; !slices.Equal(j.InUse(), []string{"new"}) {
		t.Errorf("in use after the end: %v", j.InUse())
	}

	for _, j := range []Job{
		configuredBy(inventory.VerbDecommission, "", "a Allocated service-worker -"),
		configuredBy(inventory.VerbMaintenance, "", "a Allocated service-worker v1"),
		configuredBy(inventory.VerbCommission, inventory.GroupWorker, "a Unallocated - -"),
	} {
		if own, others := j.Own(); len(own) > 0 || !others {
			t.Errorf("%s: own %v, others %v", j.Verb, own, others)
		}
	}

	// Only a failed cleaning needs clean.yml of the folder of today.
	for _, uncleaned := range []bool{false, true} {
		j := configuredBy(inventory.VerbClear, "", "a Quarantined service-worker v1", "b Quarantined service-worker v1")
		j.Targets[1].Uncleaned = uncleaned

		if _, others := j.Own(); others != uncleaned {
			t.Errorf("clear, with a failed cleaning %t: others %v", uncleaned, others)
		}
	}

	if own, others := configuredBy(inventory.VerbUpdate, "", "a Allocated service-worker v1").Own(); !others ||
		!reflect.DeepEqual(own, map[string][]string{"v1": {"a"}}) {
		t.Errorf("update: own %v, others %v", own, others)
	}
}

// TestRecall: the job that configured a node has the playbooks of which the node has
// no record.
func TestRecall(t *testing.T) {
	t.Parallel()

	v := jobtest.Snapshot(t, "a w Allocated Discovered", "b w Allocated Discovered", "c w Allocated Discovered",
		"d w Allocated Discovered", "e m Allocated Discovered")
	for i, applied := range []string{"1", "2", "3", "", "1"} {
		v.Nodes()[i].Applied = applied
	}

	v.Nodes()[4].Playbooks = map[string]string{inventory.GroupMaster: "own"}
	v.SetJobs([]*Job{
		{ID: "1", Status: Complete, PlaybookDigest: "old"},
		{ID: "2", Status: Complete, PlaybookDigest: "gone"},
	}...)
	kept := func(digest string) bool { return digest == "old" }

	accept := func(r Request) Job {
		t.Helper()

		r.Nodes, r.Timeout = jobtest.Names("a b c d e"), time.Hour

		j, err := Accept(*v, inventory.DefaultGroups(), r)
		if err != nil {
			t.Fatal(err)
		}
		return j
	}

	j := accept(Request{Verb: inventory.VerbDecommission})
	unknown := v.Recall(&j, kept)

	var digests []string
	for _, target := range j.Targets {
		digests = append(digests, fmt.Sprint(target.Playbooks[target.FromGroup]))
	}

	if got := strings.Join(digests, ","); got != "old,,,,own" || !slices.Equal(unknown, jobtest.Names("b c d")) {
		t.Errorf("%s, unknown %v", got, unknown)
	}

	// The claim takes the nodes as they are, and keeps the find.
	j.ID = "9"
	if turn := TurnOf(*v, inventory.DefaultGroups(), 4, j); !turn.Claim ||
		turn.Job.Targets[0].Playbooks[inventory.GroupWorker] != "old" {
		t.Errorf("%+v", turn)
	}

	current := accept(
		Request{
			Verb:       inventory.VerbDecommission,
			JobOptions: inventory.JobOptions{Playbooks: inventory.PlaybooksCurrent},
		},
	)
	upgrade := accept(Request{Verb: inventory.VerbMaintenance})

	for _, j := range []Job{current, upgrade} {
		if unknown := v.Recall(&j, kept); len(unknown) > 0 || len(j.Targets[0].Playbooks) > 0 {
			t.Errorf("%s: %v, unknown %v", j.Verb, j.Targets[0].Playbooks, unknown)
		}
	}
}
