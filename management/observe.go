// SPDX-License-Identifier: Apache-2.0

package management

import (
	"context"
	"fmt"
	"slices"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/monitor"
)

// maxNodes bounds what gossip and events can make the inventory grow to.
const maxNodes = 50_000

// maxTold is of how many nodes that change at once the log tells one by one.
const maxTold = 50

// hearing checks the words of one report against the view and each other.
type hearing struct {
	view  *View
	said  map[string]inventory.Observation // by node name
	fresh int
}

// check refuses a word that cannot be recorded: outside the grammar, under the
// name of a node with another label and serial, or at odds with an earlier one.
func (h *hearing) check(w inventory.Observation) error {
	for _, err := range []error{inventory.CheckLabel(w.Label), inventory.CheckSerial(w.Serial), inventory.CheckAddr(w.Addr)} {
		if err != nil {
			return err
		}
	}

	name := inventory.NodeName(w.Label, w.Serial)
	n, known := h.view.node(name)

	earlier, again := h.said[name]
	if again {
		n.Label, n.Serial = earlier.Label, earlier.Serial
	}

	switch {
	case (known || again) && (n.Label != w.Label || n.Serial != w.Serial):
		return inventory.Errorf(inventory.KindRefused, "the name %s belongs to the node with label %q and serial %q", name, n.Label, n.Serial).
			Do("give the host another label or serial").
			About(name)
	case again && earlier.Addr != w.Addr:
		return inventory.Errorf(inventory.KindInvalid, "%s is reported at %s and at %s", name, earlier.Addr, w.Addr).
			Do("report each node once").About(name)
	case !known && !again:
		if h.fresh++; len(h.view.Nodes)+h.fresh > maxNodes {
			return inventory.Errorf(inventory.KindRefused, "%d nodes are known already", len(h.view.Nodes)).
				Do("forget some: clusterctl nodes forget")
		}
	}

	h.said[name] = w

	return nil
}

// Observe records what an observer says: all of it, or, where a word is
// refused, nothing.
func (s *Service) Observe(ctx context.Context, observer string, words []inventory.Observation) error {
	if len(words) == 0 {
		return inventory.Errorf(inventory.KindInvalid, "the event names no node").Do("name at least one")
	}

	words = slices.Clone(words)
	for i := range words {
		words[i].Observer, words[i].Addr = observer, canonical(words[i].Addr)
	}

	return s.again(ctx, func(v *View) error {
		h := hearing{view: v, said: map[string]inventory.Observation{}}
		for i, w := range words {
			if err := h.check(w); err != nil {
				if e, ok := err.(*inventory.Error); ok && len(words) > 1 && len(e.Nodes) == 0 {
					e.Message = fmt.Sprintf("node %d of the event: %s", i+1, e.Message)
				}

				return err
			}
		}

		return s.putNodes(ctx, s.heard(v, words))
	})
}

// heard turns words into the writes that they cause. Several words on one node
// are applied in order.
func (s *Service) heard(v *View, words []inventory.Observation) []NodeWrite {
	at := s.now()
	var writes []NodeWrite
	index := map[string]int{}
	var news []func() // for the log

	unknown := 0
	defer func() {
		if len(news) > maxTold {
			s.Logger.WithFields(logrus.Fields{"new": unknown, "changed": len(news) - unknown}).
				Info("many nodes are seen, or seen no longer, at once")
			return
		}

		for _, tell := range news {
			tell()
		}
	}()

	for _, w := range words {
		name := inventory.NodeName(w.Label, w.Serial)
		i, again := index[name]

		n, known := v.node(name)
		if again {
			n, known = writes[i].Node, true
		}

		var entries []inventory.HistoryEntry
		if !known {
			if !w.Alive {
				continue // a node that nobody knows has nothing to lose
			}

			var grave *inventory.Tombstone
			if g, ok := v.Tombstones[name]; ok {
				grave = &g
			}

			fresh, entry := inventory.NewNode(w, grave, at)
			n, entries = fresh, []inventory.HistoryEntry{entry}
			unknown++
			news = append(news, func() {
				s.Logger.WithFields(logrus.Fields{"node": name, "addr": w.Addr, "status": n.Status}).
					Info("a new node is seen")
			})
		} else {
			m, entry, changed := n.Observe(w, at)
			if !changed {
				continue
			}

			if entry != nil {
				entries = []inventory.HistoryEntry{*entry}
				news = append(news, func() {
					s.Logger.WithFields(logrus.Fields{"node": name, "state": m.State}).Info("the node's state changed")
				})
			}

			n = m
		}

		if again {
			writes[i].Node = n
			writes[i].Entries = append(writes[i].Entries, entries...)
			continue
		}

		index[name] = len(writes)
		writes = append(writes, NodeWrite{Node: n, Entries: entries})
	}

	return writes
}

// Sink takes the reports of one observer into the inventory.
type Sink struct {
	Service  *Service
	Observer string
}

// Observe records a report. A member whose identity cannot be recorded is logged
// and skipped, so that one bad member does not hide the others.
func (o Sink) Observe(ctx context.Context, r monitor.Report) error {
	observations := make([]inventory.Observation, len(r.Sightings))
	for i, m := range r.Sightings {
		observations[i] = inventory.Observation{
			Label: m.Label, Serial: m.Serial, Addr: m.Addr, Alive: m.Alive, Joined: m.Joined,
		}
		if m.Duplicate {
			// A sighting lists all claimants, an observation only the others.
			isOwn := func(addr string) bool { return addr == m.Addr }
			observations[i].Others = slices.DeleteFunc(slices.Clone(m.Others), isOwn)
		}
	}

	refused, _, err := o.Service.Report(ctx, o.Observer, r.Full, observations)
	if err != nil {
		return err
	}

	for i, reason := range refused {
		o.Service.Logger.WithError(reason).WithField("addr", r.Sightings[i].Addr).Warn("a member was skipped")
	}

	return nil
}
