// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/control"
	"github.com/contiv/cluster/management/node"
	"github.com/contiv/cluster/management/state"
)

const (
	// questions is the number of hosts that are asked at a time, and askTime bounds each
	// question.
	questions = 8
	askTime   = time.Minute

	// The shortest time between two questions to a host that returned, and to a silent one.
	askReturned = 20 * time.Second
	askSilent   = 5 * time.Minute
)

// questions returns the acts that ask nodes over ssh, the longest unasked first. The answers are stored in
// the records of the nodes.
func (l *Loop) questions(w World, names []string) (acts []control.Act) {
	for _, name := range l.inTurn(w.View, names) {
		n, ok := w.View.Lookup(name)
		if !ok || !l.due(n) {
			continue
		}

		acts = append(acts, control.Act{
			Key: "question to " + name, Lane: "questions", Width: questions,
			Do: func(ctx context.Context) error {
				// The same round may have waited for an earlier question to the node.
				if l.due(n) {
					l.ask(ctx, w.Settings, n)
				}
				return nil
			},
		})
	}

	return acts
}

// ask asks a node. An answer that could not be stored is asked for again.
func (l *Loop) ask(ctx context.Context, settings Settings, n inventory.Node) {
	err := l.question(ctx, configuration.Host{
		Name: n.Name, Addr: n.Addr, Label: n.Label, Serial: n.Serial, Role: configuration.RoleTarget,
		Connection: settings.Connect(l.State.View(), n.Group, n.Name), HostKeys: n.HostKeys, HostCAs: settings.HostCAs,
	})

	if err != nil && ctx.Err() == nil {
		l.Logger.WithError(err).WithField("node", n.Name).Warn("the answer of a host could not be stored")
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	l.asked[n.Name] = time.Now()
}

// inTurn sorts names by the time of their last question, and forgets the times of unknown nodes. Names that
// were never asked keep their order.
func (l *Loop) inTurn(v *state.View, names []string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()

	maps.DeleteFunc(l.asked, func(name string, _ time.Time) bool {
		_, known := v.Lookup(name)
		return !known
	})

	names = slices.Clone(names)
	slices.SortStableFunc(names, func(a, b string) int { return l.asked[a].Compare(l.asked[b]) })

	return names
}

// due reports whether a node may be asked now.
func (l *Loop) due(n inventory.Node) bool {
	wait := askReturned
	if n.State == inventory.Disappeared {
		wait = askSilent
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	now, last := time.Now(), l.asked[n.Name]
	// A change of its state is a reason to ask at once, unless it is in the future.
	asked := last.After(n.Presence.Since) || n.Presence.Since.After(now)

	return !asked || !now.Before(last.Add(wait))
}

// question reaches a host and stores its answer.
func (l *Loop) question(ctx context.Context, h configuration.Host) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()

	c := contact(time.Now(), func() (configuration.Vitals, configuration.Reach) {
		// The address comes from the network, and becomes an argument of ssh.
		if err := configuration.CheckHosts([]configuration.Host{h}); err != nil {
			return configuration.Vitals{}, configuration.Reach{Login: err.Error()}
		}
		return l.Prober.Vitals(ctx, h)
	})

	return state.RetryConflict(ctx, l.State, func(v *state.View) error {
		n, ok := v.Lookup(h.Name)
		// An answer from before the newest change of the state proves nothing about it.
		if !ok || n.Presence.Since.After(c.Time) || !isNews(n, c) {
			return nil
		}
		return node.PutNodes(ctx, l.Store, []state.NodeWrite{{Node: n.Contacted(c)}})
	})
}

// contact asks a host, and returns its answer as the record of a node keeps it.
func contact(at time.Time, ask func() (configuration.Vitals, configuration.Reach)) inventory.Contact {
	vitals, reach := ask()
	answered := time.Now()

	c := inventory.Contact{Time: at, Reached: reach.OK(), Reason: inventory.Shorten(reach.Reason(), maxResult)}
	c.Silent = reach.NoAnswer
	c.Foreign = configuration.AboutRecordedKey(reach.Reason())

	if !c.Reached {
		return c
	}

	c.Boot = vitals.Boot
	if vitals.Uptime > 0 {
		c.Booted = answered.Add(-vitals.Uptime)
	}

	if vitals.Agent > 0 {
		c.Agent = answered.Add(-vitals.Agent)
	}

	return c
}

// isNews reports whether the answer of a host is worth a write.
func isNews(n inventory.Node, c inventory.Contact) bool {
	last := n.Presence.Back

	switch {
	case n.State == inventory.Disappeared:
		last = n.Presence.Away
	case last.Time.Before(n.Presence.Returned()):
		return true
	}

	// A policy asks again once an answer is too old for it.
	if c.Time.Sub(last.Time) > EvidenceFor/2 {
		return true
	}

	return last.Time.IsZero() || last.Reached != c.Reached || last.Reason != c.Reason || last.Foreign != c.Foreign ||
		last.Silent != c.Silent
}
