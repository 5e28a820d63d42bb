// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/control"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

const (
	// shortest and longest bound the pause between rounds. Each node waits for a round when its
	// job ends, so the pause is short.
	shortest = 10 * time.Millisecond
	longest  = 15 * time.Second
	// share bounds the load: the pause is at least share times as long as the last round took, so
	// that frequent changes of a large fleet do not keep a processor busy.
	share = 5
	// actTime bounds one step, such as the acceptance of a job.
	actTime = 2 * time.Minute
	// room is the queue length at which rollouts stop submitting jobs: the rest of the queue is
	// reserved for people.
	room = job.MaxQueued / 2
)

// Store writes nodes and reads inputs. A write returns once the view shows it.
type Store interface {
	// PutNodes stores nodes and returns the names of those that were changed since they were read.
	PutNodes(ctx context.Context, writes []state.NodeWrite) (conflicts []string, err error)
	// Inputs returns the inputs under a name, or KindNotFound.
	Inputs(ctx context.Context, name string) (job.Inputs, error)
	access.Results
}

// Jobs submits and cancels jobs, see engine.Engine.
type Jobs interface {
	// SubmitRollout submits the job of a node, and notes it in the record in the same
	// transaction. It is KindPrecondition if the record is not the newest one.
	SubmitRollout(ctx context.Context, c access.Caller, r Record, b Begin, extra configuration.Vars) (
		Record, error)
	// Cancel asks a job to end.
	Cancel(ctx context.Context, c access.Caller, id string) (job.Job, error)
	// PrepareRollout refuses a request that could not run, and returns the digest and the
	// commit of the playbooks of now.
	PrepareRollout(ctx context.Context, c access.Caller, r job.Request) (digest, commit string, err error)
	// PinPlaybooks keeps a copy of the playbooks of now.
	PinPlaybooks(ctx context.Context) (digest, commit string, err error)
	// KeptPlaybooks reports whether the playbooks with that digest are still available. With an
	// error, that is not known.
	KeptPlaybooks(ctx context.Context, digest string) (bool, error)
}

// Settings is the part of the configuration that rollouts depend on.
type Settings struct {
	Groups   inventory.Groups
	JobLimit int // jobs that run at a time
	// Commands are the names of the commands that a gate may have, sorted.
	Commands []string
	// Incomplete is the reason why these are not the settings that the operator chose, or
	// nil. Until then nothing is begun.
	Incomplete error
}

// Options are the dependencies of a Loop.
type Options struct {
	State    state.Reader
	Records  record.Store // its records are those of State
	Store    Store
	Jobs     Jobs
	Settings func() Settings
	Leads    func() bool // whether this instance decides now
	// Ask makes the HTTP check of a gate: it returns the status of the answer.
	Ask func(ctx context.Context, url string) (status int, err error)
	// Command runs the command of a gate for a node, at most that long, and returns why it
	// failed, or nil. nil: every command fails.
	Command func(ctx context.Context, name string, node CommandNode, within time.Duration) error
	// Allowed reports whether the maintenance windows permit the rollout to begin the node
	// now. nil: always. It must not block.
	Allowed func(v *state.View, r Record, n *inventory.Node, now time.Time) Permission
	// Permits returns the answers of the budgets, see World. nil: always. It must not
	// block.
	Permits func(v *state.View, r Record, working []string) Permits
	// Halted returns why automation holds the rollout back, in words, or "". nil: it never does.
	Halted func(a state.Automation, r Record) string
	// Clock returns the time of the wall clock, and one that never jumps. nil: those of the host.
	Clock  func() (wall time.Time, steady time.Duration)
	Audit  access.Auditor
	Logger logrus.FieldLogger
}

// Loop starts and changes rollouts, and drives them while its instance leads. All methods
// may be called at once.
type Loop struct {
	Options
	*control.Loop

	soaks soaks // for the rounds only

	mu      sync.Mutex
	checked map[checkKey]*checkState
}

// CommandNode is the node for which a command of a gate runs.
type CommandNode struct{ Rollout, Name, Addr, Group string }

