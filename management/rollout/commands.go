// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// Get returns the rollout of the view with that id.
func Get(v *state.View, id string) (Record, error) {
	if err := CheckID(id); err != nil {
		return Record{}, err
	}

	r := record.Get(v, &Kind, id)
	if r == nil {
		return Record{}, cmp.Or(v.Damaged(&Kind, id), Unknown(id))
	}
	return *r, nil
}

// Remaining returns how long the rollout is expected to take from now on, and whether that is
// known.
func (l *Loop) Remaining(r Record) (left time.Duration, known bool) {
	return r.Remaining(l.Settings().JobLimit, time.Now())
}

// Preview returns what Start would store, in status Planned. Nodes that could not begin now have the
// reason. It stores nothing.
func (l *Loop) Preview(ctx context.Context, c access.Caller, req Request) (Record, error) {
	v, err := c.Check(ctx, l.State, l.State.View(), Starting(req))
	if err != nil {
		return Record{}, err
	}
	r, err := Make(v.Snapshot, l.Settings().Groups, record.List(v, &Kind), req, time.Now())
	if err != nil {
		return Record{}, err
	}
	return l.prepare(ctx, c, v, r.Foresee(v.Snapshot), req.Extra)
}

// Start starts a rollout and pins its nodes and playbooks. It returns as soon as the rollout is stored.
func (l *Loop) Start(ctx context.Context, c access.Caller, req Request) (Record, error) {
	entry := access.Record{Action: "rollouts.start." + string(req.Action), Targets: req.Nodes, Reason: req.Reason}

	return l.started(
		ctx,
		c,
		entry,
		Starting(req),
		req.Extra,
		req.Playbooks,
		func(v *state.View) (Record, error) {
			return Make(v.Snapshot, l.Settings().Groups, record.List(v, &Kind), req, time.Now())
		},
	)
}

// Undo starts a rollout that reverts another one, see Record.Undo.
func (l *Loop) Undo(ctx context.Context, c access.Caller, id, reason string) (Record, error) {
	if err := inventory.CheckReason(reason); err != nil {
		return Record{}, err
	}

	entry := access.Record{Action: "rollouts.undo", Targets: []string{id}, Reason: reason}
	kept := map[string]bool{}

	return l.started(ctx, c, entry, Undoing(id), nil, "", func(v *state.View) (Record, error) {
		r, err := Get(v, id)
		if err != nil {
			return r, err
		}

		undo, err := r.Undo(v.Snapshot, record.List(v, &Kind), func(digest string) (bool, error) {
			// Thousands of nodes share a few digests.
			if is, asked := kept[digest]; asked {
				return is, nil
			}

			is, err := l.Jobs.KeptPlaybooks(ctx, digest)
			if err == nil {
				kept[digest] = is
			}
			return is, err
		}, reason, time.Now())

		return undo.OnlyWith(l.Settings().Commands), err
	})
}

// started stores the rollout that plan returns, with its audit record. playbooks is the required
// playbook digest, or "" for any.
func (l *Loop) started(
	ctx context.Context, c access.Caller, entry access.Record, subject access.Subject,
	extra configuration.Vars, playbooks string,
	plan func(*state.View) (Record, error),
) (started Record, err error) {
	asked := entry.Targets
	err = access.Audited(ctx, l.Audit, c, entry, func(ctx context.Context, entry *access.Record) error {
		v := l.State.View()
		if r, found, err := l.once().Replay(ctx, c); found || err != nil {
			started = r
			return err
		}

		v, err := c.Check(ctx, l.State, v, subject)
		if err != nil {
			return err
		}

		// Parse the playbooks once, and not in each attempt.
		first, err := plan(v)
		if err != nil {
			return err
		}
		prepared, err := l.prepare(ctx, c, v, first, extra)
		if err != nil {
			return err
		}

		if playbooks != "" && prepared.Playbooks != playbooks {
			return inventory.Errorf(inventory.KindPrecondition,
				"the playbooks changed since the rollout was decided on: their digest is %s, and not %s",
				prepared.Playbooks, playbooks)
		}

		started, err = l.add(ctx, c, subject, prepared, extra, func(v *state.View) (Record, error) {
			r, err := plan(v)
			r.ID = NewID()
			entry.Targets = slices.Concat([]string{r.ID}, asked)
			return r, err
		})

		return err
	})

	l.Kick()

	return started, err
}

