// SPDX-License-Identifier: Apache-2.0

package job

import (
	"fmt"
	"slices"
	"strings"

	"github.com/contiv/cluster/inventory"
)

// ansibleOutcome adjusts the outcome of a target to the options of ansible-playbook: a
// check leaves the node as it was, and the result of some tasks is no configuration
// of a job.
func (p *Planner) ansibleOutcome(t Target, o inventory.Outcome) inventory.Outcome {
	verifies := p.verb().Row.Verifies
	o.AsBefore = o.AsBefore || verifies && !p.verificationChanged(t.Name) || p.Check && !p.executedOn(t.Name)

	switch {
	case o.AsBefore, verifies:
		o.Status, o.Group, o.Residue = t.From, t.FromGroup, t.Residue
		o.Applied, o.Playbooks, o.Cleaned = t.Applied, t.Playbooks, false

		// A part of site.yml was applied, perhaps with other variables.
		if !o.AsBefore {
			o.Applied = ""
		}
		return o
	case p.Check, p.Partial() && o.Applied == p.ID:
		o.Applied = ""
	}

	if o.Applied == p.ID {
		o.Configured = p.configured(t, o.Group)
	}

	o.Playbooks = p.playbooksAfter(t, o)
	o.Untouched = !p.mayHaveChanged(t.Name)

	return o
}

// configured returns the configuration that the job has applied to the target.
func (p *Planner) configured(t Target, group string) *inventory.Configured {
	c := inventory.Configured{
		Configuration: inventory.Configuration{
			Playbooks: p.PlaybookDigest, Commit: p.Commit, Group: group, Variables: t.Variables,
			Tags: p.GroupTags[group].String(),
		},
		Time: p.now, Extra: p.ExtraNames, ExtraSums: p.ExtraSums,
	}

	// In batches, other targets may have been configured long after this one, and with other masters.
	for _, r := range p.Runs {
		if r.Phase.Configures() && slices.Contains(r.Hosts, t.Name) && !r.Ended.IsZero() {
			c.Time, c.Masters, c.MasterNames = r.Ended, r.Masters, r.MasterNames
		}
	}

	return &c
}

// mayHaveChanged reports whether a run of the job may have changed the host.
func (p *Planner) mayHaveChanged(host string) bool {
	return slices.ContainsFunc(p.Runs, func(r Run) bool {
		return !r.NotBegun && !r.Phase.Verifies() && r.Results[host].mayHaveChanged()
	})
}

// executedOn reports whether a task of a check was executed on the host, because it
// has check_mode: false, and may have changed it.
func (p *Planner) executedOn(host string) bool {
	for _, r := range p.Runs {
		if r.Results[host].Executed > 0 {
			return true
		}
	}

	return false
}

// verificationChanged reports whether a task of site.yml was executed on the host, and has
// reported a change.
func (p *Planner) verificationChanged(host string) bool {
	return slices.ContainsFunc(p.Runs, func(r Run) bool {
		res := r.Results[host]

		// The changes of a task that failed may be counted among those foreseen.
		changed := res.Changed > res.Foreseen || res.Changed > 0 && res.Failed > 0
		return r.Phase == PhaseDrift && res.Executed > 0 && changed
	})
}

// describeCheck returns the message of a check that succeeded, and a note with the
// number of tasks that would change each host.
func (p *Planner) describeCheck() (message, note string) {
	var executed, would []string

	for _, t := range p.Targets {
		if p.executedOn(t.Name) {
			executed = append(executed, t.Name)
		}

		changed, run := 0, false
		for _, r := range p.Runs {
			if res, ok := r.Results[t.Name]; ok {
				changed, run = changed+res.Changed, true
			}
		}

		if run {
			would = append(would, fmt.Sprintf("%s: %s", t.Name, inventory.Count(changed, "task", "tasks")))
		}
	}

	message = "checked; nothing was changed"
	if len(executed) > 0 {
		message = "checked; but tasks with check_mode: false were executed, and may have changed " +
			ShortList(executed) + "; the configuration there is unknown now"
	}

	if len(would) > 0 {
		note = "would change " + strings.Join(shorten(would), "; ")
	}

	return message, note
}

// shorten returns the first few of the parts, and the number of the others.
func shorten(parts []string) []string {
	const most = 20
	if more := len(parts) - most; more > 0 {
		return append(parts[:most:most], fmt.Sprintf("and %d more", more))
	}
	return parts
}
