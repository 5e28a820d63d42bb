// SPDX-License-Identifier: Apache-2.0

package playbook

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
)

// describeVerification completes a verification at its acceptance: it records which
// playbooks have no verify.yml, and names the tasks that run in spite of check mode.
func (x *Executor) describeVerification(j *job.Job) {
	verb, err := job.VerbOf(j.Verb)
	if err != nil || !verb.Row.Verifies {
		return
	}

	digests, nodes := byPlaybooks(*j)

	var run, read, dynamic, manager []string

	j.WithoutVerify = nil
	for _, digest := range digests {
		if x.o.Content.Outline(digest, job.PlaybookVerify).Missing {
			j.WithoutVerify = append(j.WithoutVerify, digest)
			j.Warnings = append(j.Warnings, fmt.Sprintf("%s: the playbooks have no %s, so only %s is compared",
				shortTargets(nodes[digest]), job.PlaybookVerify, job.PlaybookSite))
		}

		for _, task := range executedOn(x.o.Content.Outline(digest, job.PlaybookSite).Plays, nodes[digest]) {
			text := fmt.Sprintf("%s (%s)", task.Name, task.Path)

			switch {
			case task.Dynamic:
				dynamic = add(dynamic, text)
			case task.Manager:
				manager = add(manager, text)
			case task.Reads:
				read = add(read, text)
			default:
				run = add(run, text)
			}
		}
	}

	if len(run) > 0 {
		j.Warnings = append(j.Warnings,
			"executed in spite of check mode, because of check_mode: false: "+listed(run))
	}

	if len(manager) > 0 {
		j.Warnings = append(j.Warnings,
			"on the host of the manager, evaluated in spite of check mode: "+listed(manager))
	}

	if len(dynamic) > 0 {
		j.Warnings = append(j.Warnings,
			"cannot be known to respect check mode, because only Ansible can resolve them: "+listed(dynamic))
	}

	if len(read) > 0 {
		j.Note = "executed in spite of check mode, and declared to change nothing (changed_when: false): " + listed(
			read,
		)
	}
}

// byPlaybooks returns the targets by the digest of the playbooks that verify them, and
// the digests in the order of the targets.
func byPlaybooks(j job.Job) (digests []string, nodes map[string][]job.Target) {
	nodes = map[string][]job.Target{}

	for _, t := range j.Targets {
		digest := j.CleansWith(t, t.FromGroup)
		if nodes[digest] == nil {
			digests = append(digests, digest)
		}
		nodes[digest] = append(nodes[digest], t)
	}

	return digests, nodes
}

// Claim notes which playbooks have no verify.yml, for a verification whose turn has come: a job ahead may have
// configured a node with others.
func (x *Executor) Claim(ctx context.Context, j *job.Job) {
	if !j.Verb.Verifies() {
		return
	}

	without := slices.Clone(j.WithoutVerify)

	digests, _ := byPlaybooks(*j)
	for _, digest := range digests {
		// Another instance may not have the copy, which is no evidence.
		missing := !slices.Contains(without, digest) && x.o.Content.Outline(digest, job.PlaybookVerify).Missing
		if missing && x.Kept(ctx, digest) {
			without = append(without, digest)
		}
	}

	j.WithoutVerify = without
}

// executedOn returns the tasks that run in spite of check mode in the plays for one of
// the targets.
func executedOn(plays []configuration.Play, targets []job.Target) []configuration.Executed {
	var found []configuration.Executed
	for _, p := range plays {
		matches := func(t job.Target) bool { return p.Matches(t.Name, t.FromGroup) != configuration.No }
		if slices.ContainsFunc(targets, matches) {
			found = append(found, p.Executed...)
		}
	}

	return found
}

func add(texts []string, text string) []string {
	if slices.Contains(texts, text) {
		return texts
	}
	return append(texts, text)
}

// listed joins texts, with a bound for playbooks of any size.
func listed(texts []string) string {
	const most = 50
	if more := len(texts) - most; more > 0 {
		texts = append(texts[:most:most], inventory.Count(more, "more task", "more tasks"))
	}
	return strings.Join(texts, "; ")
}

func shortTargets(targets []job.Target) string {
	names := make([]string, len(targets))
	for i, t := range targets {
		names[i] = t.Name
	}

	return job.ShortList(names)
}