// add decides on the newest view and stores the rollout, with the playbooks that were prepared.
func (l *Loop) add(
	ctx context.Context, c access.Caller, subject access.Subject, prepared Record, extra configuration.Vars,
	plan func(*state.View) (Record, error),
) (Record, error) {
	return l.once().Decide(ctx, c, subject, func(tx *record.Tx) (Record, error) {
		// A rollout may have more nodes than a commit has guards.
		tx.DependOn(&Kind, &job.Nodes)

		r, err := plan(state.ViewOf(tx))
		if err != nil {
			return Record{}, err
		}

		// Only these playbooks were parsed; newer ones may be broken.
		r.Playbooks, r.Commit = prepared.Playbooks, prepared.Commit
		r = r.Begin(c.Principal, time.Now())

		record.Put(tx, &Kind, &r)
		tx.Attach(state.PutInputs{Name: InputsOf(r.ID), Inputs: job.Inputs{Extra: extra}})
		c.Keep(tx, access.Result{Rollout: r.ID})

		return r, nil
	})
}

// once makes and changes rollouts.
func (l *Loop) once() access.Once[Record] {
	return access.Once[Record]{Kind: &Kind, Records: l.Records, Results: l.Store, State: l.State}
}

// prepare refuses a rollout if none of its nodes could begin or its playbooks cannot run, and pins the
// playbooks. An undo uses the playbooks recorded for its nodes: the current ones may be broken, which
// may be the reason for the undo.
func (l *Loop) prepare(
	ctx context.Context, c access.Caller, v *state.View, r Record, extra configuration.Vars,
) (Record, error) {
	settings := l.Settings()
	if err := settings.Incomplete; err != nil {
		return r, err
	}
	if command := r.Spec.Gate.Command; command != nil && !slices.Contains(settings.Commands, command.Name) {
		return r, UnknownCommand(command.Name, settings.Commands)
	}

	if r.UndoOf != "" {
		return r, nil
	}

	row, _ := inventory.TransitionOf(r.Spec.Action)
	asked := map[string]bool{}

	var refusal error

	for _, n := range repairedFirst(v, r.Nodes) {
		node, _ := v.Lookup(n.Name)
		if n.State != Waiting || asked[n.Group] {
			continue
		}

		if err := row.Check(node); err != nil {
			refusal = cmp.Or(refusal, err)
			continue
		}

		// One node of each group suffices: each group needs a play.
		asked[n.Group] = true

		digest, commit, err := l.Jobs.PrepareRollout(ctx, c, r.RequestOf(Begin{Node: n.Name}, extra))
		if err != nil {
			return r, err
		}
		r.Playbooks, r.Commit = digest, commit
	}

	if len(asked) == 0 && refusal != nil {
		return r, &NotNowError{Err: refusal}
	}

	return r, nil
}

// repairedFirst moves unavailable nodes to the front, in the order in which their budgets permit them:
// the rollout brings them back before it takes others out of service.
func repairedFirst(v *state.View, nodes []Node) []Node {
	sorted := slices.Clone(nodes)
	rank := func(n Node) int {
		if node, known := v.Lookup(n.Name); known && !node.Available() {
			return 0
		}
		return 1
	}

	slices.SortStableFunc(sorted, func(a, b Node) int { return rank(a) - rank(b) })

	return sorted
}

// acts are the acts on a rollout. before is the record as it was, and r the one that may have other playbooks.
var acts = map[Act]struct {
	begins bool // it lets nodes begin
	do     func(before, r Record, m Mark, o ActOptions) (Record, error)
}{
	ActApprove: {true, func(_, r Record, m Mark, _ ActOptions) (Record, error) { return r.Approve(m) }},
	ActPromote: {true, func(_, r Record, m Mark, _ ActOptions) (Record, error) { return r.Promote(m) }},
	ActPause:   {false, func(_, r Record, m Mark, _ ActOptions) (Record, error) { return r.Pause(m) }},
	ActAbort:   {false, func(_, r Record, m Mark, o ActOptions) (Record, error) { return r.Abort(m, o.Cancel) }},
	ActRetry:   {true, func(_, r Record, m Mark, o ActOptions) (Record, error) { return r.Retry(m, o.Nodes) }},
	ActResume: {true, func(before, r Record, m Mark, _ ActOptions) (Record, error) {
		if r.Status == Running && r.Playbooks != before.Playbooks {
			return r, inventory.Errorf(inventory.KindRefused,
				"rollout %s is %s, and its nodes would get different playbooks while it goes on", r.ID, r.Status).
				Do("pause it first, then resume it with the playbooks of now")
		}
		return r.Resume(m)
	}},
}

