// SPDX-License-Identifier: Apache-2.0

package job

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
)

// AnsibleOf returns the options of ansible-playbook for a run of the phase on hosts of the
// groups, which have one choice of tasks. The tags of groups do not limit a cleanup, which
// would leave things behind.
func (j Job) AnsibleOf(p Phase, groups []string) configuration.AnsibleOptions {
	o := configuration.AnsibleOptions{
		Check: j.Check, Diff: j.Diff, Tags: j.Tags, SkipTags: j.SkipTags, Verbosity: j.Verbosity,
	}
	if p == PhaseDrift {
		o.Check, o.Diff = true, true
	}
	if len(groups) == 0 {
		return o
	}

	within, err := o.Within(groups[0], j.selection(p, groups[0]))
	if err != nil {
		return o // acceptance and claim have refused it
	}
	return within
}

// selection returns the tasks that a run of the phase has on nodes of the group.
func (j Job) selection(p Phase, group string) inventory.Selection {
	if !p.Configures() && !p.Verifies() {
		return inventory.Selection{}
	}
	return j.GroupTags[group]
}

// configures reports whether the verb runs a playbook that configures its targets.
func (v Verb) configures() bool {
	return !v.Row.Verifies &&
		(slices.Contains(v.Playbooks, PlaybookSite) || slices.Contains(v.Playbooks, PlaybookUpgrade))
}

// pinTags keeps the selections of those groups that a target is in or enters, or that a job
// ahead gives it: if a later one of those fails, the node stays there.
func (j *Job) pinTags(s Snapshot) {
	all := j.GroupTags
	j.GroupTags = nil

	if v := j.verb(); len(all) == 0 || !v.configures() && !v.Row.Verifies {
		return
	}

	pin := func(group string) {
		s, ok := all[group]
		if !ok {
			return
		}

		if j.GroupTags == nil {
			j.GroupTags = map[string]inventory.Selection{}
		}

		j.GroupTags[group] = s
	}

	targets := map[string]bool{}

	for _, t := range j.Targets {
		targets[t.Name] = true
		pin(t.Group)

		if n := s.Find(t.Name); n != nil {
			pin(n.Group)
		}
	}

	for _, ahead := range s.Jobs() {
		if ahead.Status.Ended() {
			continue
		}

		for _, t := range ahead.Targets {
			if targets[t.Name] {
				pin(t.Group)
			}
		}
	}
}

// checkTags refuses a job with targets that need several runs of one playbook, because their
// groups choose different tasks, and tags of the request that a group does not run.
func (j Job) checkTags() error {
	if len(j.GroupTags) == 0 || !j.verb().configures() {
		return nil
	}

	names := map[string][]string{} // by group
	for _, t := range j.Targets {
		names[t.Group] = append(names[t.Group], t.Name)
	}

	groups := slices.Sorted(maps.Keys(names))
	for _, group := range groups {
		if _, err := j.Selection().Within(group, j.GroupTags[group]); err != nil {
			return err
		}
	}

	other := func(group string) bool { return !j.GroupTags[group].Equal(j.GroupTags[groups[0]]) }
	if slices.ContainsFunc(groups, other) {
		return j.refuseMixed(groups, names)
	}

	return nil
}

// refuseMixed refuses a job for groups with different tags, and names a job for each choice.
func (j Job) refuseMixed(groups []string, names map[string][]string) error {
	var (
		parts   []string
		actions []inventory.Action
		left    string
	)

	for len(groups) > 0 {
		tags := j.GroupTags[groups[0]]
		same := func(group string) bool { return j.GroupTags[group].Equal(tags) }

		var together, nodes []string
		for _, group := range slices.DeleteFunc(slices.Clone(groups), func(g string) bool { return !same(g) }) {
			together, nodes = append(together, group), append(nodes, names[group]...)
		}

		groups = slices.DeleteFunc(groups, same)
		parts = append(parts, fmt.Sprintf("%s (%s)", strings.Join(together, ", "), describeTags(tags)))

		var again []inventory.Action

		again, left = Anew(j, nodes, j.unknownExtra(), j.Timeout)
		actions = append(actions, again...)
	}

	return inventory.Errorf(inventory.KindRefused,
		"the groups of its nodes have different tags, and a job has one choice of tasks: %s", ShortList(parts)).
		Do("submit one job for each%s", left).With(actions...).About(j.Names()...)
}

// describeTags describes the tasks of a group.
func describeTags(s inventory.Selection) string {
	if s.Empty() {
		return "all tasks"
	}
	return s.String()
}

// differentTags describes how the tags of the groups of a job differ from those of the job
// that it repeats.
func differentTags(old, again Job) []string {
	var (
		differences []string
		seen        = map[string]bool{}
	)

	for _, t := range again.Targets {
		then, now := old.GroupTags[t.Group], again.GroupTags[t.Group]
		if seen[t.Group] || then.Equal(now) {
			continue
		}

		seen[t.Group] = true
		differences = append(differences, fmt.Sprintf("tags of group %s: %s now, %s then",
			t.Group, describeTags(now), describeTags(then)))
	}

	return differences
}
