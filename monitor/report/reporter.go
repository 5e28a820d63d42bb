// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/monitor"
)

// reportSize is the number of nodes in one request.
const reportSize = 500

// reporter is the monitor.Sink of one manager. An error makes the observer
// repeat the report as a full one.
//
// A full report is compared with the manager's nodes first, and only differences
// are sent, so that an idle gossip causes no writes there.
type reporter struct {
	manager  *client.Client
	url      string
	reported *reported
	log      logrus.FieldLogger

	// By node: the manager's last refusal, and the addresses of a duplicate.
	// Each entry has been logged.
	refused, duplicates map[string]string
}

func newReporter(manager *client.Client, url string, reported *reported, log logrus.FieldLogger) *reporter {
	return &reporter{
		manager: manager, url: url, reported: reported, log: log,
		refused: map[string]string{}, duplicates: map[string]string{},
	}
}

// Observe sends a report.
func (r *reporter) Observe(ctx context.Context, rep monitor.Report) error {
	var known map[string]api.Node
	if rep.Full {
		var err error
		if known, err = r.nodes(ctx); err != nil {
			return fmt.Errorf("%s: %w", r.url, err)
		}
	}

	before := r.reported.of(r.url)
	d := r.difference(rep, known, before)

	// Record the nodes before the request: if it arrives and its answer is lost,
	// they have to be taken back one day.
	either := maps.Clone(before)
	for _, n := range d.discovered {
		either[n.name()] = n.LegacyEventNode
	}

	r.remember(either)

	err := errors.Join(r.send(ctx, true, d.discovered), r.send(ctx, false, d.disappeared))
	if err != nil {
		return fmt.Errorf("%s: %w", r.url, err)
	}

	r.remember(d.after)

	return nil
}

// eventNode is a node in a request.
type eventNode struct{ api.LegacyEventNode }

func (n eventNode) name() string { return inventory.NodeName(n.Label, n.Serial) }

// difference is the part of a report that the manager lacks.
type difference struct {
	discovered, disappeared []eventNode
	after                   map[string]api.LegacyEventNode // the manager's live nodes once it is sent
}

func (r *reporter) difference(
	rep monitor.Report, known map[string]api.Node, before map[string]api.LegacyEventNode,
) difference {
	d := difference{after: maps.Clone(before)}
	listed := map[string]bool{}

	for _, s := range rep.Sightings {
		name := s.Name()
		node := eventNode{api.LegacyEventNode{Label: s.Label, Serial: s.Serial, Addr: s.Addr}}
		listed[name] = true
		r.logDuplicate(s)

		n := known[name]
		seen := n.Seen[inventory.ObserverPost]

		if s.Alive {
			if !rep.Full || !seen || !sameAddr(n.Addr, s.Addr) {
				d.discovered = append(d.discovered, node)
			}

			d.after[name] = node.LegacyEventNode

			continue
		}

		if !rep.Full || seen {
			d.disappeared = append(d.disappeared, node)
		}

		delete(d.after, name)
	}

	if !rep.Full {
		return d
	}

	// Nodes that this monitor reported earlier and that have left the gossip for
	// good are missing from a full report.
	for name, node := range before {
		if listed[name] {
			continue
		}

		if known[name].Seen[inventory.ObserverPost] {
			d.disappeared = append(d.disappeared, eventNode{node})
		}

		delete(d.after, name)
	}

	unlisted := func(name, _ string) bool { return !listed[name] }
	maps.DeleteFunc(r.refused, unlisted)
	maps.DeleteFunc(r.duplicates, unlisted)

	return d
}

// logDuplicate warns once per set of hosts that claim one identity.
func (r *reporter) logDuplicate(s monitor.Sighting) {
	name, others := s.Name(), strings.Join(s.Others, ", ")
	if others == r.duplicates[name] {
		return
	}

	r.duplicates[name] = others
	if s.Duplicate {
		r.log.WithField("node", name).
			WithField("at", s.Others).
			Warn("several live hosts claim to be this node; the first of them is reported")
	}
}

// sameAddr compares addresses in any notation: managers store the shortest.
func sameAddr(a, b string) bool {
	x, errx := netip.ParseAddr(a)
	y, erry := netip.ParseAddr(b)

	return errx == nil && erry == nil && x == y || a == b
}

// remember stores the nodes that the manager has recorded as live. If the disk
// fails, they are kept in memory only.
func (r *reporter) remember(nodes map[string]api.LegacyEventNode) {
	if err := r.reported.set(r.url, nodes); err != nil {
		r.log.WithError(err).
			Warn("cannot store the reported nodes; those that disappear while the monitor is down will not be reported")
	}
}

// nodes fetches the manager's nodes, by name.
func (r *reporter) nodes(ctx context.Context) (map[string]api.Node, error) {
	all := map[string]api.Node{}
	for n, err := range r.manager.EachNode(ctx, client.NodeFilter{}) {
		if err != nil {
			return nil, err
		}

		all[n.Name] = n
	}

	return all, nil
}

// send reports nodes in parts. It skips and logs a node that the manager
// refuses.
func (r *reporter) send(ctx context.Context, discovered bool, nodes []eventNode) error {
	slices.SortFunc(nodes, func(a, b eventNode) int {
		// Nodes refused before come last, so that they share a request with as
		// few others as possible.
		_, x := r.refused[a.name()]
		_, y := r.refused[b.name()]

		switch {
		case x && !y:
			return 1
		case y && !x:
			return -1
		}

		return strings.Compare(a.name(), b.name())
	})

	for part := range slices.Chunk(nodes, reportSize) {
		if err := r.post(ctx, discovered, part); err != nil {
			return err
		}
	}

	return nil
}

// post sends nodes in one request. If the manager refuses it, each half is sent
// alone, down to the single node at fault.
func (r *reporter) post(ctx context.Context, discovered bool, nodes []eventNode) error {
	body := make([]api.LegacyEventNode, len(nodes))
	for i, n := range nodes {
		body[i] = n.LegacyEventNode
	}

	err := r.manager.Report(ctx, discovered, body)

	kind := inventory.KindOf(err)
	refused := kind == inventory.KindInvalid || kind == inventory.KindRefused || kind == inventory.KindTooLarge

	switch {
	case err == nil:
		for _, n := range nodes {
			delete(r.refused, n.name())
		}

		return nil
	case !refused:
		return err
	case len(nodes) > 1:
		half := len(nodes) / 2
		if err := r.post(ctx, discovered, nodes[:half]); err != nil {
			return err
		}

		return r.post(ctx, discovered, nodes[half:])
	}

	name := nodes[0].name()
	if r.refused[name] != err.Error() {
		r.refused[name] = err.Error()
		r.log.WithField("node", name).WithError(err).Warn("the manager refuses this node")
	}

	return nil
}
