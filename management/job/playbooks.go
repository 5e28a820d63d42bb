// SPDX-License-Identifier: Apache-2.0

package job

import (
	"maps"
	"slices"

	"github.com/contiv/cluster/inventory"
)

// CleansWith returns the digest of the playbooks that clean or verify the target of
// the group: those that configured it, unless the request asks for the current ones
// or there is no record.
func (j Job) CleansWith(t Target, group string) string {
	if own := t.Playbooks[group]; own != "" && j.Playbooks != inventory.PlaybooksCurrent {
		return own
	}
	return j.PlaybookDigest
}

// CleansOf returns the groups of which the job may clean the target.
func (j Job) CleansOf(t Target) []string {
	if !j.verb().Cleans || j.Force {
		return nil
	}
	return carried(t)
}

// OwnGroups returns the groups for which the job runs the playbooks that configured
// the target.
func (j Job) OwnGroups(t Target) []string {
	if j.verb().Row.Verifies {
		return []string{t.FromGroup}
	}
	return j.CleansOf(t)
}

// Recall completes the targets that are without the playbooks that configured
// them: the record of the job that configured a node has them too. It returns the
// targets whose playbooks are on no record that is kept.
func (s Snapshot) Recall(j *Job, kept func(digest string) bool) (unknown []string) {
	if j.Playbooks == inventory.PlaybooksCurrent {
		return nil
	}

	for i := range j.Targets {
		t := &j.Targets[i]

		// A job ahead may be about to configure the node.
		n := s.Find(t.Name)
		if n == nil {
			continue
		}

		for _, group := range j.OwnGroups(*t) {
			if t.Playbooks[group] != "" || !slices.Contains(n.Carries(), group) {
				continue
			}

			digest := ""

			at := slices.IndexFunc(s.Jobs(), func(old *Job) bool { return old.ID == n.Applied })
			if at >= 0 && group == n.Group {
				digest = s.Jobs()[at].PlaybookDigest
			}

			switch {
			case digest != "" && kept(digest):
				t.Playbooks = maps.Clone(t.Playbooks)
				if t.Playbooks == nil {
					t.Playbooks = map[string]string{}
				}

				t.Playbooks[group] = digest
			case !slices.Contains(unknown, t.Name):
				unknown = append(unknown, t.Name)
			}
		}
	}

	return unknown
}

// Own returns the targets by the digest of playbooks other than the job's with
// which the job will clean or verify them. others reports whether the job also runs its own
// playbooks.
func (j Job) Own() (targets map[string][]string, others bool) {
	v := j.verb()
	targets = map[string][]string{}
	uses := v.Cleans || v.Row.Verifies
	names := len(v.Playbooks)

	if !v.OnlyUncleaned || slices.ContainsFunc(j.Targets, func(t Target) bool { return t.Uncleaned }) {
		names += len(v.Optional)
	}

	others = !uses || v.Cleans && names > 1

	for _, t := range j.Targets {
		groups := carried(t)
		if v.Row.Verifies {
			groups = j.OwnGroups(t)
		}

		for _, group := range groups {
			digest := j.CleansWith(t, group)

			switch {
			case !uses:
			case digest == j.PlaybookDigest:
				others = true
			case !slices.Contains(targets[digest], t.Name):
				targets[digest] = append(targets[digest], t.Name)
			}
		}
	}

	return targets, others
}

// InUse returns the digests of the playbooks that the job depends on, sorted.
func (j Job) InUse() []string {
	digests := map[string]bool{}
	if j.PlaybookDigest != "" {
		digests[j.PlaybookDigest] = true
	}

	// The targets' own matter only until the job ends.
	for _, t := range j.Targets {
		for _, digest := range t.Playbooks {
			if !j.Status.Ended() {
				digests[digest] = true
			}
		}
	}

	return slices.Sorted(maps.Keys(digests))
}
