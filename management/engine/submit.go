// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/variable"
)

// Submit accepts a job or refuses it. It returns as soon as the job is queued.
func (e *Engine) Submit(ctx context.Context, c access.Caller, r job.Request) (job.Job, error) {
	settings := e.settings()
	pin := func(v *state.View, j *job.Job) (job.Inputs, error) { return inputs(v, settings, *j, r), nil }

	record := access.Record{
		Action: "jobs.submit." + string(r.Verb), Targets: slices.Concat(r.Nodes, r.Addrs, r.Ranges),
		Reason: r.AuditReason(),
	}

	return e.audited(ctx, c, record, func(*access.Record) (job.Job, error) {
		return e.queue(ctx, c, settings, r, e.playbooks.Pin, pin)
	})
}

// audited carries out a request for a job and leaves its audit record, which
// names the job if there is one.
func (e *Engine) audited(
	ctx context.Context, c access.Caller, r access.Record, request func(*access.Record) (job.Job, error),
) (job.Job, error) {
	var accepted job.Job

	err := access.Audited(ctx, e.audit, c, r, func(record *access.Record) (err error) {
		// After an error the job may have the number of somebody else's.
		if accepted, err = request(record); err == nil {
			record.Job = accepted.ID
		}

		return err
	})

	return accepted, err
}

// queue accepts a request. digest returns the digest of the playbooks, once the
// request itself is found right. pin returns the inputs of the accepted job.
func (e *Engine) queue(
	ctx context.Context, c access.Caller, settings Settings, r job.Request,
	digest func(context.Context) (string, error), pin func(*state.View, *job.Job) (job.Inputs, error),
) (job.Job, error) {
	release, err := e.enter(ctx)
	if err != nil {
		return job.Job{}, err
	}
	defer release()

	// Take the view before the look-up, see access.Caller.Replay.
	v := e.state.View()
	if j, err := c.ReplayJob(ctx, e.store, e.state); j != nil || err != nil {
		return orZero(j), err
	}

	pinned, err := e.prepare(ctx, c, v, settings, &r, digest)
	if err != nil {
		return job.Job{}, err
	}

	return e.accept(ctx, c, settings, r, pinned, pin)
}