// New returns a leader. Run makes it drive rollouts.
func New(o Options) *Loop {
	if o.Command == nil {
		o.Command = func(context.Context, string, CommandNode, time.Duration) error {
			return errors.New("there are no commands")
		}
	}

	if o.Halted == nil {
		o.Halted = func(state.Automation, Record) string { return "" }
	}

	if o.Clock == nil {
		began := time.Now()
		o.Clock = func() (time.Time, time.Duration) {
			now := time.Now()
			return now, now.Sub(began)
		}
	}

	l := &Loop{Options: o, checked: map[checkKey]*checkState{}}
	l.Loop = control.New(control.Options{
		Name: "rollouts", Duty: o.Leads, Begin: l.begun, Round: l.round, Changed: o.State.Changed,
		Pace: shortest, Every: longest, Trouble: "a rollout could not be driven; retrying", Logger: o.Logger,
	})

	return l
}

// begun resets the results of checks: after a change of leadership they are stale, so the new leader
// checks again.
func (l *Loop) begun(context.Context) error {
	l.forgetChecks(nil)
	l.soaks = soaks{}
	return nil
}

// round drives each rollout once.
func (l *Loop) round(ctx context.Context) (next control.Next, err error) {
	v := l.State.View()

	// An old view is no ground for a decision.
	if v.Stale || l.Settings().Incomplete != nil {
		return next, nil
	}

	var failures []error

	for id, r := range record.All(v, &Kind) {
		if r.Status.Ended() {
			continue
		}

		driven, err := l.drive(ctx, id)
		next.Acts = append(next.Acts, driven.Acts...)
		next.Pause += driven.Pause
		next.At = control.Earliest(next.At, driven.At)

		if err != nil && !isOvertaken(err) {
			failures = append(failures, fmt.Errorf("rollout %s: %w", id, err))
		}
	}

	next.Pause = min(next.Pause, longest)

	// Nodes that reached their gates in this round are only in the newest view.
	l.forgetChecks(record.List(l.State.View(), &Kind))
	l.soaks.forget()

	if err := l.expire(ctx, v); err != nil {
		failures = append(failures, fmt.Errorf("old rollouts stay: %w", err))
	}

	return next, errors.Join(failures...)
}

// isOvertaken reports whether a concurrent change won. The next round decides anew.
func isOvertaken(err error) bool {
	kind := inventory.KindOf(err)
	return kind == inventory.KindConflict || kind == inventory.KindPrecondition
}

// drive carries out the next steps of a rollout. It returns the checks to make, and when the next
// steps are due.
func (l *Loop) drive(ctx context.Context, id string) (next control.Next, err error) {
	v := l.State.View()

	stored := record.Get(v, &Kind, id)
	if stored == nil {
		return next, nil
	}
	r := *stored

	began := time.Now()
	now, steady := l.Clock()
	w := l.world(v, r)
	w.Age = func(n *Node) (time.Duration, bool) { return l.soaks.age(id, n, now, steady) }

	steps := Next(r, w, now)
	next.At, next.Pause = steps.Due, share*time.Since(began)

	// The pending changes of the record are written together with the acceptance of the first job,
	// which saves a write per node. A new status, and nodes that failed their gate, are written and
	// reported on their own.
	joined := steps.Changed && len(steps.Begin) > 0 && steps.Record.Status == r.Status && len(steps.Unfit) == 0

	switch {
	case joined:
		r = steps.Record
	case steps.Changed:
		// After a crash in between they count as unhealthy until the next verification.
		if err := l.markUnfit(ctx, v, r, steps.Unfit, now); err != nil {
			return next, err
		}

		if r, err = l.put(ctx, r, steps.Record); err != nil {
			return next, err
		}
	}

	for _, c := range steps.Checks {
		act, at := l.check(r, c, now)
		next.Acts, next.At = append(next.Acts, act...), control.Earliest(next.At, at)
	}

	begun, err := l.begin(ctx, r, steps.Begin)

	// No job was accepted, so write the outcomes now. The write conflicts if the record has changed.
	if joined && begun.Revision == r.Revision {
		_, failed := l.put(ctx, r, r)
		err = errors.Join(err, failed)
	}

	return next, errors.Join(err, l.cancel(ctx, r, steps.Cancel))
}

