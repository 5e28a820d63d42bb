// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/monitor"
)

// MaxNodes limits the growth of the inventory by gossip and events. At this number,
// all records fit the quota of the store; see docs/operating/store.md.
const MaxNodes = job.MaxNames

// maxLogged is the number of nodes of one report that are logged one by one.
const maxLogged = 50

// report checks the observations of one report against the view and each other.
type report struct {
	view     *state.View
	names    names
	accepted map[string]inventory.Observation // by node name
	unknown  int                              // nodes that are not in the view
}

// check refuses an observation that cannot be recorded: one outside the grammar,
// under the name of a node with another label and serial, or in contradiction to
// an earlier one of the same report.
func (r *report) check(o inventory.Observation) error {
	wrong := errors.Join(inventory.CheckLabel(o.Label), inventory.CheckSerial(o.Serial), inventory.CheckAddr(o.Addr))
	if e, invalid := errors.AsType[*inventory.Error](wrong); invalid {
		return e
	}

	name, err := r.names.of(r.view, o)
	if err != nil {
		return err
	}
	n, known := r.view.Lookup(name)

	// A repetition of the report would meet the same record again.
	if err := r.view.UnreadableNode(name); err != nil && !known {
		return inventory.Errorf(inventory.KindRefused, "%w", err).About(name)
	}

	// A node that is new in this report is not in the view yet.
	earlier, repeated := r.accepted[name]
	if repeated {
		n.Label, n.Serial = earlier.Label, earlier.Serial
	}

	switch {
	case known && n.Label == "" && !repeated:
		// A registered machine takes the identity of its agent.
	case (known || repeated) && (n.Label != o.Label || n.Serial != o.Serial):
		return inventory.Errorf(inventory.KindRefused,
			"the name %s belongs to the node with label %q and serial %q", name, n.Label, n.Serial).
			Do("give the host another label or serial").About(name)
	case repeated && earlier.Addr != o.Addr:
		return inventory.Errorf(inventory.KindInvalid, "%s is reported at %s and at %s", name, earlier.Addr, o.Addr).
			Do("report each node once").About(name)
	case !known && !repeated:
		if r.unknown++; len(r.view.Nodes())+r.unknown > MaxNodes {
			return inventory.Errorf(inventory.KindRefused, "%d nodes are known already", len(r.view.Nodes())).
				Do("forget some").With(inventory.ForgetNodes())
		}
	}

	r.accepted[name] = o

	return nil
}

// Observe records the observations of one observer: all of them, or none if one
// is refused. The caller's principal is the observer.
func (ns *Nodes) Observe(ctx context.Context, observer string, observations []inventory.Observation) error {
	if len(observations) == 0 {
		return inventory.Errorf(inventory.KindInvalid, "the event names no node").Do("name at least one")
	}

	// One spelling of each address, or a report would change it back and forth.
	observations = slices.Clone(observations)
	for i := range observations {
		observations[i].Observer = observer
		observations[i].Addr = job.CanonicalAddr(observations[i].Addr)
	}

	targets := make([]string, len(observations))
	for i, o := range observations {
		targets[i] = inventory.NodeName(o.Label, o.Serial)
	}

	caller := access.Caller{Principal: observerPrincipal(observer)}
	record := access.Record{Action: "nodes.observe", Targets: targets, Deferred: true}

	return access.Audited(ctx, ns.audit, caller, record, func(_ context.Context, _ *access.Record) error {
		return state.RetryConflict(ctx, ns.state, func(v *state.View) error {
			r := ns.newReport(v)
			for i, o := range observations {
				err := r.check(o)
				if e, ok := errors.AsType[*inventory.Error](err); ok && len(observations) > 1 && len(e.Nodes) == 0 {
					e.Message = fmt.Sprintf("node %d of the event: %s", i+1, e.Message)
				}

				if err != nil {
					return err
				}
			}

			return PutNodes(ctx, ns.store, ns.record(v, r.names, observations))
		})
	})
}

func observerPrincipal(observer string) string { return "monitor:" + observer }

// news collects the log lines of one report.
type news struct {
	lines   []func()
	unknown int // lines about nodes that are new
}

func (n *news) log(log logrus.FieldLogger) {
	if len(n.lines) > maxLogged {
		log.WithFields(logrus.Fields{"new": n.unknown, "changed": len(n.lines) - n.unknown}).
			Info("many nodes appeared or disappeared at once")

		return
	}

	for _, line := range n.lines {
		line()
	}
}

// record returns the writes that the observations cause. Several observations
// of one node are applied in order.
func (ns *Nodes) record(v *state.View, names names, observations []inventory.Observation) []state.NodeWrite {
	var (
		writes []state.NodeWrite
		news   news
	)

	// Log at the end: the number of lines decides between a list and a summary.
	defer func() { news.log(ns.log) }()

	at, index := time.Now(), map[string]int{}
	for _, o := range observations {
		// check has refused what has no name.
		name, err := names.of(v, o)
		if err != nil {
			continue
		}

		i, repeated := index[name]

		// Continue with the result of the earlier observation.
		n, known := v.Lookup(name)
		if repeated {
			n, known = writes[i].Node, true
		}
		n, entries, changed := ns.observeOne(v, n, known, o, at, &news)

		switch {
		case !changed:
		case repeated:
			writes[i].Node = n
			writes[i].Entries = append(writes[i].Entries, entries...)
		default:
			index[name] = len(writes)
			w := state.NodeWrite{Node: n, Entries: entries}

			if !known {
				says := saysOf(o)
				w.Agent, w.Decided = &state.Agent{Node: name, UUID: says.UUID, MACs: says.MACs}, v.Revision
			}

			writes = append(writes, w)
		}
	}

	return writes
}