// enter blocks until the request is the next one to be judged. Requests are judged in
// the order of their arrival: the first one that needs a folder parses it for seconds,
// and those behind it must not overtake it.
func (e *Engine) enter(ctx context.Context) (release func(), err error) {
	// Go serves blocked senders first come, first served.
	select {
	case e.accepting <- struct{}{}:
		return func() { <-e.accepting }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// prepare refuses a request that is wrong, completes it, and returns the digest of its
// playbooks once they can run.
func (e *Engine) prepare(
	ctx context.Context, c access.Caller, v *state.View, settings Settings, r *job.Request,
	digest func(context.Context) (string, error),
) (string, error) {
	v, err := e.admit(ctx, c, v, settings, r)
	if err != nil {
		return "", err
	}

	// Refuse a wrong request before the playbooks are copied and parsed.
	j, err := e.preview(ctx, v, settings, *r)
	if err != nil {
		return "", err
	}

	return e.preparePlaybooks(ctx, settings, j, digest)
}

// admit refuses a request that no view makes right, and completes it. It returns the view
// that the preconditions were checked on.
func (e *Engine) admit(
	ctx context.Context, c access.Caller, v *state.View, settings Settings, r *job.Request,
) (*state.View, error) {
	v, err := c.Precondition.Check(ctx, e.state, v)
	if err != nil {
		return nil, err
	}

	if err := settings.refuse(); err != nil {
		return nil, err
	}

	r.Timeout = cmp.Or(r.Timeout, settings.Timeout)

	return v, checkRequest(settings, *r)
}

// preview returns the job of a request as the nodes are now.
func (e *Engine) preview(ctx context.Context, v *state.View, settings Settings, r job.Request) (job.Job, error) {
	j, err := acceptRequest(v, settings, r)
	if err == nil {
		e.recall(ctx, v, &j)
	}

	return j, err
}

// refuse returns the error for a job under incomplete settings, or nil: it would run
// with other playbooks and variables than the operator chose.
func (s Settings) refuse() error {
	if s.Incomplete == nil {
		return nil
	}

	refused := inventory.Errorf(inventory.KindRefused, "no job is accepted: %w", s.Incomplete)
	if e, ok := errors.AsType[*inventory.Error](s.Incomplete); ok {
		refused.Message, refused.Remedy, refused.Actions = "no job is accepted: "+e.Message, e.Remedy, e.Actions
	}

	return refused
}

// hold returns the hold of the queue at that time.
func (s Settings) hold(v *state.View, now time.Time) job.Hold {
	return s.Windows.Hold(v, now).Unless(s.Incomplete)
}

// checkRequest refuses a request that is wrong in itself, before any costly step.
func checkRequest(settings Settings, r job.Request) error {
	if err := configuration.CheckVars(r.Extra); err != nil {
		return err
	}

	if _, err := settings.Secrets.Restore(r.Extra, nil); err != nil {
		return err
	}

	// A job would run with the text in place of the secret.
	for _, name := range slices.Sorted(maps.Keys(r.Extra)) {
		if configuration.HasHidden(r.Extra[name]) {
			return inventory.Errorf(inventory.KindInvalid,
				"the value of %s has %q, which stands for a secret that was not shown", name, configuration.Hidden).
				Do("give the value itself")
		}
	}

	verb, err := job.VerbOf(r.Verb)
	if err != nil {
		return err
	}

	if verb.InstallsAgent && settings.AgentVars == nil {
		return settings.NoAgents
	}

	// The manager's host has no agent to remove but the manager.
	if verb.RemovesAgent {
		for _, name := range r.Nodes {
			if err := node.CheckNotOwn(name, settings.Own); err != nil {
				return err
			}
		}
	}

	return nil
}

// helped reports whether a play that the job may run acts on a helper, or may do so.
func (e *Engine) helped(j job.Job) bool {
	verb, err := job.VerbOf(j.Verb)
	if err != nil || !verb.Helps {
		return false
	}

	own, _ := j.Own()
	for _, digest := range append(slices.Sorted(maps.Keys(own)), j.PlaybookDigest) {
		for _, file := range slices.Concat(verb.Playbooks, verb.Optional) {
			if slices.ContainsFunc(e.playbooks.Plays(digest, file), configuration.Play.Helped) {
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

// preparePlaybooks returns the digest of the job's playbooks, once all that the
// job may need can run: its own, and those that configured the nodes it cleans.
func (e *Engine) preparePlaybooks(
	ctx context.Context, settings Settings, j job.Job, digest func(context.Context) (string, error),
) (string, error) {
	// A forced job runs no playbook.
	if j.Force {
		return "", nil
	}

	if err := e.runner.Check(ctx); err != nil {
		return "", err
	}

	// A broken folder must not keep nodes from a cleanup that does not need it.
	own, needed := j.Own()
	pinned, err := digest(ctx)

	if err != nil && (needed || ctx.Err() != nil) {
		return "", err
	}

	if needed {
		verb, err := job.VerbOf(j.Verb)
		if err != nil {
			return "", err
		}

		files := e.playbooksOf(verb, pinned)
		if err := e.playbooks.Parse(ctx, pinned, files, settings.Groups.Names(), j.Names()); err != nil {
			return "", err
		}

		if err := e.checkPlays(pinned, verb, j); err != nil {
			return "", err
		}
	}

	for _, digest := range slices.Sorted(maps.Keys(own)) {
		if err := e.checkOwn(ctx, settings, j, digest, own[digest]); err != nil {
			return "", err
		}
	}

	return pinned, nil
}

// playbooksOf returns the files in the copy that the verb runs.
func (e *Engine) playbooksOf(verb job.Verb, digest string) []string {
	files := slices.Clone(verb.Playbooks)
	for _, file := range verb.Optional {
		if !e.playbooks.Outline(digest, file).Missing {
			files = append(files, file)
		}
	}

	return files
}

// checkPlays refuses a job whose playbook configures a group without a play for it:
// its nodes would count as configured.
func (e *Engine) checkPlays(digest string, verb job.Verb, j job.Job) error {
	// A cleanup is never refused: without it, the node could not leave.
	for _, playbook := range verb.Playbooks {
		if playbook != job.PlaybookSite && playbook != job.PlaybookUpgrade {
			continue
		}

		plays := e.playbooks.Plays(digest, playbook)

		var idle, groups []string
		for _, t := range j.Targets {
			if acts(plays, t.Name, t.Group) {
				continue
			}

			idle = append(idle, t.Name)
			if !slices.Contains(groups, t.Group) {
				groups = append(groups, t.Group)
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
func (e *Engine) checkPrompts(digest string, j job.Job, extra configuration.Vars) error {
	verb, err := job.VerbOf(j.Verb)
	if err != nil || digest == "" || verb.Row.Verifies {
		return err
	}

	for _, playbook := range verb.Playbooks {
		if playbook != job.PlaybookSite && playbook != job.PlaybookUpgrade {
			continue
		}

		var asked []string

		for _, p := range e.playbooks.Plays(digest, playbook) {
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
func (e *Engine) checkOwn(ctx context.Context, settings Settings, j job.Job, digest string, nodes []string) error {
	if kept, err := e.keepPlaybooks(ctx, digest); !kept {
		return errPlaybooksGone(j, digest, nodes, err)
	}

	verb, err := job.VerbOf(j.Verb)
	if err != nil {
		return err
	}

	files, aim := []string{job.PlaybookCleanup}, "clean"
	if verb.Row.Verifies {
		files, aim = e.playbooksOf(verb, digest), "verify"
	}

	err = e.playbooks.Parse(ctx, digest, files, settings.Groups.Names(), nodes)
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

// accept decides on the newest view and stores the job.
func (e *Engine) accept(
	ctx context.Context, c access.Caller, settings Settings, r job.Request, digest string,
	pin func(*state.View, *job.Job) (job.Inputs, error),
) (job.Job, error) {
	var accepted job.Job

	// Parsing took seconds: check key and request again on the newest view.
	err := e.retryConflict(ctx, func(v *state.View) error {
		if j, err := c.ReplayJob(ctx, e.store, e.state); j != nil || err != nil {
			accepted = orZero(j)
			return err
		}

		v, err := c.Precondition.Check(ctx, e.state, v)
		if err != nil {
			return err
		}

		j, in, err := e.judge(ctx, c, v, settings, r, digest, pin)
		if err != nil {
			return err
		}

		accepted, err = e.store.Accept(ctx, v.Seq, j, in, c.Key)

		return err
	})

	return accepted, err
}

// judge returns the job of a request as it is to be accepted on the view, with its
// inputs.
func (e *Engine) judge(
	ctx context.Context, c access.Caller, v *state.View, settings Settings, r job.Request, digest string,
	pin func(*state.View, *job.Job) (job.Inputs, error),
) (job.Job, job.Inputs, error) {
	j, err := acceptRequest(v, settings, r)
	if err != nil {
		return job.Job{}, job.Inputs{}, err
	}

	unknown := e.recall(ctx, v, &j)

	in, err := pin(v, &j)
	if err != nil {
		return job.Job{}, job.Inputs{}, err
	}

	if err := checkReadable(in); err != nil {
		return job.Job{}, job.Inputs{}, err
	}

	if err := e.checkPrompts(digest, j, in.Extra); err != nil {
		return job.Job{}, job.Inputs{}, err
	}

	for _, path := range configuration.LooksLikeTemplate(r.Extra) {
		j.Warnings = append(j.Warnings, variable.TemplateWarning(path))
	}

	j.Actor, j.PlaybookDigest, j.Accepted = c.Principal, digest, time.Now()
	j.Commit = e.playbooks.CommitOf(digest)
	j.Warnings = append(j.Warnings, e.cleanWarnings(j, unknown)...)
	identifyInputs(v.ChecksumKey, &j, in)
	j.Warnings = append(j.Warnings, takenBack(v, j, in)...)
	e.describeVerification(&j)
	j.WithoutHelpers = !e.helped(j)

	return j, in, nil
}

// inputs collects the inputs of a job as they are now.
func inputs(v *state.View, settings Settings, j job.Job, r job.Request) job.Inputs {
	in := job.Inputs{
		Vars:        map[string]map[string]configuration.Var{},
		Connections: map[string]configuration.Connection{},
		Extra:       r.Extra,
	}

	for _, t := range j.Targets {
		for _, group := range j.InputGroups(t) {
			in.Set(t.Name, group, settings.Merge(v, group, t.Node()), settings.Connect(v, group, t.Node()))
		}
	}

	// A variable that is secret somewhere is secret in a request as well.
	marked := v.Marked()
	in.Extra = r.Extra.Mark(func(name string) bool { return marked(name) || secretAnywhere(in, name) })

	return in
}

// identifyInputs records the checksum of the variables of each target.
func identifyInputs(key configuration.ChecksumKey, j *job.Job, in job.Inputs) {
	if j.TakesAddrs() {
		return
	}

	for i := range j.Targets {
		t := &j.Targets[i]

		// Without a key, or with a secret that cannot be read, it is unknown.
		t.Variables, _ = key.Checksum(in.Vars[t.Name], in.Extra)
	}

	// A value of the request is data, as a stored one is.
	request := configuration.Merge(configuration.Layer{Origin: configuration.OriginRequest, Vars: in.Extra})
	j.ExtraSums = nil

	for _, name := range j.ExtraNames {
		j.ExtraSums = append(j.ExtraSums, key.ChecksumOf(name, request))
	}
}

// takenBack warns about variables that only a former request has set: the job configures its nodes
// without their values, unless its own request sets them.
func takenBack(v *state.View, j job.Job, in job.Inputs) (warnings []string) {
	if j.TakesAddrs() || j.Verb.Verifies() {
		return nil
	}

	for _, t := range j.Targets {
		n, known := v.Lookup(t.Node())
		if !known || t.From != inventory.Allocated || t.Group == "" || n.Configured == nil {
			continue
		}

		differ := t.Variables == "" || t.Variables != n.Configured.Variables
		names := slices.DeleteFunc(n.Configured.Undone(differ, func(name string) string {
			return v.ChecksumKey.ChecksumOf(name, in.Vars[t.Name])
		}), func(name string) bool {
			_, again := in.Extra[name]
			return again
		})

		if len(names) > 0 {
			warnings = append(warnings, fmt.Sprintf("%s: it takes back %s, which only the request of job %s had set",
				t.Name, job.ShortList(names), n.Applied))
		}
	}

	return warnings
}

// secretAnywhere reports whether the variable is marked as secret for one of the hosts.
func secretAnywhere(in job.Inputs, name string) bool {
	found := false

	in.EachVars(func(_ string, vars map[string]configuration.Var) {
		_, secret := vars[name].Value.(configuration.Secret)
		found = found || secret
	})

	return found
}

// checkReadable refuses inputs with secrets that cannot be read now.
func checkReadable(in job.Inputs) error {
	hosts := []map[string]map[string]configuration.Var{in.Vars}
	for _, group := range slices.Sorted(maps.Keys(in.CleanupVars)) {
		hosts = append(hosts, in.CleanupVars[group])
	}

	for _, vars := range hosts {
		for _, host := range slices.Sorted(maps.Keys(vars)) {
			if err := configuration.CheckReadable(vars[host]); err != nil {
				return err
			}
		}
	}

	extra := make(map[string]configuration.Var, len(in.Extra))
	for name, value := range in.Extra {
		extra[name] = configuration.Var{Value: value, Origin: configuration.OriginRequest}
	}

	return configuration.CheckReadable(extra)
}

func hideAll(
	secrets configuration.Secrets, vars map[string]map[string]configuration.Var,
) map[string]map[string]configuration.Var {
	hidden := make(map[string]map[string]configuration.Var, len(vars))
	for host, v := range vars {
		hidden[host] = secrets.HideMerged(v)
	}

	return hidden
}

func orZero[T any](v *T) T {
	if v == nil {
		var zero T
		return zero
	}

	return *v
}

// Cancel asks a job to end. A Queued job ends at once; a Running one takes its
// failure path. The second request skips the cleanup.
func (e *Engine) Cancel(ctx context.Context, c access.Caller, id string) (job.Job, error) {
	var cancelled job.Job

	record := access.Record{Action: "jobs.cancel", Targets: []string{id}}
	err := access.Audited(ctx, e.audit, c, record, func(record *access.Record) error {
		defer func() { record.Job = cancelled.ID }()

		return e.retryConflict(ctx, func(v *state.View) error {
			if j, err := c.ReplayJob(ctx, e.store, e.state); j != nil || err != nil {
				cancelled = orZero(j)
				return err
			}

			v, err := c.Precondition.Check(ctx, e.state, v)
			if err != nil {
				return err
			}

			j, err := v.Job(id)
			if err != nil {
				return err
			}

			if j.Status.Ended() {
				return inventory.Errorf(inventory.KindRefused, "job %s has ended: %s", j.ID, j.Status).
					Do("see its result").With(inventory.ShowJob(j.ID))
			}

			cancelled, err = e.store.Cancel(ctx, withCancel(j, c.Principal), c.Key)

			return err
		})
	})

	return cancelled, err
}

// withCancel returns the job with one more cancel request.
func withCancel(j job.Job, principal string) job.Job {
	if j.Status == job.Queued {
		j.Status, j.Cause, j.Ended = job.Cancelled, job.CauseCancelled, time.Now()
		j.Message = job.CancelledWhileQueued(principal)
		j.Cancel, j.CancelBy = 1, principal

		return j
	}

	j.Cancel, j.CancelBy = min(j.Cancel+1, 2), cmp.Or(j.CancelBy, principal)

	return j
}