// markUnfit records on the nodes that they failed the gate, with the reasons: they no longer count as
// healthy.
func (l *Loop) markUnfit(
	ctx context.Context, v *state.View, r Record, reasons map[string]string, now time.Time,
) error {
	if len(reasons) == 0 {
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, actTime)
	defer cancel()

	var writes []state.NodeWrite

	for _, name := range slices.Sorted(maps.Keys(reasons)) {
		if n := v.Find(name); n != nil {
			why := fmt.Sprintf("the gate of rollout %s failed: %s", r.ID, reasons[name])
			writes = append(writes, state.NodeWrite{Node: n.FailGate(why, now)})
		}
	}

	conflicts, err := l.Store.PutNodes(ctx, writes)
	if err == nil && len(conflicts) > 0 {
		err = inventory.Errorf(inventory.KindConflict, "%s changed meanwhile", strings.Join(conflicts, ", "))
	}

	return err
}

// put stores the next record of a rollout. A change of its status is logged, and the transaction has its audit record.
func (l *Loop) put(ctx context.Context, was, is Record) (Record, error) {
	ctx, cancel := context.WithTimeout(ctx, actTime)
	defer cancel()

	if was.Status == is.Status {
		return l.replace(ctx, is)
	}

	entry, announced := access.Announce(ctx, l.Audit, principal(is), access.Record{
		Action: "rollouts.decide", Targets: []string{is.ID}, Reason: string(is.Status) + ": " + is.Reason,
	})

	stored, err := l.replace(ctx, is, entry)
	if err == nil {
		l.Logger.WithField("rollout", is.ID).Infof("%s: %s", is.Status, is.Reason)
		announced()
	}

	return stored, err
}

// replace stores the next record of a rollout with parts of its transaction, or returns KindConflict if the stored
// revision differs.
func (l *Loop) replace(ctx context.Context, r Record, parts ...any) (Record, error) {
	revision, err := record.Replace(ctx, l.Records, &Kind, r.ID, r.Revision, &r, parts...)
	if err == nil {
		r.Revision = revision
	}
	return r, err
}

// world returns the facts that the decision depends on.
func (l *Loop) world(v *state.View, r Record) World {
	w := World{
		Node: v.Find,
		Job: func(id string) (job.Job, bool) {
			if j := record.Get(v, &job.Kind, id); j != nil {
				return *j, true
			}

			// An unreadable job holds its node until it becomes readable or is removed.
			if v.Damaged(&job.Kind, id) != nil {
				return job.Job{ID: id, Status: job.Running}, true
			}

			return job.Job{}, false
		},
		Checked: func(node string, attempt int) CheckResult { return l.result(r.ID, node, attempt) },
		Room:    room - v.Queued(),
	}

	w.Halted = l.Halted(state.AutomationOf(v), r)

	if l.Allowed != nil && !r.Spec.OverrideWindow {
		w.Allowed = func(n *inventory.Node, now time.Time) Permission { return l.Allowed(v, r, n, now) }
	}

	if l.Permits != nil {
		w.Permits = func(working []string) Permits { return l.Permits(v, r, working) }
	}

	return w
}

// cancel cancels jobs of a rollout that is aborted.
func (l *Loop) cancel(ctx context.Context, r Record, list []Cancel) error {
	var failures []error

	for _, c := range list {
		ctx, cancel := context.WithTimeout(ctx, actTime)
		caller := principal(r)
		caller.Precondition = mayCancel(c)
		_, err := l.Jobs.Cancel(ctx, caller, c.Job)

		cancel()

		// It ended, or began, meanwhile.
		if kind := inventory.KindOf(err); err != nil && kind != inventory.KindRefused && !isOvertaken(err) {
			failures = append(failures, err)
		}
	}

	return errors.Join(failures...)
}