// noting appends the description of a side change of the act to the operator's reason.
func noting(reason, change string) string {
	if reason == "" || change == "" {
		return reason + change
	}
	return reason + "; " + change
}

// Starting returns the scope subject of a start: the nodes and the group they join.
func Starting(r Request) access.Subject {
	return func(s *state.Scoped) error { return s.CheckMove(r.Nodes, r.Group) }
}

// Undoing returns the scope subject of an undo: each node returns to its former group.
func Undoing(id string) access.Subject {
	return func(s *state.Scoped) error {
		r, err := Get(s.View, id)
		if err != nil {
			return err
		}

		for _, n := range r.Nodes {
			if err := s.CheckMove([]string{n.Name}, n.Group); err != nil {
				return err
			}
		}

		return nil
	}
}

// Acting returns the scope subject of an act: the rollout and, if the act lets nodes begin, the waiting nodes and the
// retried ones. They join a group as at the start, and may have left the caller's scope since.
func Acting(id string, act Act, o ActOptions) access.Subject {
	return func(s *state.Scoped) error {
		r, err := Get(s.View, id)
		if err != nil || !acts[act].begins {
			return err
		}

		var names []string

		for _, n := range r.Nodes {
			again := act == ActRetry && (len(o.Nodes) == 0 && n.State == Failed || slices.Contains(o.Nodes, n.Name))

			if n.State == Waiting || again {
				names = append(names, n.Name)
			}
		}

		return s.CheckMove(names, r.Spec.Group)
	}
}

// Control carries out an act of a person on a rollout, with its audit record.
func (l *Loop) Control(
	ctx context.Context, c access.Caller, id string, act Act, o ActOptions,
) (changed Record, err error) {
	if err := inventory.CheckReason(o.Reason); err != nil {
		return Record{}, err
	}

	var digest, commit string
	if o.PlaybooksNow {
		if digest, commit, err = l.Jobs.PinPlaybooks(ctx); err != nil {
			return Record{}, err
		}
	}

	entry := access.Record{Action: "rollouts." + string(act), Targets: []string{id}, Reason: o.Reason}

	err = access.Audited(ctx, l.Audit, c, entry, func(ctx context.Context, entry *access.Record) (err error) {
		changed, err = l.once().Decide(ctx, c, Acting(id, act, o), func(tx *record.Tx) (Record, error) {
			before, err := Get(state.ViewOf(tx), id)
			if err != nil {
				return before, err
			}

			// The act is decided anew on the newest record after a conflict.
			r, m := before, Mark{By: c.Principal, At: time.Now(), Reason: o.Reason}
			if o.PlaybooksNow {
				if r, err = r.Repin(m, digest, commit); err != nil {
					return r, err
				}
			}

			if r, err = acts[act].do(before, r, m, o); err != nil {
				return r, err
			}

			// If two acts find the same node free, one conflicts, runs again and finds it taken.
			if r.TakesNodes(before) {
				if err := r.CheckFree(record.List(tx, &Kind)); err != nil {
					return r, err
				}
			}

			entry.Reason = noting(o.Reason, r.Repinned(before.Playbooks))

			record.Put(tx, &Kind, &r)
			c.Keep(tx, access.Result{Rollout: r.ID})

			return r, nil
		})

		return err
	})

	l.Kick()

	return changed, err
}

// PauseAll pauses every rollout that runs.
func (l *Loop) PauseAll(ctx context.Context, c access.Caller, reason string) error {
	for _, r := range record.All(l.State.View(), &Kind) {
		if r.Status != Running {
			continue
		}

		if _, err := l.Control(ctx, c, r.ID, ActPause, ActOptions{Reason: reason}); err != nil {
			return err
		}
	}

	return nil
}

// Held returns the reason if the node's maintenance windows keep the rollout from it now, or "".
func (l *Loop) Held(v *state.View, r Record, node string) string {
	n, known := v.Lookup(node)
	if !known || l.Allowed == nil || r.Spec.OverrideWindow {
		return ""
	}
	return l.Allowed(v, r, &n, time.Now()).Reason
}
