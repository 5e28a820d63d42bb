// SPDX-License-Identifier: Apache-2.0

package job

import (
	"cmp"
	"maps"
	"slices"

	"github.com/contiv/cluster/inventory"
)

// Interrupted returns a Running job with the end that it gets if nobody may continue it, because it is not known what
// it has done: the store was restored to an earlier time. reason says that. Each target gets the status of the verb's
// row after a failure without a cleanup, and carries whatever the job may have put on its host.
func (j Job) Interrupted(reason string) Job {
	j.Runs = slices.Clone(j.Runs)
	if last := j.LastRun(); last != nil && last.Exit == "" {
		last.Exit, last.Message = string(CauseInterrupted), reason
	}

	j.Cause, j.Message, j.Outcomes = CauseInterrupted, reason, map[string]inventory.Outcome{}

	if j.verb().Row.ChangesStatus() {
		for _, t := range j.Targets {
			j.Outcomes[t.Name] = j.interrupted(t, reason)
		}
	}

	return j
}

// interrupted returns the outcome of one target.
func (j Job) interrupted(t Target, reason string) inventory.Outcome {
	row := j.verb().Row
	o := inventory.Outcome{
		Status: t.From, Group: t.FromGroup, Applied: t.Applied, Playbooks: t.Playbooks, Residue: t.Residue,
		Error: reason, Reason: reason,
	}

	// A job that only looks has changed nothing, whatever it has done since.
	if row.Looks || j.Check || row.Success == inventory.AsBefore {
		o.AsBefore = row.Verifies || j.Check || row.Success == inventory.AsBefore
		return o
	}

	o.Status, o.Applied = cmp.Or(row.Dirty, row.Failed, t.From), ""
	o.Uncleaned = row.CleansHost

	switch {
	case o.Status == inventory.Allocated:
		o.Cleaned = !row.KeepsService
	case o.Status == inventory.Quarantined:
		o.Group = cmp.Or(t.Group, t.FromGroup)
		o.Residue = slices.DeleteFunc(carried(t), func(group string) bool { return group == o.Group })
	case row.Success == inventory.Decommissioned:
		o.Group, o.Residue = "", carried(t)
	}

	// It may have configured its new group by now.
	if o.Group != "" && row.Success == inventory.Allocated {
		o.Playbooks = maps.Clone(t.Playbooks)
		if o.Playbooks == nil {
			o.Playbooks = map[string]string{}
		}

		o.Playbooks[o.Group] = cmp.Or(j.PlaybookDigest, o.Playbooks[o.Group])
	}

	return o
}
