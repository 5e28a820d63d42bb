// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/control"
	"github.com/contiv/cluster/management/explain"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/policy"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
)

const (
	// pace is the shortest time between two rounds, and retry the longest.
	pace  = time.Second
	retry = 30 * time.Second
	// stepTime bounds one step: the decisions of a round, the room for people, and each
	// attempt to carry a decision out.
	stepTime = 15 * time.Second
	// firstDelay is the time between two attempts at a decision; it doubles up to lastDelay.
	firstDelay = 5 * time.Second
	lastDelay  = 5 * time.Minute
	// forget is the age at which a decision that could not be carried out is withdrawn, and taken anew
	// if its reason still holds: half the time for which its idempotency key is kept.
	forget = access.ResultAge / 2
)

// Store keeps the memory of the policies, and nodes. A write returns once the view shows it.
type Store interface {
	node.Putter
	record.Store
}

// Jobs accepts and cancels jobs.
type Jobs interface {
	Submit(ctx context.Context, c access.Caller, r job.Request) (job.Job, error)
	Cancel(ctx context.Context, c access.Caller, id string) (job.Job, error)
}

// Rollouts starts and aborts rollouts. With the idempotency key of the caller, a call that
// was carried out already returns the same rollout.
type Rollouts interface {
	Start(ctx context.Context, c access.Caller, r rollout.Request) (rollout.Record, error)
	Abort(ctx context.Context, c access.Caller, id string, o rollout.AbortOptions) (rollout.Record, error)
}

// Prober reads the signs of life of hosts over ssh. It blocks for some seconds at most.
type Prober interface {
	Vitals(ctx context.Context, h configuration.Host) (configuration.Vitals, configuration.Reach)
}

// Settings is the part of the configuration that the leader depends on.
type Settings struct {
	policy.Settings
	// Incomplete is the reason why these are not the settings that the operator chose,
	// or nil. Until then nothing is decided.
	Incomplete error
	// Connect and HostCAs are those of node.Settings.
	Connect func(v *state.View, group, node string) configuration.Connection
	HostCAs []string
}

// Options are the dependencies of a Leader.
type Options struct {
	State    state.Reader
	Store    Store
	Jobs     Jobs
	Rollouts Rollouts
	Prober   Prober
	Settings func() Settings
	Leads    func() bool // whether this instance decides now
	// Observed is when every observer had given its first full report to this process; zero:
	// not yet. nil: there is none to wait for.
	Observed func() time.Time
	// Clock returns the time of the wall clock, and one that never jumps. nil: those of the host.
	Clock  func() (wall time.Time, steady time.Duration)
	Audit  access.Auditor
	Logger logrus.FieldLogger
	// Count is called for each decision. It may be nil.
	Count func(policy string, action state.Action)
	// Halted is called with the state of the brake in words when it changes, and with ""
	// when it is released. It may be nil.
	Halted func(text string)
}

// Leader decides and acts while its instance leads. All methods may be called at once.
type Leader struct {
	Options
	*control.Loop

	began  time.Time
	braked string // the state of the brake that was passed on; of the rounds alone

	mu       sync.Mutex
	asking   map[string]bool      // nodes that are being asked
	asked    map[string]time.Time // when each was asked last
	attempts map[string]attempt   // that failed, by decision
	tasks    sync.WaitGroup
	slots    chan struct{} // bounds the questions at a time
	working  atomic.Bool   // decisions are being carried out
	time     clock
}

// New returns a leader. Run makes it decide.
func New(o Options) *Leader {
	if o.Clock == nil {
		began := time.Now()
		o.Clock = func() (time.Time, time.Duration) {
			now := time.Now()
			return now, now.Sub(began)
		}
	}

	l := &Leader{
		Options: o, began: time.Now(),
		asking: map[string]bool{}, asked: map[string]time.Time{}, attempts: map[string]attempt{},
		slots: make(chan struct{}, questions),
	}
	l.Loop = control.New(control.Options{
		Name: "policies", Round: l.round, Changed: o.State.Changed, Pace: pace, Every: retry,
		Trouble: "a decision could not be recorded or carried out; retrying", Logger: o.Logger,
	})

	return l
}

// Run decides at every change of the view, and when something becomes due, until ctx ends.
func (l *Leader) Run(ctx context.Context) {
	defer l.tasks.Wait()

	l.Loop.Run(ctx)
}

// round decides once while this instance leads, and passes the state of the brake on in any case.
func (l *Leader) round(ctx context.Context) (control.Next, error) {
	next, err := l.turn(ctx)

	if text := policy.Describe(state.AutomationOf(l.State.View()).Brake); text != l.braked && l.Halted != nil {
		l.braked = text
		l.Halted(text)
	}

	return control.Next{At: next}, err
}

// turn decides, and carries the decisions out. It returns when the next turn is
// due at the latest; zero: at the next change.
func (l *Leader) turn(ctx context.Context) (time.Time, error) {
	settings := l.Settings()
	v := l.State.View()

	// A jump of the clock is found soon after it, also while nothing is decided.
	l.start()

	// An old view, or a record that cannot be read, is no ground for a decision.
	if !l.Leads() {
		l.time.yield()
		return time.Time{}, nil
	}

	if v.Stale || settings.Incomplete != nil || v.Unreadable[automationKey] != "" {
		return time.Time{}, nil
	}

	next, err := l.decide(ctx, settings)

	// Make room also if not all could be decided.
	err = errors.Join(err, l.makeRoom(ctx, settings))

	return earliest(next, l.startWork(ctx)), err
}

// world returns what the policies decide from now.
func (l *Leader) world(v *state.View, settings Settings) policy.World {
	now, start := l.start()

	return policy.World{View: v, Settings: settings.Settings, Now: now, Start: start}
}

