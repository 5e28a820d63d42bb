// SPDX-License-Identifier: Apache-2.0

package job

import (
	"maps"
	"slices"
)

// CleansWith returns the digest of the playbooks that clean the target of the
// group: those that configured it, unless the request asks for the current ones
// or there is no record.
func (j Job) CleansWith(t Target, group string) string {
	if own := t.Playbooks[group]; own != "" && j.Playbooks != PlaybooksCurrent {
		return own
	}

	return j.PlaybookDigest
}

// Own returns the targets by the digest of playbooks other than the job's with
// which the job will clean them. others reports whether the job also runs its own
// playbooks.
func (j Job) Own() (targets map[string][]string, others bool) {
	v := j.verb()
	targets = map[string][]string{}
	others = !v.Cleans || len(v.Playbooks) > 1

	for _, t := range j.Targets {
		for _, group := range carried(t) {
			digest := j.CleansWith(t, group)

			switch {
			case !v.Cleans:
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
