// SPDX-License-Identifier: Apache-2.0

package job

import (
	"slices"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// Difference is what the last verification of a node found.
type Difference struct {
	Node    string
	Verdict inventory.Verdict
	Tasks   []api.TaskFinding
	// Truncated: the job's events, or the findings, reached their limit.
	Truncated bool
}

// maxFindings bounds the findings about one node.
const maxFindings = 1000

// Add adds what an event of the run says about the node.
func (d *Difference) Add(r Run, e configuration.Event) {
	if e.Event == configuration.EventTruncated || e.Lost > 0 {
		d.Truncated = true
	}

	if e.Host != d.Node {
		return
	}

	failed := e.Event == configuration.EventUnreachable || e.Event == configuration.EventFailed && e.Item == ""
	res := r.Results[d.Node]

	// The playbook may live with the failure. Then it counts unless the task is executed in spite of the check, and
	// so fails in any run.
	tolerated := e.Ignored || res.Failed == 0 && !res.Unreachable
	counts := e.Event == configuration.EventUnreachable || !e.Unjudged && !(tolerated && e.Executed)

	for _, found := range []struct {
		kind string
		is   bool
	}{
		{api.FindingFailed, failed && counts},
		{api.FindingDiffers, e.Foreseen},
		{api.FindingUnjudged, e.Unjudged},
		{api.FindingExecuted, e.Changed && (e.Executed || r.Phase == PhaseVerify && !e.Foreseen)},
	} {
		if found.is {
			d.add(found.kind, r, e)
		}
	}
}

func (d *Difference) add(kind string, r Run, e configuration.Event) {
	if len(d.Tasks) == maxFindings {
		d.Truncated = true
		return
	}

	f := api.TaskFinding{
		Kind: kind, Playbook: r.Playbook, Play: e.Play, Role: e.Role, Task: e.Task, Action: e.Action, Path: e.Path,
	}

	switch kind {
	case api.FindingFailed:
		f.Message = e.Message
	case api.FindingDiffers:
		f.Diff = e.Diff
	}

	d.Tasks = append(d.Tasks, f)
}

// Comparisons returns the indexes of the runs that gave the node its verdict.
func (j Job) Comparisons(name string) []int {
	last := map[Phase]int{}

	for i, r := range j.Runs {
		if r.Phase.Verifies() && slices.Contains(r.Hosts, name) {
			last[r.Phase] = i
		}
	}

	var runs []int
	for _, i := range last {
		runs = append(runs, i)
	}

	slices.Sort(runs)

	return runs
}