// start returns the time, and since when it tells an age.
func (l *Leader) start() (now time.Time, start policy.Start) {
	start = policy.Start{Began: l.began, Observed: l.began}
	if l.Observed != nil {
		start.Observed = l.Observed()
	}

	return l.time.read(l.Clock, start)
}

// earliest returns the earlier one of two times; zero is none.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}

	return a
}

// automationKey is the key of the record of the policies among unreadable records.
const automationKey = "v/automation"

// remember stores the memory of the policies if it is still at a.Revision, or returns
// KindConflict.
func (l *Leader) remember(ctx context.Context, a state.Automation) error {
	_, err := record.Replace(ctx, l.Store, &state.Memory, "", a.Revision, &a)
	return err
}

// decide records the decisions of the policies, the brake first.
func (l *Leader) decide(ctx context.Context, settings Settings) (next time.Time, err error) {
	bounded, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()

	if err := l.mend(bounded, settings); err != nil {
		return time.Time{}, err
	}

	w := l.world(l.State.View(), settings)
	if err := l.brake(bounded, w); err != nil {
		return time.Time{}, err
	}

	w.View = l.State.View()

	if schedules, changed := policy.Scheduled(w); changed {
		a := state.AutomationOf(w.View)
		a.Schedules = schedules

		if err := l.remember(bounded, a); err != nil {
			return time.Time{}, err
		}
	}

	next = state.AutomationOf(w.View).Brake.Until

	for _, p := range policy.All(settings.Settings) {
		w.View = l.State.View()

		plan := policy.Decide(p, w)
		next = earliest(next, plan.Next)

		if len(plan.Decisions) > 0 {
			if err := l.record(
				bounded,
				stopped(state.AutomationOf(w.View), plan.Decisions),
				plan.Decisions...); err != nil {
				return next, err
			}
		}

		if err := l.leave(bounded, p, plan.Notes); err != nil {
			return next, err
		}

		l.ask(ctx, settings, plan.Ask)
	}

	return next, nil
}

// brake stores the brake if it is turned, or holds until another time.
func (l *Leader) brake(ctx context.Context, w policy.World) error {
	a := state.AutomationOf(w.View)
	before := a.Brake

	brake, d := policy.Brake(w)
	a.Brake = brake

	switch {
	case d != nil:
		return l.record(ctx, a, *d)
	case !brake.Since.Equal(before.Since) || !brake.Until.Equal(before.Until):
		return l.remember(ctx, a)
	}

	return nil
}

// stopped returns the automation with the policies turned off that stop themselves.
func stopped(a state.Automation, decisions []state.Decision) state.Automation {
	for _, d := range decisions {
		if d.Action == state.ActionStop {
			a = a.Turn(d.Policy, state.Switch{Since: d.Time, Actor: state.PolicyPrincipal(d.Policy), Reason: d.Case})
		}
	}

	return a
}

// record stores decisions, with the brake and the pauses of a, before anything is done.
func (l *Leader) record(ctx context.Context, a state.Automation, decisions ...state.Decision) error {
	w := l.world(l.State.View(), l.Settings())
	if err := l.remember(ctx, policy.Remember(w, a.With(decisions...))); err != nil {
		return err
	}

	for _, d := range decisions {
		l.Logger.WithFields(logrus.Fields{"policy": d.Policy, "node": d.Node, "action": d.Action, "id": d.ID}).
			Info("decided: " + d.Case)

		if l.Count != nil {
			l.Count(d.Policy, d.Action)
		}

		r := access.Record{
			Action:  "policies.decide." + string(d.Action),
			Targets: targets(d),
			Reason:  policy.Sentence(d),
		}
		// The decision is stored already, so a failure of the audit must not hold it up.
		_ = access.Audited(ctx, l.Audit, principal(d.Policy), r, func(*access.Record) error { return nil })
	}

	return nil
}

func principal(policy string) access.Caller {
	return access.Caller{Principal: state.PolicyPrincipal(policy)}
}

func targets(d state.Decision) []string {
	if d.Node == "" {
		return d.Nodes
	}

	return []string{d.Node}
}

// leave notes in the histories of nodes that the policy leaves them as they are.
func (l *Leader) leave(ctx context.Context, p policy.Policy, notes map[string]string) error {
	if len(notes) == 0 {
		return nil
	}

	names := slices.Sorted(maps.Keys(notes))
	caller := principal(p.Name())
	record := access.Record{Action: "policies.decide." + string(state.ActionRecord), Targets: names, Deferred: true}

	return access.Audited(ctx, l.Audit, caller, record, func(*access.Record) error {
		return state.RetryConflict(ctx, l.State, func(v *state.View) error {
			var writes []state.NodeWrite

			for _, name := range names {
				n, ok := v.Lookup(name)
				if !ok || !n.Presence.Pending() {
					continue
				}

				writes = append(writes, mark(n, caller.Principal, notes[name], time.Now()))
			}

			return node.PutNodes(ctx, l.Store, writes)
		})
	})
}

// mark returns the write that notes a decision in the history of a node.
func mark(n inventory.Node, actor, reason string, at time.Time) state.NodeWrite {
	m, entry := n.Decided(inventory.Trigger{Actor: actor, Reason: reason, Time: at})

	return state.NodeWrite{Node: m, Entries: []inventory.HistoryEntry{entry}}
}

// Explain returns the findings of all policies about a node.
func (l *Leader) Explain(v *state.View, n inventory.Node) []explain.Finding {
	w := l.world(v, l.Settings())

	var findings []explain.Finding
	for _, p := range policy.All(w.Settings) {
		findings = append(findings, p.Explain(w, n)...)
	}

	return findings
}
