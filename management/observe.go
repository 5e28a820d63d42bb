// SPDX-License-Identifier: Apache-2.0

package management

import (
	"context"
	"slices"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/monitor"
)

// maxNodes bounds what gossip and events can make the inventory grow to.
const maxNodes = 50_000

// checkWords refuses words that cannot be recorded: outside the grammar, or
// under the name of a node that has another label and serial.
func (s *Service) checkWords(v *View, words []inventory.Word) error {
	if len(words) == 0 {
		return inventory.Errorf(inventory.KindInvalid, "the event names no node").Do("name at least one")
	}
	fresh := 0
	for _, w := range words {
		for _, err := range []error{inventory.CheckLabel(w.Label), inventory.CheckSerial(w.Serial), inventory.CheckAddr(w.Addr)} {
			if err != nil {
				return err
			}
		}
		n, ok := v.node(inventory.NodeName(w.Label, w.Serial))
		if ok && (n.Label != w.Label || n.Serial != w.Serial) {
			return inventory.Errorf(inventory.KindRefused, "the name %s belongs to the node with label %q and serial %q", n.Name, n.Label, n.Serial).
				Do("give the host another label or serial").About(n.Name)
		}
		if !ok {
			fresh++
		}
	}
	if len(v.Nodes)+fresh > maxNodes {
		return inventory.Errorf(inventory.KindRefused, "%d nodes are known already", len(v.Nodes)).Do("forget some: clusterctl nodes forget")
	}
	return nil
}

// Observe records what an observer says: all of it, or, where a word is
// refused, nothing.
func (s *Service) Observe(ctx context.Context, observer string, words []inventory.Word) error {
	words = slices.Clone(words)
	for i := range words {
		words[i].Observer = observer
	}
	if err := s.checkWords(s.View(), words); err != nil {
		return err
	}
	return s.again(ctx, func(v *View) error {
		_, err := s.putNodes(ctx, s.heard(v, words))
		return err
	})
}

// heard turns words into the writes that they cause. Several words on one node
// are applied in order.
func (s *Service) heard(v *View, words []inventory.Word) []NodeWrite {
	at := s.now()
	var writes []NodeWrite
	index := map[string]int{}
	for _, w := range words {
		name := inventory.NodeName(w.Label, w.Serial)
		i, again := index[name]
		n, known := v.node(name)
		if again {
			n, known = writes[i].Node, true
		}
		var entries []inventory.Entry
		if !known {
			if !w.Alive {
				continue // a node that nobody knows has nothing to lose
			}
			var grave *inventory.Tombstone
			if g, ok := v.Graves[name]; ok {
				grave = &g
			}
			fresh, entry := inventory.NewNode(w, grave, at)
			n, entries = fresh, []inventory.Entry{entry}
			s.Logger.WithField("node", name).WithField("addr", w.Addr).WithField("status", n.Status).Info("a new node is seen")
		} else {
			m, entry, changed := n.Observe(w, at)
			if !changed {
				continue
			}
			if entry != nil {
				entries = []inventory.Entry{*entry}
				s.Logger.WithField("node", name).WithField("state", m.State).Info("the node's state changed")
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

// Observe records a report. Members whose identity cannot be recorded are
// logged and skipped: one bad member must not keep the others from being seen.
// A full report also says of every node it leaves out that it is not seen.
func (o Sink) Observe(ctx context.Context, r monitor.Report) error {
	s := o.Service
	return s.again(ctx, func(v *View) error {
		named := map[string]bool{}
		var words []inventory.Word
		for _, m := range r.Sightings {
			w := inventory.Word{Observer: o.Observer, Label: m.Label, Serial: m.Serial, Addr: m.Addr, Alive: m.Alive, Joined: m.Joined}
			if m.Duplicate {
				// The sighting names all claimants, the word the others.
				w.Others = slices.DeleteFunc(slices.Clone(m.Others), func(addr string) bool { return addr == m.Addr })
			}
			if err := s.checkWords(v, []inventory.Word{w}); err != nil {
				s.Logger.WithError(err).WithField("addr", m.Addr).Warn("a member was left out")
				continue
			}
			named[inventory.NodeName(m.Label, m.Serial)] = true
			words = append(words, w)
		}
		if r.Full {
			for _, n := range v.Nodes {
				if n.Seen[o.Observer] && !named[n.Name] {
					words = append(words, inventory.Word{Observer: o.Observer, Label: n.Label, Serial: n.Serial, Addr: n.Addr})
				}
			}
		}
		if len(words) == 0 {
			return nil
		}
		_, err := s.putNodes(ctx, s.heard(v, words))
		return err
	})
}
