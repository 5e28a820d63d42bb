// SPDX-License-Identifier: Apache-2.0

package management

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/contiv/cluster/inventory"
)

// TargetResult is how an ended job ended for one of its targets.
type TargetResult struct {
	Status  inventory.Status // empty where the job never touched it
	OK      bool             // it is as the verb wants it
	Changed int              // tasks that changed something, over all runs
	Error   string           // why it is not OK
}

// TargetResult says how the job ended for one of its targets: by the outcome that was
// written to the node, or, where there is none (discover; a job that never got
// to its nodes), by the runs.
func (j Job) TargetResult(name string) TargetResult {
	out := TargetResult{}

	trouble, reached := "", false
	for _, r := range j.Runs {
		res, ok := r.Results[name]
		if !ok {
			continue
		}

		out.Changed += res.Changed

		reached = res.Done
		if !res.Done && trouble == "" {
			trouble = troubleOf(r.Phase, res)
		}
	}

	if o, ok := j.Outcomes[name]; ok {
		t, known := inventory.TransitionOf(j.Verb)
		out.Status, out.Error = o.Status, o.Error

		out.OK = o.Error == "" && (!known || o.Status == t.Success)
		if !out.OK && out.Error == "" {
			out.Error = cmp.Or(trouble, o.Reason, j.Message)
		}

		return out
	}

	if out.OK = j.Status == Complete; out.OK {
		return out
	}

	if n := len(j.Runs); n > 0 && j.Runs[n-1].Phase == PhaseAppear && reached {
		out.OK = true // of a discover, this one did appear
		return out
	}

	out.Error = cmp.Or(trouble, j.Message)

	return out
}

// troubleOf is what went wrong in a run on one host, "" where nothing did.
func troubleOf(phase Phase, r HostResult) string {
	switch {
	case phase == PhaseAppear:
		return r.Message
	case r.Unreachable:
		return "unreachable: " + r.Message
	case r.Failed > 0 && r.Task != "":
		return fmt.Sprintf("task %q: %s", r.Task, r.Message)
	case r.Failed > 0:
		return r.Message
	}

	return ""
}

// unfinished are the targets that an ended job did not bring where its verb wants them.
func (j Job) unfinished() []string {
	var names []string
	for _, t := range j.Targets {
		if !j.TargetResult(t.Name).OK {
			names = append(names, t.Name)
		}
	}

	return names
}

// Retry asks for an ended job once more, with the inputs that it was accepted
// with: playbooks, merged and extra variables, group, options. How hosts are
// reached is taken as it is now, because that is what gets corrected between
// two attempts. failed leaves out the targets that the job brought where its
// verb wants them. The new job is checked like any other.
func (s *Service) Retry(ctx context.Context, ref string, failed bool, actor string, once *IdempotencyKey) (Job, error) {
	settings := s.Settings()
	if j, err := s.doneJob(ctx, once); j != nil || err != nil {
		return orZero(j), err
	}

	old, err := s.View().Job(ref)
	if err != nil {
		return Job{}, err
	}

	names := old.Names()

	left := old.unfinished()
	switch {
	case !old.Status.Ended():
		return Job{}, inventory.Errorf(inventory.KindRefused, "job %s has not ended: it is %s", old.ID, old.Status).
			Do("wait for it (clusterctl job wait %s), or cancel it (clusterctl job cancel %s)", old.ID, old.ID)
	case len(left) == 0:
		return Job{}, inventory.Errorf(inventory.KindRefused, "nothing failed in job %s", old.ID).
			Do("to do the same again, ask for it: %s", command(old.Verb, names, old.Group))
	case failed:
		names = left
	}

	in, err := s.Store.Inputs(ctx, old.ID)
	if inventory.KindOf(err) == inventory.KindNotFound || err == nil && in.Vars == nil {
		return Job{}, inventory.Errorf(inventory.KindRefused, "the inputs of job %s are no longer kept", old.ID).
			Do("ask for it anew, with the playbooks and variables of today: %s", command(old.Verb, names, old.Group))
	}

	if err != nil {
		return Job{}, err
	}

	if kept, err := s.pinnedAgain(ctx, old.PlaybookDigest); err != nil {
		return Job{}, err
	} else if !kept {
		return Job{}, inventory.Errorf(inventory.KindRefused, "the playbooks that job %s was accepted with are no longer kept on this host, and the folder of playbooks is not as it was then", old.ID).
			Do("put the folder back to what it was, or ask for it anew, with the playbooks and variables of today: %s", command(old.Verb, names, old.Group))
	}

	r := Request{
		Verb:      old.Verb,
		Group:     old.Group,
		Extra:     in.Extra,
		OnFailure: old.OnFailure,
		Timeout:   old.Timeout,
		Force:     old.Force,
		Reason:    old.Reason,
		Actor:     actor,
		Once:      once,
	}
	if r.Verb == inventory.VerbDiscover {
		r.Addrs = names
	} else {
		r.Nodes = names
	}

	j, err := s.queue(
		ctx,
		settings,
		r,
		func() (string, error) { return old.PlaybookDigest, nil },
		func(v *View, j *Job) (Inputs, error) {
			j.RetryOf = old.ID

			now := s.pin(v, settings, *j, r)
			for i, t := range j.Targets {
				was, _ := old.Target(t.Name)
				if t.Group != was.Group {
					return Inputs{}, inventory.Errorf(inventory.KindRefused, "%s is in group %s now, and job %s was for group %s", t.Name, t.Group, old.ID, was.Group).
						Do("ask for it anew: %s", command(old.Verb, names, old.Group)).
						About(t.Name)
				}

				now.Vars[j.Targets[i].Name] = in.Vars[t.Name]
			}

			return now, nil
		},
	)
	if e, ok := err.(*inventory.Error); ok && e.Kind == inventory.KindRefused && !failed && len(left) < len(names) &&
		slices.ContainsFunc(
			e.Nodes,
			func(n string) bool { return slices.Contains(names, n) && !slices.Contains(left, n) },
		) {
		return Job{}, e.Do("leave out what succeeded: clusterctl job retry %s%s", old.ID, failedOnly)
	}

	return j, err
}

// pinnedAgain tells whether the tree of that digest is kept on this host. Where it is
// not, the configured folder is copied as it is now: the same content is the
// same tree. That it cannot be copied says nothing of its content.
func (s *Service) pinnedAgain(ctx context.Context, digest string) (bool, error) {
	if s.Playbooks.Kept(digest) {
		return true, nil
	}

	now, err := s.Playbooks.Pin(ctx)

	return err == nil && now == digest, err
}

// failedOnly is what leaves out of a retry what succeeded, on the command line and
// in the request.
const failedOnly = " --failed (in the API failed: true)"

// command is the command line that asks for the verb.
func command(v inventory.Verb, names []string, group string) string {
	line := "clusterctl "
	switch v {
	case inventory.VerbDiscover:
	default:
		line += "nodes "
	}

	line += string(v)
	for _, n := range names {
		line += " " + n
	}

	if v == inventory.VerbForget {
		line += " --remove-agent"
	}

	if group != "" {
		line += " -g " + group
	}

	return line
}
