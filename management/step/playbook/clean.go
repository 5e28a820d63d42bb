// SPDX-License-Identifier: Apache-2.0

package playbook

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

// recall completes the playbooks of the targets, see job.Snapshot.Recall. It
// returns the targets that today's playbooks clean for want of a record.
func (x *Executor) recall(ctx context.Context, v *state.View, j *job.Job) []string {
	return v.Recall(j, func(digest string) bool {
		kept, err := x.Keep(ctx, digest)
		return err == nil && kept
	})
}

// cleanWarnings returns warnings about the cleanups of the job. unknown are the
// targets of which the playbooks that configured them are not known.
func (x *Executor) cleanWarnings(j job.Job, unknown []string) []string {
	var warnings []string
	if len(unknown) > 0 {
		done := "cleaned"
		if verb, err := job.VerbOf(j.Verb); err == nil && verb.Row.Verifies {
			done = "verified"
		}
		warnings = append(warnings, fmt.Sprintf(
			"%s: %s with today's playbooks; what configured it is not recorded", job.ShortList(unknown), done))
	}

	type cleanup struct{ digest, group string }

	nodes := map[cleanup][]string{}
	plays := map[string][]configuration.Play{}

	for _, t := range j.Targets {
		for _, group := range j.CleansOf(t) {
			digest := j.CleansWith(t, group)
			nodes[cleanup{digest, group}] = append(nodes[cleanup{digest, group}], t.Name)
			plays[digest] = nil
		}
	}

	for digest := range plays {
		plays[digest] = x.o.Content.Plays(digest, job.PlaybookCleanup)
	}

	byGroup := func(a, b cleanup) int { return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.digest, b.digest)) }
	for _, c := range slices.SortedFunc(maps.Keys(nodes), byGroup) {
		idle := slices.DeleteFunc(nodes[c], func(name string) bool { return acts(plays[c.digest], name, c.group) })
		if len(idle) > 0 {
			warnings = append(warnings, fmt.Sprintf(
				"%s: no play of %s is for the group %s, so nothing is cleaned of it",
				job.ShortList(idle), job.PlaybookCleanup, c.group))
		}
	}

	return warnings
}
