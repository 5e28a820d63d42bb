// SPDX-License-Identifier: Apache-2.0

package hardware

import (
	"context"
	"fmt"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/facts"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/selector"
	"github.com/contiv/cluster/management/state"
)

// MaxClasses is the number of classes.
const MaxClasses = 100

// Options are the dependencies of Classes.
type Options struct {
	Store  record.Store
	Audit  access.Auditor
	Groups func() inventory.Groups // that selectors may name
}

// Classes makes and removes classes of hardware.
type Classes struct{ o Options }

// NewClasses returns the use cases of classes.
func NewClasses(o Options) *Classes { return &Classes{o} }

// Create makes a class of the newest inspection of a node, in the place of an earlier class with the name. nodes is a
// selector of its nodes; empty: those of the same vendor and product.
func (s *Classes) Create(ctx context.Context, c access.Caller, name, from, nodes string) (facts.Class, error) {
	if !ruleName.MatchString(name) {
		return facts.Class{}, inventory.
			Errorf(inventory.KindInvalid, "%q cannot be the name of a class", inventory.Shorten(name, maxShown)).
			Do("use lower-case letters, digits and dashes, and 40 characters at most")
	}

	if nodes != "" {
		if _, err := parse(nodes, s.o.Groups()); err != nil {
			return facts.Class{}, inventory.Errorf(inventory.KindInvalid, "nodes: %w", err)
		}
	}

	return s.change(ctx, c, "classes.create", name, func(tx *record.Tx) (facts.Class, error) {
		return create(tx, facts.Class{Name: name, From: from, Nodes: nodes, Actor: c.Principal})
	})
}

func create(tx *record.Tx, class facts.Class) (facts.Class, error) {
	n, err := state.ViewOf(tx).Node(class.From)
	if err != nil {
		return class, err
	}

	kept := record.Get(tx, &state.Facts, n.Name)

	at, err := kept.At(n, 0)
	if err != nil {
		return class, err
	}

	all, err := kept.Facts()
	if err != nil {
		return class, err
	}

	class.Shape, class.Inspection, class.Created = facts.ShapeOf(all[at]), kept.All[at].Number, time.Now()

	if class.Nodes == "" {
		vendor, product := inventory.SelectorWord(class.Shape.Vendor), inventory.SelectorWord(class.Shape.Product)
		if vendor == "" || product == "" {
			return class, inventory.Errorf(inventory.KindRefused, "%s has no known vendor or product", n.Name).
				Do("give the nodes of the class as a selector, such as nodes: use=storage").
				About(n.Name)
		}

		class.Nodes = fmt.Sprintf("facts.vendor=%s,facts.product=%s", vendor, product)
	}

	if record.Get(tx, &state.Classes, class.Name) == nil && len(record.List(tx, &state.Classes)) >= MaxClasses {
		return class, inventory.Errorf(inventory.KindRefused, "there are %d classes, which is the limit", MaxClasses).
			Do("delete one")
	}

	record.Put(tx, &state.Classes, &class)

	return class, nil
}

// Delete removes a class, and ends the alerts that it has raised in the same transaction. If these are too many for
// one, most of them end before.
func (s *Classes) Delete(ctx context.Context, c access.Caller, name string) error {
	trigger := inventory.Trigger{Actor: c.Principal, Reason: "the class is deleted", Time: time.Now()}

	for left := true; left; {
		_, err := s.change(ctx, c, "classes.delete", name, func(tx *record.Tx) (facts.Class, error) {
			class := record.Get(tx, &state.Classes, name)
			if class == nil {
				return facts.Class{}, inventory.
					Errorf(inventory.KindNotFound, "there is no class %q", inventory.Shorten(name, maxShown))
			}

			// An inspection may raise an alert meanwhile.
			tx.DependOn(&job.Nodes)

			writes := endings(state.ViewOf(tx), sourceClass+name, trigger)
			left = len(writes) > maxEndings

			for _, w := range writes[:min(len(writes), maxEndings)] {
				tx.Attach(w)
			}

			if !left {
				record.Remove(tx, &state.Classes, name)
			}

			return *class, nil
		})
		if err != nil {
			return err
		}
	}

	return nil
}

// maxEndings is the number of nodes whose alerts end in one transaction, with two of its 128 operations each.
const maxEndings = 50

// endings returns the writes that end the alerts that inspections have raised for a source.
func endings(v *state.View, source string, t inventory.Trigger) (writes []state.NodeWrite) {
	for _, n := range v.Nodes() {
		for _, a := range n.Alerts {
			if a.Source != source || !ours(a) {
				continue
			}

			if m, entry, changed := n.EndAlert(a.ID, t); changed {
				writes = append(writes, state.NodeWrite{Node: m, Entries: []inventory.HistoryEntry{entry}})
			}
		}
	}

	return writes
}

func (s *Classes) change(
	ctx context.Context, c access.Caller, action, name string, decide func(*record.Tx) (facts.Class, error),
) (out facts.Class, err error) {
	entry := access.Record{Action: action, Targets: []string{inventory.Shorten(name, maxShown)}}
	err = access.Audited(ctx, s.o.Audit, c, entry, func(ctx context.Context, _ *access.Record) (err error) {
		out, _, err = access.Decide(ctx, s.o.Store, c, nil, decide)
		return err
	})

	return out, err
}

// Compare returns what a node has otherwise than each class of which it is.
func Compare(r record.Reader, n inventory.Node, found facts.Facts) []facts.Comparison {
	var out []facts.Comparison

	for _, class := range record.List(r, &state.Classes) {
		// The groups were checked when the class was made. One that is gone has no nodes.
		match, err := selector.Parse(class.Nodes, func(string) error { return nil })
		if err != nil || !match.Matches(&n) {
			continue
		}

		out = append(out, facts.Comparison{Class: class.Name, Differences: class.Shape.Differences(found)})
	}

	return out
}
