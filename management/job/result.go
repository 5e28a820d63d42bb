// SPDX-License-Identifier: Apache-2.0

package job

import (
	"cmp"
	"slices"
	"strings"

	"github.com/contiv/cluster/inventory"
)

// TargetResult is the result of an ended job for one target.
type TargetResult struct {
	Status  inventory.Status // empty if the job never touched the target
	OK      bool             // the target is as the verb wants it
	Changed int              // changed tasks, over all runs
	Error   string           // why it is not OK
}

// TargetResult returns the result of the job for one target. It uses the outcome
// written to the node. Without one (a discover, or a job that never reached its
// nodes) it uses the runs.
func (j Job) TargetResult(name string) TargetResult {
	t, _ := j.Target(name)
	t.Name = name

	return j.ResultOf(t)
}

// ResultOf is TargetResult for a target that is at hand: the results of all targets take linear time.
func (j Job) ResultOf(t Target) TargetResult {
	result := TargetResult{}
	problem := ""

	for _, r := range j.Runs {
		res, ok := r.Results[t.Name]
		// In batches, a target may have helped another batch.
		if !ok || j.Serial != "" && !slices.Contains(r.Hosts, t.Name) {
			continue
		}

		// A comparison changes nothing: it counts what it foresees.
		if r.Phase.Verifies() {
			result.Changed += res.Foreseen
		} else {
			result.Changed += res.Changed
		}

		if res.Bad() && problem == "" {
			problem = r.describe(res)
		}
	}

	if o, ok := j.Outcomes[t.Name]; ok {
		row := j.verb().Row
		result.Status, result.Error = o.Status, o.Error
		// A best-effort verb reaches its status with an error, too.
		result.OK = o.Error == "" && (!row.ChangesStatus() || o.Status == row.After(t.From))

		if !result.OK && result.Error == "" {
			result.Error = cmp.Or(problem, o.Reason, j.Message)
		}

		return result
	}

	if result.OK = j.Status == Complete; !result.OK {
		result.Error = cmp.Or(problem, j.Message)
	}

	if v := j.verb(); v.result != nil {
		result = v.result(j, t, result)
	}

	return result
}

// prefixNotBegun begins the error of a target whose batch did not begin.
const prefixNotBegun = "not begun: "

// NotBegun returns the targets whose batch did not begin before the end of the job.
func (j Job) NotBegun() []string {
	return slices.DeleteFunc(j.Names(), func(name string) bool {
		return !strings.HasPrefix(j.Outcomes[name].Error, prefixNotBegun)
	})
}

// Unfinished returns the targets that an ended job left other than its verb
// wants them.
func (j Job) Unfinished() []string {
	var names []string
	for _, t := range j.Targets {
		if !j.TargetResult(t.Name).OK {
			names = append(names, t.Name)
		}
	}

	return names
}
