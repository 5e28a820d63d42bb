// SPDX-License-Identifier: Apache-2.0

package job

import (
	"slices"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
)

// FindingKind is what a verification found about a task.
type FindingKind string

// The kinds of finding.
const (
	FindingDiffers  FindingKind = "differs"  // the task would change the node
	FindingFailed   FindingKind = "failed"   // a check of verify.yml failed, or a task failed in check mode
	FindingUnjudged FindingKind = "unjudged" // check mode kept the task from being judged, at least in part
	FindingExecuted FindingKind = "executed" // the task ran, and reported a change
)

// TaskFinding is what a verification found about one task on a node.
type TaskFinding struct {
	Kind     FindingKind
	Playbook string
	Play     string
	Role     string
	Task     string
	Action   string // the module
	Path     string // FILE:LINE, in the playbooks
	Message  string // of a failure
	Diff     string // in the format of diff -u, if the module reports one; secrets are hidden
}

// Difference is what the last verification of a node found.
type Difference struct {
	Node    string
	Verdict inventory.Verdict
	Tasks   []TaskFinding
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
		kind FindingKind
		is   bool
	}{
		{FindingFailed, failed && counts},
		{FindingDiffers, e.Foreseen},
		{FindingUnjudged, e.Unjudged},
		{FindingExecuted, e.Changed && (e.Executed || r.Phase == PhaseVerify && !e.Foreseen)},
	} {
		if found.is {
			d.add(found.kind, r, e)
		}
	}
}

func (d *Difference) add(kind FindingKind, r Run, e configuration.Event) {
	if len(d.Tasks) == maxFindings {
		d.Truncated = true
		return
	}

	f := TaskFinding{
		Kind: kind, Playbook: r.Playbook, Play: e.Play, Role: e.Role, Task: e.Task, Action: e.Action, Path: e.Path,
	}

	switch kind {
	case FindingFailed:
		f.Message = e.Message
	case FindingDiffers:
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
