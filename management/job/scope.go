// SPDX-License-Identifier: Apache-2.0

package job

import (
	"maps"
	"slices"

	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/record"
)

// In reports whether all targets of the job belong to the scope. The addresses of a discover are
// those of no node.
func (j *Job) In(s record.Scope) bool {
	outside := func(t Target) bool { return !s.HadNode(t.Name, t.FromGroup) }
	return !j.TakesAddrs() && !slices.ContainsFunc(j.Targets, outside)
}

// Within returns the form of a job in the scope: without the names of other nodes than its targets,
// those of its helpers and those in its texts.
func (j Job) Within(s record.Scope) Job {
	j.Helpers = s.Names(j.Helpers)
	j.Message, j.Note, j.Reason = s.Text(j.Message), s.Text(j.Note), s.Text(j.Reason)
	j.Warnings, j.Differences = texts(s, j.Warnings), texts(s, j.Differences)

	runs := slices.Clone(j.Runs)
	for i, r := range j.Runs {
		runs[i].Message = s.Text(r.Message)
		runs[i].Results = maps.Clone(r.Results)

		for host, result := range r.Results {
			if _, target := j.Target(host); !target && len(s.Names([]string{host})) == 0 {
				delete(runs[i].Results, host)
				continue
			}

			result.Message, result.Task = s.Text(result.Message), s.Text(result.Task)
			result.Doubt = s.Text(result.Doubt)
			runs[i].Results[host] = result
		}
	}

	j.Runs, j.Outcomes = runs, maps.Clone(j.Outcomes)

	for host, o := range j.Outcomes {
		o.Error, o.Reason, o.Verdict = s.Text(o.Error), s.Text(o.Reason), o.Verdict.Reworded(s.Text)
		j.Outcomes[host] = o
	}

	return j
}

// Within returns the findings without the names of other nodes in their texts.
func (d Difference) Within(s record.Scope) Difference {
	d.Verdict.Reason, d.Tasks = s.Text(d.Verdict.Reason), FindingsWithin(s, d.Tasks)
	return d
}

// FindingsWithin returns the findings without the names of other nodes.
func FindingsWithin(s record.Scope, findings []api.TaskFinding) []api.TaskFinding {
	findings = slices.Clone(findings)

	for i := range findings {
		f := &findings[i]
		for _, text := range []*string{&f.Playbook, &f.Play, &f.Role, &f.Task, &f.Path, &f.Message, &f.Diff} {
			*text = s.Text(*text)
		}
	}

	return findings
}

func texts(s record.Scope, list []string) []string {
	list = slices.Clone(list)
	for i, text := range list {
		list[i] = s.Text(text)
	}

	return list
}
