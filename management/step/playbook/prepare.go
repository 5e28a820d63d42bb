// SPDX-License-Identifier: Apache-2.0

package playbook

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/step"
)

// Prepare returns the pin of the job's playbooks, once all that the job may need can run: its own, and those that
// configured the nodes it cleans. With an error of r.Playbooks it returns the pin of what that has chosen all the same.
func (x *Executor) Prepare(ctx context.Context, r step.Request) (step.Pin, error) {
	j, settings := r.Job, x.o.Settings()

	verb, err := job.VerbOf(j.Verb)
	if err != nil {
		return nil, err
	}
	if verb.InstallsAgent && settings.AgentVars == nil {
		return nil, settings.NoAgents
	}

	// A forced job runs no playbook.
	if j.Force {
		return nil, nil
	}

	if err := x.o.Runner.Check(ctx); err != nil {
		return nil, err
	}

	x.recall(ctx, r.View, &j)

	choose := r.Playbooks
	if choose == nil {
		choose = x.Pin
	}

	// A broken folder must not keep nodes from a cleanup that does not need it.
	own, needed := j.Own()
	digest, err := choose(ctx)
	pin := x.pin(digest, r.Extra)

	if err != nil && (needed || ctx.Err() != nil) {
		return pin, err
	}

	if needed {
		files := x.playbooksOf(verb, digest)
		if err := x.o.Content.Parse(ctx, digest, files, settings.Groups.Names(), j.Names()); err != nil {
			return pin, err
		}

		if err := x.checkPlays(digest, verb, j); err != nil {
			return pin, err
		}
	}

	for _, digest := range slices.Sorted(maps.Keys(own)) {
		if err := x.checkOwn(ctx, settings, j, digest, own[digest]); err != nil {
			return pin, err
		}
	}

	return pin, nil
}

// pin returns the pin of the playbooks with that digest.
func (x *Executor) pin(digest string, extra configuration.Vars) step.Pin {
	return func(ctx context.Context, v *state.View, j *job.Job) error {
		unknown := x.recall(ctx, v, j)

		if err := x.checkPrompts(digest, *j, extra); err != nil {
			return err
		}

		j.PlaybookDigest, j.Commit = digest, x.CommitOf(digest)
		j.Warnings = append(j.Warnings, x.cleanWarnings(*j, unknown)...)
		x.describeVerification(j)
		j.WithoutHelpers = !x.helped(*j)

		return nil
	}
}

// playbooksOf returns the files in the copy that the verb runs.
func (x *Executor) playbooksOf(verb job.Verb, digest string) []string {
	files := slices.Clone(verb.Playbooks)
	for _, file := range verb.Optional {
		if !x.o.Content.Outline(digest, file).Missing {
			files = append(files, file)
		}
	}

	return files
}

// checkPlays refuses a job whose playbook configures a group without a play for it:
// its nodes would count as configured.
func (x *Executor) checkPlays(digest string, verb job.Verb, j job.Job) error {
	// A cleanup is never refused: without it, the node could not leave.
	for _, playbook := range verb.Playbooks {
		if playbook != job.PlaybookSite && playbook != job.PlaybookUpgrade {
			continue
		}

		plays := x.o.Content.Plays(digest, playbook)

		var idle, groups []string
		for _, t := range j.Targets {
			group := t.Group
			if verb.InstallsAgent {
				group = inventory.GroupPrepare
			}

			if acts(plays, t.Name, group) {
				continue
			}

			idle = append(idle, t.Name)
			if !slices.Contains(groups, group) {
				groups = append(groups, group)
			}
		}

		if len(idle) > 0 {
			return inventory.Errorf(inventory.KindRefused, "no play of %s is for the group %s of %s: %s",
				playbook, strings.Join(groups, " and "), job.ShortList(idle), describePlays(plays)).
				Do("add a play for the group to the playbook, or choose another group").About(idle...)
		}
	}

	return nil
}