// observeOne applies one observation to a node, or to the node it creates.
func (ns *Nodes) observeOne(
	v *state.View, n inventory.Node, known bool, o inventory.Observation, at time.Time, news *news,
) (_ inventory.Node, entries []inventory.HistoryEntry, changed bool) {
	o.Becomes = ns.settings().Discovered

	if !known {
		if !o.Alive {
			return n, nil, false // an unknown node has no state to lose
		}

		// A host that was forgotten comes back Quarantined.
		tombstone := record.Get(v, &state.Tombstones, inventory.NodeName(o.Label, o.Serial))

		fresh, entry := inventory.NewNode(o, tombstone, at)

		news.unknown++
		news.lines = append(news.lines, func() {
			ns.log.WithFields(logrus.Fields{"node": fresh.Name, "addr": fresh.Addr, "status": fresh.Status}).
				Info("a new node appeared")
		})

		return fresh, []inventory.HistoryEntry{entry}, true
	}

	if n.Label == "" && !o.Alive {
		return n, nil, false // neither has a registered machine whose agent has not spoken
	}

	m, entry, changed := n.Observe(o, at)
	if entry != nil {
		entries = []inventory.HistoryEntry{*entry}
		news.lines = append(news.lines, func() {
			ns.log.WithFields(logrus.Fields{"node": m.Name, "state": m.State}).Info("the node's state changed")
		})
	}

	return m, entries, changed
}

// Sink records the reports of one observer in the inventory.
type Sink struct {
	Nodes    *Nodes
	Observer string
}

// Observe records a report. It logs and skips a member without a valid identity,
// so that one bad member does not hide the others. An instance that follows records
// nothing: a full report comes every minute, and the leader observes the same.
func (s Sink) Observe(ctx context.Context, r monitor.Report) error {
	if !s.Nodes.leads() {
		return nil
	}

	observations := make([]inventory.Observation, len(r.Sightings))
	for i, m := range r.Sightings {
		observations[i] = inventory.Observation{
			Label: m.Label, Serial: m.Serial, Addr: m.Addr, Alive: m.Alive, Joined: m.Joined,
			Others: m.OtherClaimants(), From: m.From, UUID: m.Hardware.UUID, MACs: m.Hardware.MACs,
		}
	}

	var full *inventory.NameRange
	if r.Full {
		full = &inventory.NameRange{}
	}

	// A refused member stays refused, so there is no error to retry.
	refused, _, err := s.Nodes.Report(ctx, s.Observer, full, observations)
	if err != nil {
		return err
	}
	for i, reason := range refused {
		s.Nodes.log.WithError(reason).WithField("addr", r.Sightings[i].Addr).Warn("a member was skipped")
	}

	return nil
}

// Report records the report of one observer, except for observations that it
// refuses: those are in refused, by index. full, unless nil, is the range of a full
// report: each node in it that the observer saw before and that is missing counts
// as lost.
func (ns *Nodes) Report(
	ctx context.Context, observer string, full *inventory.NameRange, observations []inventory.Observation,
) (refused map[int]error, revision int64, err error) {
	var changed []string

	leads := ns.leads()
	if leads {
		ns.monitors.hear(observer)
	}

	err = state.RetryConflict(ctx, ns.state, func(v *state.View) error {
		checked := ns.newReport(v)
		refused, changed = map[int]error{}, nil // of this attempt only

		var accepted []inventory.Observation
		for i, o := range observations {
			o.Observer, o.Addr = observer, job.CanonicalAddr(o.Addr)

			// The node is seen, even if its other claimants cannot be recorded:
			// check comes first, so that it is not missing from a full report.
			err := checked.check(o)
			if err == nil {
				err = inventory.CheckOthers(o.Others)
			}

			if err != nil {
				refused[i] = err
				continue
			}

			accepted = append(accepted, o)
		}

		// The absence of a node from a full report is an observation as well.
		if full != nil {
			accepted = append(accepted, checked.missing(observer, *full)...)
		}

		writes := ns.record(v, checked.names, accepted)
		for _, w := range writes {
			changed = append(changed, w.Node.Name)
		}

		return PutNodes(ctx, ns.store, writes)
	})

	// A long report comes in parts; the last one has no end.
	whole := full != nil && full.Until == ""

	switch {
	case err != nil:
	case !leads && observer != inventory.ObserverPost:
		err = ns.heard(ctx, observer, whole)
	case leads && whole:
		ns.monitors.hearFull(observer)
	}

	// A report that changes nothing arrives every minute and is no mutation.
	if err != nil || len(changed) > 0 {
		caller := access.Caller{Principal: observerPrincipal(observer)}
		record := access.Record{Action: "nodes.observe", Targets: changed, Deferred: true}
		observed := err
		failed := func(context.Context, *access.Record) error { return observed }
		err = access.Audited(ctx, ns.audit, caller, record, failed)
	}

	return refused, ns.state.View().Revision, err
}

// missing returns the loss of every node that the observer saw before and that
// is not in its full report on the range.
func (r *report) missing(observer string, full inventory.NameRange) []inventory.Observation {
	var lost []inventory.Observation
	for _, n := range r.view.Nodes() {
		if _, reported := r.accepted[n.Name]; n.Seen[observer] && !reported && full.Contains(n.Announced()) {
			lost = append(lost, inventory.Observation{
				Observer: observer, Label: n.Label, Serial: n.Serial, Addr: n.Addr,
			})
		}
	}

	return lost
}
