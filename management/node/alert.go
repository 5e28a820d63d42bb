// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"slices"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/control"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

// AlertRequest asks for an alert on nodes.
type AlertRequest struct {
	Nodes   []string
	Reason  string
	Source  string // empty: the caller
	Effects []inventory.Effect
	Until   time.Time // when it ends by itself; zero: somebody ends it
}

// AlertEnd asks for the end of an alert.
type AlertEnd struct {
	ID     string
	Nodes  []string // empty: all nodes of the caller's scope that have it
	Reason string
}

// Alerted is an alert on a node.
type Alerted struct {
	Node string
	inventory.Alert
}

// Alerts returns the alerts on the nodes, by node.
func Alerts(nodes []*inventory.Node) []Alerted {
	var all []Alerted
	for _, n := range nodes {
		for _, a := range n.Alerts {
			all = append(all, Alerted{n.Name, a})
		}
	}

	return all
}

// Alert puts an alert on nodes, in the place of an earlier one with the same source and reason. It returns the alert on
// each of them.
func (ns *Nodes) Alert(ctx context.Context, c access.Caller, r AlertRequest) (all []Alerted, err error) {
	if err := job.CheckNames("node", r.Nodes, inventory.CheckName); err != nil {
		return nil, err
	}

	now := time.Now()

	alert, err := inventory.NewAlert(r.Reason, r.Source, r.Effects, r.Until, c.Principal, now)
	if err != nil {
		return nil, err
	}

	record := access.Record{Action: "alerts.add", Targets: r.Nodes, Reason: alert.String()}
	err = access.Audited(ctx, ns.audit, c, record, func(recording context.Context, _ *access.Record) error {
		return state.RetryConflict(ctx, ns.state, func(v *state.View) error {
			subject := func(s *state.Scoped) error { return s.CheckNodes(r.Nodes) }

			v, err := c.Check(ctx, ns.state, v, subject)
			if err != nil {
				return err
			}

			var writes []state.NodeWrite

			all = nil

			for _, name := range r.Nodes {
				n, err := v.Node(name)
				if err != nil {
					return err
				}

				m, entry, changed, err := n.Alert(alert, inventory.Trigger{Actor: c.Principal, Time: now})
				if err != nil {
					return err
				}

				i := slices.IndexFunc(m.Alerts, func(a inventory.Alert) bool { return a.ID == alert.ID })
				all = append(all, Alerted{name, m.Alerts[i]})

				if changed {
					writes = append(writes, state.NodeWrite{Node: m, Entries: []inventory.HistoryEntry{entry}})
				}
			}

			return PutNodes(recording, ns.store, writes)
		})
	})

	return all, err
}

// EndAlert ends an alert, and returns it with the nodes that had it.
func (ns *Nodes) EndAlert(ctx context.Context, c access.Caller, r AlertEnd) (ended []Alerted, err error) {
	if len(r.Nodes) > 0 {
		if err := job.CheckNames("node", r.Nodes, inventory.CheckName); err != nil {
			return nil, err
		}
	}

	if err := inventory.CheckReason(r.Reason); err != nil {
		return nil, err
	}

	record := access.Record{Action: "alerts.end", Targets: r.Nodes, Reason: r.Reason}
	err = access.Audited(ctx, ns.audit, c, record, func(recording context.Context, record *access.Record) error {
		return state.RetryConflict(ctx, ns.state, func(v *state.View) error {
			var names []string

			subject := func(s *state.Scoped) (err error) {
				names, err = withAlert(s, r)
				return err
			}

			v, err := c.Check(ctx, ns.state, v, subject)
			if err != nil {
				return err
			}

			// An earlier attempt of this call may have ended it on some.
			if len(names) == 0 && len(ended) > 0 {
				return nil
			}

			if len(names) == 0 {
				return inventory.Errorf(inventory.KindNotFound, "no node has the alert %q",
					inventory.Shorten(r.ID, 100)).Do("list the alerts").
					With(inventory.ListAlerts())
			}

			trigger := inventory.Trigger{Actor: c.Principal, Reason: r.Reason, Time: time.Now()}
			record.Targets = names

			var writes []state.NodeWrite
			writes, ended = endings(v, names, trigger, func(inventory.Node) []string { return []string{r.ID} })

			return PutNodes(recording, ns.store, writes)
		})
	})

	return ended, err
}

// withAlert returns the nodes that a request to end an alert is about.
func withAlert(s *state.Scoped, r AlertEnd) ([]string, error) {
	if err := s.CheckNodes(r.Nodes); err != nil {
		return nil, err
	}

	var names []string
	for _, n := range s.Nodes() {
		has := slices.ContainsFunc(n.Alerts, func(a inventory.Alert) bool { return a.ID == r.ID })
		if has && (len(r.Nodes) == 0 || slices.Contains(r.Nodes, n.Name)) {
			names = append(names, n.Name)
		}
	}

	return names, nil
}

// endings returns the writes that end alerts on nodes: of each node, those with the returned ids.
func endings(
	v *state.View, names []string, t inventory.Trigger, ids func(inventory.Node) []string,
) (writes []state.NodeWrite, ended []Alerted) {
	for _, name := range names {
		n, known := v.Lookup(name)
		if !known {
			continue
		}

		w := state.NodeWrite{Node: n}

		for _, id := range ids(n) {
			i := slices.IndexFunc(w.Node.Alerts, func(a inventory.Alert) bool { return a.ID == id })

			m, entry, changed := w.Node.EndAlert(id, t)
			if changed {
				ended = append(ended, Alerted{name, w.Node.Alerts[i]})
				w.Node, w.Entries = m, append(w.Entries, entry)
			}
		}

		if len(w.Entries) > 0 {
			writes = append(writes, w)
		}
	}

	return writes, ended
}

const (
	// alertPace is the shortest time between two looks at the alerts.
	alertPace = 100 * time.Millisecond
	// alertBackoff is the time after which the end of an alert is tried again.
	alertBackoff = time.Second
)

// WatchAlerts returns the loop of the leader that removes alerts when they end by themselves.
func (ns *Nodes) WatchAlerts() *control.Loop {
	return control.New(control.Options{
		Name: "ends of alerts", Duty: ns.leads, Trouble: "alerts that have ended could not be removed; retrying",
		Round: ns.endAlerts, Changed: ns.state.Changed, Pace: alertPace, Backoff: alertBackoff, Every: time.Minute,
		Logger: ns.log,
	})
}

// endAlerts removes the alerts that have ended by themselves, and returns when the next one does.
func (ns *Nodes) endAlerts(ctx context.Context) (next control.Next, err error) {
	var changed []string

	err = state.RetryConflict(ctx, ns.state, func(v *state.View) error {
		now := time.Now()
		next.At, changed = time.Time{}, nil

		for _, n := range v.Nodes() {
			ids, at := n.EndedAlerts(now)
			next.At = control.Earliest(next.At, at)

			if len(ids) > 0 {
				changed = append(changed, n.Name)
			}
		}

		trigger := inventory.Trigger{Actor: access.Manager, Reason: "its time is over", Time: now}
		writes, _ := endings(v, changed, trigger, func(n inventory.Node) []string {
			ids, _ := n.EndedAlerts(now)
			return ids
		})

		return PutNodes(ctx, ns.store, writes)
	})

	if err == nil && len(changed) == 0 {
		return next, nil
	}

	record := access.Record{Action: "alerts.expire", Targets: changed}

	return next, access.Audited(ctx, ns.audit, access.Caller{Principal: access.Manager}, record,
		func(context.Context, *access.Record) error { return err })
}
