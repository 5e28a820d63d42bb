// SPDX-License-Identifier: Apache-2.0

// Package jobtest builds snapshots and jobs for tests from short lines of text.
package jobtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
)

// Noon is the time at which tests begin.
var Noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// Snapshot reads nodes from "name group status state" lines: group m, w or - (none).
func Snapshot(t *testing.T, lines ...string) *job.Snapshot {
	t.Helper()

	v := &job.Snapshot{}
	for i, l := range lines {
		f := strings.Fields(l)
		n := inventory.Node{
			Name: f[0] + "-1", Label: f[0], Serial: "1", Addr: fmt.Sprintf("10.0.0.%d", i+1),
			Group: map[string]string{"m": inventory.GroupMaster, "w": inventory.GroupWorker, "-": ""}[f[1]],
		}
		var err, err2 error
		n.Status, err = inventory.ParseStatus(f[2])

		n.State, err2 = inventory.ParseState(f[3])
		if err != nil || err2 != nil {
			t.Fatal(l, err, err2)
		}

		if n.Status.InProgress() {
			n.Job = "99"
		}

		v.PutNode(&n)
	}

	return v
}

// With returns a snapshot of nodes.
func With(nodes ...*inventory.Node) job.Snapshot {
	var s job.Snapshot
	s.SetNodes(nodes...)
	return s
}

// SetNewest sets the number of the newest job.
func SetNewest(v *job.Snapshot, n uint64) { v.View = record.Set(v.View, &job.Newest, "", &n) }

// Records are the view's nodes by value, for comparing and for printing.
func Records(v *job.Snapshot) []inventory.Node {
	out := make([]inventory.Node, len(v.Nodes()))
	for i, n := range v.Nodes() {
		out[i] = *n
	}

	return out
}

// List returns the jobs as a snapshot lists them.
func List(jobs ...job.Job) []*job.Job {
	out := make([]*job.Job, len(jobs))
	for i := range jobs {
		out[i] = &jobs[i]
	}

	return out
}

// Copies returns copies of the jobs of a snapshot, for a change.
func Copies(jobs []*job.Job) []*job.Job {
	out := make([]*job.Job, len(jobs))
	for i, j := range jobs {
		c := *j
		out[i] = &c
	}

	return out
}

// Names returns the node names of labels: "a b" gives a-1 and b-1.
func Names(labels string) []string {
	out := strings.Fields(labels)
	for i := range out {
		out[i] += "-1"
	}

	return out
}

// Planned is a Running job on targets given as "name from group [residue…]".
func Planned(verb inventory.Verb, group string, targets ...string) job.Job {
	j := job.Job{
		ID:       "5",
		Verb:     verb,
		Status:   job.Running,
		Group:    group,
		Started:  Noon,
		Timeout:  time.Hour,
		Deadline: Noon.Add(time.Hour),
	}

	v, err := job.VerbOf(verb)
	if err != nil {
		panic(err)
	}
	if v.Row.Accepts(inventory.FieldOnFailure) {
		j.OnFailure = inventory.OnFailureBatch
	}

	for _, s := range targets {
		f := strings.Fields(s)

		target := job.Target{Name: f[0], Addr: f[0] + ".example", From: inventory.Status(f[1])}
		if f[2] != "-" {
			target.FromGroup = f[2]
		}
		if target.From == inventory.Allocated {
			target.Applied = "3"
		}

		target.Residue = f[3:]

		switch {
		case v.Row.TakesAddrs:
			target.Group = inventory.GroupPrepare
		case v.GroupAfter != nil:
			target.Group = v.GroupAfter(j, inventory.Node{Group: target.FromGroup})
		}

		j.Targets = append(j.Targets, target)
	}

	return j
}

// Record adds how the step's run ended: "exit host=result…", where a result is
// done, failed, unreachable, begun, none, changed (done with changes), half-way
// (failed after changes), differs, unjudged, executed, skipped (nothing judged) or doubtful
// (done in check mode), or differs-failed. Hosts that are not named are done
// after a run that is, and untouched after any other.
func Record(j *job.Job, s job.Step, exit string) {
	f := strings.Fields(exit)

	r := job.Run{
		Kind:     s.Kind,
		Phase:    s.Phase,
		Playbook: s.Playbook,
		Hosts:    s.Hosts,
		Groups:   s.Groups,
		Ended:    Noon,
		Exit:     f[0],
		Results:  map[string]job.HostResult{},
	}
	switch f[0] {
	case "failed":
		r.Code = 2
	case "aborted": // ansible-playbook gave up by itself
		r.Exit, r.Code, r.Message = "failed", 4, "ERROR! no vault secrets found"
	case "never": // ansible-playbook was not even started
		r.Exit, r.NotBegun, r.Message = "internal", true, "the runner did not start"
	case "lost": // the manager died before ansible-playbook was started
		r.Exit, r.NotBegun, r.Message = "interrupted", true, "the runner ended before it began"
	}

	for _, h := range s.Hosts {
		if f[0] == job.ExitDone {
			r.Results[h] = job.HostResult{Begun: true, Done: true, Judged: 5}
		}
	}

	for _, pair := range f[1:] {
		host, how, _ := strings.Cut(pair, "=")
		r.Results[host] = map[string]job.HostResult{
			"done": {
				Begun: true, Done: true, Judged: 5,
			}, "failed": {Begun: true, Failed: 1, Task: "Install", Message: "no such package\nat all"},
			"unreachable": {Begun: true, Unreachable: true, Message: "timed out"}, "begun": {Begun: true}, "none": {},
			"closed": {
				Begun: true, Unreachable: true, Message: "no ssh connection to a, port 22: connection refused",
			},
			"changed":  {Begun: true, Done: true, Judged: 5, Changed: 3},
			"differs":  {Begun: true, Done: true, Judged: 5, Foreseen: 2},
			"unjudged": {Begun: true, Done: true, Judged: 5, Unjudged: 1},
			"executed": {Begun: true, Done: true, Judged: 5, Changed: 1, Executed: 1},
			"probed":   {Begun: true, Done: true, Judged: 5, Executed: 1}, // its failure is ignored
			"executed-failed": {
				Begun: true, Changed: 1, Executed: 1, Foreseen: 1, Failed: 1, Task: "Install",
				Message: "no such package",
			},
			"skipped": {Begun: true, Done: true, Unjudged: 3},
			"doubtful": {
				Begun: true, Done: true, Judged: 5, Doubt: `task "Start" failed, which the playbook ignores: x`,
			},
			"ignored": {
				Begun: true, Done: true, Judged: 5, Ignored: 2,
				Doubt: `task "Port" failed, which the playbook ignores: closed`,
			},
			"differs-failed": {
				Begun: true, Foreseen: 1, Failed: 1, Task: "Install", Message: "no such package",
			},
			"half-way": {Begun: true, Changed: 1, Failed: 1, Task: "Install", Message: "no such package"},
		}[how]
	}

	j.Runs = append(j.Runs, r)
}
