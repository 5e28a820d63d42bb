// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/control"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// silentTicks is the number of ticks within MonitorTimeout. Ticks are counted, not
// time: after a pause of this process, the monitors have time to report again.
const silentTicks = 10

// monitors counts the ticks since the last report of each monitor. Monitors with
// a report in the store that have not reported to this process count as well.
type monitors struct {
	mu     sync.Mutex
	silent map[string]int // ticks without a report, by observer
	full   map[string]bool
	// noted has the revision of each record of the reports to other instances.
	noted map[string]int64
	// complete is when full had all observers with a report in the store; zero: not yet.
	complete time.Time
}

// hearFull notes that a full report was recorded.
func (m *monitors) hearFull(observer string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.full[observer] = true
}

// learn notes the reports that other instances have taken since the last call. Those that came before this one led are
// of no use: nobody has heard of their observers since. So the first call only looks.
func (m *monitors) learn(r record.Reader, leads bool) {
	m.mu.Lock()
	defer m.mu.Unlock()

	noted := map[string]int64{}

	for name, o := range record.All(r, &state.Observers) {
		noted[name] = record.Revision(r, &state.Observers, name)
		if !leads || m.noted == nil || noted[name] == m.noted[name] {
			continue
		}

		m.silent[name] = 0
		m.full[name] = m.full[name] || o.Full
	}

	m.noted = noted

	if !leads {
		clear(m.full)
		m.complete = time.Time{}
	}
}

// Observed returns when every observer with a report in the store had given a full report since this
// instance leads, as far as the callers have asked; zero: not yet. Reports by POST are never full.
func (ns *Nodes) Observed() time.Time {
	m := &ns.monitors
	m.learn(ns.state.View(), ns.leads())

	m.mu.Lock()
	defer m.mu.Unlock()

	if !m.complete.IsZero() {
		return m.complete
	}

	for _, n := range ns.state.View().Nodes() {
		for observer := range n.Seen {
			if observer != inventory.ObserverPost && !m.full[observer] {
				return time.Time{}
			}
		}
	}

	m.complete = time.Now()

	return m.complete
}

func (m *monitors) hear(observer string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.silent[observer] = 0
}

// tick counts a tick for the observers, forgets others, and returns those that
// have been silent for too long.
func (m *monitors) tick(observers map[string]bool) (silent []string) {
	m.mu.Lock()
	defer m.mu.Unlock()

	maps.DeleteFunc(m.silent, func(observer string, _ int) bool { return !observers[observer] })

	for observer := range observers {
		// One that has not reported to this process has as much time as the others.
		ticks, known := m.silent[observer]
		if known {
			ticks++
		}
		if m.silent[observer] = ticks; ticks > silentTicks {
			silent = append(silent, observer)
		}
	}

	slices.Sort(silent)

	return silent
}

// WatchMonitors returns the loop that makes the reports of each monitor void that has been silent
// for MonitorTimeout. The leader does it, for the reports to all instances; the time counts from the gain of the lead
// on.
func (ns *Nodes) WatchMonitors() *control.Loop {
	return control.New(control.Options{
		Name: "watch of the monitors", Trouble: "the reports of a silent monitor could not be withdrawn; retrying",
		Round: func(ctx context.Context) (control.Next, error) {
			err := ns.tickMonitors(ctx)
			return control.Next{At: time.Now().Add(ns.settings().MonitorTimeout / silentTicks)}, err
		},
		Logger: ns.log,
	})
}

// tickMonitors counts a tick, and withdraws the reports of silent monitors.
func (ns *Nodes) tickMonitors(ctx context.Context) error {
	leads := ns.leads()
	ns.monitors.learn(ns.state.View(), leads)

	if !leads {
		ns.monitors.tick(nil)
		return nil
	}

	observers := map[string]bool{}

	for _, n := range ns.state.View().Nodes() {
		for observer := range n.Seen {
			// The manager observes the gossip itself, and reports by POST have no
			// monitor that could repeat them.
			if observer != inventory.ObserverGossip && observer != inventory.ObserverPost {
				observers[observer] = true
			}
		}
	}

	silent := ns.monitors.tick(observers)

	failures := []error{ns.forgetObservers(ctx, observers)}
	for _, observer := range silent {
		failures = append(failures, ns.withdraw(ctx, observer))
	}

	return errors.Join(failures...)
}

// heard tells the instance that leads of a report to this one. Of partial reports it tells as often as that one looks.
func (ns *Nodes) heard(ctx context.Context, observer string, full bool) error {
	now := time.Now()

	_, _, err := record.Decide(ctx, ns.store, func(tx *record.Tx) (any, error) {
		was := record.Get(tx, &state.Observers, observer)
		if was == nil || full || now.Sub(was.At).Abs() >= ns.settings().MonitorTimeout/silentTicks {
			record.Put(tx, &state.Observers, &state.Observer{Name: observer, At: now, Full: full})
		}

		return nil, nil
	})

	return err
}

// forgetObservers removes what was heard of those observers of whom no node has a report.
func (ns *Nodes) forgetObservers(ctx context.Context, observers map[string]bool) error {
	gone := func(r record.Reader) (names []string) {
		for name, o := range record.All(r, &state.Observers) {
			if !observers[name] && time.Since(o.At).Abs() > ns.settings().MonitorTimeout {
				names = append(names, name)
			}
		}

		return names
	}

	if len(gone(ns.state.View())) == 0 {
		return nil
	}

	_, _, err := record.Decide(ctx, ns.store, func(tx *record.Tx) (any, error) {
		for _, name := range gone(tx) {
			record.Remove(tx, &state.Observers, name)
		}

		return nil, nil
	})

	return err
}

// withdraw removes the reports of a silent monitor from all nodes.
func (ns *Nodes) withdraw(ctx context.Context, observer string) error {
	reason := fmt.Sprintf(
		"the monitor %s has been silent for %s",
		observer,
		inventory.ShortDuration(ns.settings().MonitorTimeout),
	)

	var changed, lost []string

	err := state.RetryConflict(ctx, ns.state, func(v *state.View) error {
		changed, lost = nil, nil

		var writes []state.NodeWrite
		for _, n := range v.Nodes() {
			if _, reported := n.Seen[observer]; !reported {
				continue
			}

			m, entry := n.Withdraw(observer, reason, time.Now())
			write := state.NodeWrite{Node: m}

			if entry != nil {
				write.Entries = []inventory.HistoryEntry{*entry}
				lost = append(lost, n.Name)
			}

			changed = append(changed, n.Name)
			writes = append(writes, write)
		}

		return PutNodes(ctx, ns.store, writes)
	})

	if err == nil && len(changed) == 0 {
		return nil
	}

	if err == nil {
		ns.log.WithField("observer", observer).WithField("nodes", len(changed)).WithField("disappeared", len(lost)).
			Warn(reason + ": its reports are void until it reports again")
	}

	record := access.Record{Action: "monitors.expire", Targets: changed, Reason: reason}

	return access.Audited(ctx, ns.audit, access.Caller{Principal: access.Manager}, record,
		func(_ context.Context, _ *access.Record) error { return err })
}