// mayCancel refuses jobs that were cancelled already, because a second cancel would skip the cleanup,
// and running jobs if only queued ones are to be cancelled.
func mayCancel(c Cancel) access.Precondition {
	return func(v *state.View) error {
		j, err := v.Job(c.Job)
		if err != nil || j.Cancel == 0 && (!c.Queued || j.Status == job.Queued) {
			return err
		}
		return inventory.Errorf(inventory.KindPrecondition, "job %s goes on by itself", c.Job).Do("wait for it")
	}
}

// begin submits jobs one by one. Each acceptance also updates the record. It returns the newest record.
func (l *Loop) begin(ctx context.Context, r Record, list []Begin) (Record, error) {
	if len(list) == 0 {
		return r, nil
	}

	ctx, cancel := context.WithTimeout(ctx, actTime)
	defer cancel()

	in, err := l.Store.Inputs(ctx, InputsOf(r.ID))
	if err != nil && inventory.KindOf(err) != inventory.KindNotFound {
		return r, err
	}

	// Each acceptance changes the record, so the next one needs its revision.
	for _, b := range list {
		if r, err = l.submit(ctx, r, b, in.Extra); err != nil {
			return r, err
		}
	}

	return r, nil
}

// submit submits a job and returns the record with it. A permanent refusal fails the node; a temporary
// one that concerns this node alone postpones it.
func (l *Loop) submit(
	ctx context.Context, r Record, b Begin, extra configuration.Vars,
) (Record, error) {
	begun, err := l.Jobs.SubmitRollout(ctx, principal(r), r, b, extra)

	log := l.Logger.WithError(err).WithField("rollout", r.ID).WithField("node", b.Node)

	switch inventory.KindOf(err) {
	case "":
		return begun, nil
	case inventory.KindRefused, inventory.KindInvalid, inventory.KindNotFound, inventory.KindTooLarge:
		if !l.isNext(r, b) {
			return r, inventory.Errorf(inventory.KindPrecondition, "%s cannot be begun any more: %w", b.Node, err)
		}

		log.Warn("a job of a rollout was refused")
		return l.replace(ctx, r.Refused(b, job.Message(err), time.Now()))
	case inventory.KindInternal:
		if ctx.Err() != nil {
			return r, err
		}

		log.Warn("a job of a rollout could not be accepted; retrying")

		// The reason is already stored.
		postponed := r.Postponed(b, internal, time.Now())
		if slices.Equal(postponed.Nodes, r.Nodes) {
			return r, nil
		}
		return l.replace(ctx, postponed)
	}

	return r, err
}

// internal stands for the text of an error that may contain anything.
const internal = "an internal error; the log of the daemon has the details"

// isNext reports whether the newest view leads to the same job: since the decision, something may have
// appeared that the node has to wait for or is skipped for.
func (l *Loop) isNext(r Record, b Begin) bool {
	now, _ := l.Clock()
	return slices.Contains(Next(r, l.world(l.State.View(), r), now).Begin, b)
}

// principal returns the caller of the jobs of a rollout.
func principal(r Record) access.Caller {
	return access.Caller{Principal: Principal(r.ID)}
}

// expire removes the rollouts that are no longer kept.
func (l *Loop) expire(ctx context.Context, v *state.View) error {
	ids := Expired(record.List(v, &Kind))
	if len(ids) == 0 {
		return nil
	}

	self := access.Caller{Principal: access.Manager}

	for _, id := range ids {
		entry := access.Record{
			Action: "rollouts.expire", Targets: []string{id}, Reason: "more have ended than are kept",
		}

		err := access.Audited(ctx, l.Audit, self, entry, func(ctx context.Context, _ *access.Record) error {
			_, _, err := record.Decide(ctx, l.Records, func(tx *record.Tx) (any, error) {
				tx.Attach(state.DropInputs{Name: InputsOf(id)})
				record.Remove(tx, &Kind, id)
				return nil, nil
			})

			return err
		})
		if err != nil {
			return err
		}
	}

	return nil
}