// checkPrompts refuses a job that configures nodes with a playbook that asks a person for
// a variable: nobody answers, and the plays would go on without a value.
func (x *Executor) checkPrompts(digest string, j job.Job, extra configuration.Vars) error {
	verb, err := job.VerbOf(j.Verb)
	if err != nil || digest == "" || verb.Row.Verifies {
		return err
	}

	for _, playbook := range verb.Playbooks {
		if playbook != job.PlaybookSite && playbook != job.PlaybookUpgrade {
			continue
		}

		var asked []string

		for _, p := range x.o.Content.Plays(digest, playbook) {
			for _, name := range p.Asks {
				if _, given := extra[name]; !given && actsOnAny(p, j.Targets) && !slices.Contains(asked, name) {
					asked = append(asked, name)
				}
			}
		}

		if len(asked) > 0 {
			return inventory.Errorf(inventory.KindRefused,
				"%s asks for %s (vars_prompt), and nobody can answer in a job", playbook, strings.Join(asked, ", ")).
				Do("give a value with the variables of the request, or a default in the playbook")
		}
	}

	return nil
}

func actsOnAny(p configuration.Play, targets []job.Target) bool {
	return slices.ContainsFunc(targets, func(t job.Target) bool {
		return p.Matches(t.Name, t.Group) != configuration.No
	})
}

// describePlays names the hosts of plays.
func describePlays(plays []configuration.Play) string {
	var hosts []string
	for _, p := range plays {
		if text := strings.Join(p.Hosts, ","); !slices.Contains(hosts, text) {
			hosts = append(hosts, text)
		}
	}

	if len(hosts) == 0 {
		return "it has no play"
	}

	return "its plays have the hosts " + job.ShortList(hosts)
}

// checkOwn refuses a job if the playbooks that configured the nodes cannot clean or
// verify them.
func (x *Executor) checkOwn(
	ctx context.Context, settings step.Settings, j job.Job, digest string, nodes []string,
) error {
	if kept, err := x.Keep(ctx, digest); !kept {
		return errPlaybooksGone(j, digest, nodes, err)
	}

	verb, err := job.VerbOf(j.Verb)
	if err != nil {
		return err
	}

	files, aim := []string{job.PlaybookCleanup}, "clean"
	if verb.Row.Verifies {
		files, aim = x.playbooksOf(verb, digest), "verify"
	}
	err = x.o.Content.Parse(ctx, digest, files, settings.Groups.Names(), nodes)
	if e, ok := errors.AsType[*inventory.Error](err); ok && e.Kind == inventory.KindInvalid {
		return cleanWithCurrent(j, nodes, inventory.Errorf(inventory.KindRefused,
			"the playbooks that configured %s cannot %s: %s", job.ShortList(nodes), aim, e.Message))
	}

	return err
}

// errPlaybooksGone returns the error for playbooks that are not on this host. err
// is the reason that the folder of today cannot be read, or nil.
func errPlaybooksGone(j job.Job, digest string, nodes []string, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}

	short := digest[:min(len(digest), 12)]
	if digest == j.PlaybookDigest {
		return inventory.Errorf(inventory.KindRefused,
			"the playbooks of job %s (digest %s) are missing or damaged on this host", j.ID, short)
	}

	return cleanWithCurrent(j, nodes, inventory.Errorf(inventory.KindRefused,
		"the playbooks that configured %s (digest %s) are missing or damaged on this host, "+
			"and the folder of playbooks is not as it was then", job.ShortList(nodes), short))
}

// cleanWithCurrent adds the remedies for nodes without the playbooks that
// configured them.
func cleanWithCurrent(j job.Job, nodes []string, e *inventory.Error) error {
	aim := "clean"
	if j.Verb.Verifies() {
		aim = "compare"
	}
	return e.Do("restore the folder as it was, or %s with the playbooks of today", aim).
		With(inventory.Submit(j.Verb, j.Names()...).Joining(j.Group).Cleaning(inventory.PlaybooksCurrent)).
		About(nodes...)
}

// helped reports whether a play that the job may run acts on a helper, or may do so.
func (x *Executor) helped(j job.Job) bool {
	verb, err := job.VerbOf(j.Verb)
	if err != nil || !verb.Helps {
		return false
	}

	own, _ := j.Own()
	for _, digest := range append(slices.Sorted(maps.Keys(own)), j.PlaybookDigest) {
		for _, file := range slices.Concat(verb.Playbooks, verb.Optional) {
			if slices.ContainsFunc(x.o.Content.Plays(digest, file), configuration.Play.Helped) {
				return true
			}
		}
	}

	return false
}

// acts reports whether one of the plays may act on the node of the group.
func acts(plays []configuration.Play, name, group string) bool {
	return slices.ContainsFunc(plays, func(p configuration.Play) bool {
		return p.Matches(name, group) != configuration.No
	})
}
