// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/control"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
)

const (
	// pace is the shortest time between two rounds, and retry the longest.
	pace  = time.Second
	retry = 30 * time.Second
	// stepTime bounds one step: the decisions of a round, and each attempt to carry one out.
	stepTime = 15 * time.Second
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
	Control(ctx context.Context, c access.Caller, id string, act rollout.Act, o rollout.ActOptions) (
		rollout.Record, error)
}

// Prober reads the signs of life of hosts over ssh. It blocks for some seconds at most.
type Prober interface {
	Vitals(ctx context.Context, h configuration.Host) (configuration.Vitals, configuration.Reach)
}

// Options are the dependencies of a Loop.
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
	// Clock returns the time of the wall clock, and a time that never jumps. nil: the clocks of the host.
	Clock  func() (wall time.Time, steady time.Duration)
	Audit  access.Auditor
	Logger logrus.FieldLogger
	// Count is called for each decision. It may be nil.
	Count func(policy string, action state.Action)
	// Halted is called with the state of the brake in words when it changes, and with ""
	// when it is released. It may be nil.
	Halted func(text string)
}

// Loop decides and acts while its instance leads. All methods may be called at once.
type Loop struct {
	Options
	*control.Loop

	began  time.Time
	braked string // the state of the brake that was passed on; of the rounds alone
	decide func(context.Context) (control.Next, error)

	mu    sync.Mutex
	asked map[string]time.Time // when each node was asked last
	time  clock
}

// New returns a loop. Run makes it decide.
func New(o Options) *Loop {
	if o.Clock == nil {
		began := time.Now()
		o.Clock = func() (time.Time, time.Duration) {
			now := time.Now()
			return now, now.Sub(began)
		}
	}

	l := &Loop{Options: o, began: time.Now(), asked: map[string]time.Time{}}
	l.decide = control.Remember(o.Store, &state.Memory, l.decision)
	l.Loop = control.New(control.Options{
		Name: "policies", Round: l.round, Changed: o.State.Changed, Pace: pace, Every: retry,
		Trouble: "a decision could not be recorded; retrying", Logger: o.Logger,
	})

	return l
}

// round decides once while this instance leads, and passes the state of the brake on in any case.
func (l *Loop) round(ctx context.Context) (control.Next, error) {
	next, err := l.turn(ctx)

	if text := Describe(state.AutomationOf(l.State.View()).Brake); text != l.braked && l.Halted != nil {
		l.braked = text
		l.Halted(text)
	}

	return next, err
}

// turn decides, if this instance leads.
func (l *Loop) turn(ctx context.Context) (control.Next, error) {
	settings := l.Settings()
	v := l.State.View()

	// A jump of the clock is found soon after it, also while nothing is decided.
	l.start()

	// An old view, or a record that cannot be read, is no ground for a decision.
	if !l.Leads() {
		l.time.yield()
		return control.Next{}, nil
	}

	if v.Stale || settings.Incomplete != nil || v.Damaged(&state.Memory, "") != nil {
		return control.Next{}, nil
	}

	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()

	if err := l.mend(ctx, settings); err != nil {
		return control.Next{}, err
	}

	return l.decide(ctx)
}

// decision decides on the records, and returns what is to be done.
func (l *Loop) decision(r record.Reader, _ state.Automation) control.Decision[state.Automation] {
	settings := l.Settings()
	w := l.world(r.(*state.View), settings)
	o := DecideAll(w)

	memory := state.AutomationOf(w.View)
	if o.Memory != nil {
		memory = *o.Memory
	}

	entries, announced := l.announce(context.Background(), o.Decided)

	return control.Decision[state.Automation]{
		Memory: o.Memory, Attach: entries, Recorded: announced,
		Next: control.Next{
			At: o.Next, Acts: slices.Concat(l.acts(settings, memory), l.notes(o.Notes, w.Now), l.questions(w, o.Ask)),
		},
	}
}

// world returns the input of the policies now.
func (l *Loop) world(v *state.View, settings Settings) World {
	now, start := l.start()
	return World{View: v, Settings: settings, Now: now, Start: start}
}

// start returns the time, and since when it tells an age.
func (l *Loop) start() (now time.Time, start Start) {
	start = Start{Began: l.began, Observed: l.began}
	if l.Observed != nil {
		start.Observed = l.Observed()
	}
	return l.time.read(l.Clock, start)
}

// change stores the memory that decide returns, unless it is nil.
func (l *Loop) change(
	ctx context.Context, c access.Caller, decide func(*state.View, state.Automation) (*state.Automation, error),
) error {
	_, _, err := access.Decide(ctx, l.Store, c, nil, func(tx *record.Tx) (any, error) {
		next, err := decide(state.ViewOf(tx), record.One(tx, &state.Memory))
		if next != nil && err == nil {
			record.Put(tx, &state.Memory, next)
		}
		return nil, err
	})

	return err
}

// announce returns the audit records of decisions for the transaction that stores them, and what to call after it.
func (l *Loop) announce(ctx context.Context, decisions []state.Decision) (entries []any, announced func()) {
	var stored []func()

	for _, d := range decisions {
		entry, done := access.Announce(ctx, l.Audit, principal(d.Policy), access.Record{
			Action:  "policies.decide." + string(d.Action),
			Targets: targets(d),
			Reason:  Sentence(d),
		})

		entries = append(entries, entry)
		stored = append(stored, func() {
			l.Logger.WithFields(logrus.Fields{"policy": d.Policy, "node": d.Node, "action": d.Action, "id": d.ID}).
				Info("decided: " + d.Case)

			if l.Count != nil {
				l.Count(d.Policy, d.Action)
			}

			done()
		})
	}

	return entries, func() {
		for _, announce := range stored {
			announce()
		}
	}
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

// notes returns the acts that note in the histories of nodes that a policy leaves them as they are.
func (l *Loop) notes(notes map[string]map[string]string, at time.Time) (acts []control.Act) {
	for policy, reasons := range notes {
		acts = append(acts, control.Act{Key: "note of " + policy, Lane: "notes", Do: func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, stepTime)
			defer cancel()

			record := access.Record{
				Action:  "policies.decide." + string(state.ActionRecord),
				Targets: slices.Sorted(maps.Keys(reasons)), Deferred: true,
			}

			note := func(context.Context, *access.Record) error { return l.note(ctx, policy, reasons, at) }
			return access.Audited(ctx, l.Audit, principal(policy), record, note)
		}})
	}

	return acts
}

// note writes into the histories of nodes, by name, why the policy decided so. It skips nodes that are no longer
// known, and those on which something was decided since.
func (l *Loop) note(ctx context.Context, policy string, reasons map[string]string, at time.Time) error {
	return state.RetryConflict(ctx, l.State, func(v *state.View) error {
		var writes []state.NodeWrite

		for name, reason := range reasons {
			n, known := v.Lookup(name)
			if !known || !n.Presence.Handled.Before(at) {
				continue
			}
			m, entry := n.Decided(inventory.Trigger{
				Actor: state.PolicyPrincipal(policy), Reason: inventory.Shorten(reason, maxReason), Time: at,
			})
			writes = append(writes, state.NodeWrite{Node: m, Entries: []inventory.HistoryEntry{entry}})
		}

		return node.PutNodes(ctx, l.Store, writes)
	})
}

// Explain returns the reasons of all policies for a node.
func (l *Loop) Explain(v *state.View, n inventory.Node) []state.PolicyReason {
	return Explain(l.world(v, l.Settings()), n)
}
