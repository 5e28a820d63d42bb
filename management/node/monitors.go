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
	// complete is when full had all observers with a report in the store; zero: not yet.
	complete time.Time
}

// hearFull notes that a full report was recorded.
func (m *monitors) hearFull(observer string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.full[observer] = true
}

// Observed returns when every observer with a report in the store had given a full report to
// this process, as far as the callers have asked; zero: not yet. Reports by POST are never full.
func (ns *Nodes) Observed() time.Time {
	m := &ns.monitors

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
// for MonitorTimeout. Only the leader gets reports, so the time counts from the gain of the lead on.
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
	if !ns.leads() {
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

	var failures []error
	for _, observer := range silent {
		failures = append(failures, ns.withdraw(ctx, observer))
	}

	return errors.Join(failures...)
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
