// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/monitor"
)

// reportSize is how many nodes go into one POST.
const reportSize = 500

// reporter says to one manager what a gossip shows. It is a monitor.Sink: an
// error means that the report is to be made again, as a full one.
//
// A full report is compared with what the manager knows, and only what differs
// is said, so that nothing happens there while nothing happens here.
type reporter struct {
	to     *client.Client
	target string
	told   *told
	log    logrus.FieldLogger

	// By node: why the manager does not take it, and who else claims to be it.
	// What is there has been logged.
	refused, doubled map[string]string
}

// Observe makes a report.
func (r *reporter) Observe(ctx context.Context, rep monitor.Report) error {
	var known map[string]api.Node
	if rep.Full {
		var err error
		if known, err = r.known(ctx); err != nil {
			return fmt.Errorf("%s: %w", r.target, err)
		}
	}

	var here, gone []api.LegacyEventNode
	now := r.told.of(r.target)

	listed := map[string]bool{}
	for _, s := range rep.Sightings {
		name, node := s.Name(), api.LegacyEventNode{Label: s.Label, Serial: s.Serial, Addr: s.Addr}

		listed[name] = true
		if others := strings.Join(s.Others, ", "); others != r.doubled[name] {
			if r.doubled[name] = others; s.Duplicate {
				r.log.WithField("node", name).
					WithField("at", s.Others).
					Warn("several live hosts claim to be this node; the first of them is reported")
			}
		}

		n, ok := known[name]

		seen := ok && n.Seen[inventory.ObserverPost]
		switch {
		case s.Alive:
			if !rep.Full || !seen || !sameAddr(n.Addr, s.Addr) {
				here = append(here, node)
			}

			now[name] = node
		default:
			if !rep.Full || seen {
				gone = append(gone, node)
			}

			delete(now, name)
		}
	}

	if rep.Full {
		// What this monitor has reported and no longer sees at all is gone.
		for name, node := range now {
			if listed[name] {
				continue
			}

			if known[name].Seen[inventory.ObserverPost] {
				gone = append(gone, node)
			}

			delete(now, name)
		}

		forget := func(name, _ string) bool { return !listed[name] }
		maps.DeleteFunc(r.refused, forget)
		maps.DeleteFunc(r.doubled, forget)
	}

	// What is about to be said counts as said: if it arrives and the answer does
	// not, it must be taken back one day.
	both := r.told.of(r.target)
	for _, n := range here {
		both[inventory.NodeName(n.Label, n.Serial)] = n
	}

	r.keep(both)

	if err := errors.Join(r.say(ctx, true, here), r.say(ctx, false, gone)); err != nil {
		return fmt.Errorf("%s: %w", r.target, err)
	}

	r.keep(now)

	return nil
}

// sameAddr tells whether both are one address: managers write them in their
// shortest form.
func sameAddr(a, b string) bool {
	x, errx := netip.ParseAddr(a)
	y, erry := netip.ParseAddr(b)

	return errx == nil && erry == nil && x == y || a == b
}

// keep remembers what the manager was told. Where that cannot be kept, it
// counts until this process ends.
func (r *reporter) keep(now map[string]api.LegacyEventNode) {
	if err := r.told.set(r.target, now); err != nil {
		r.log.WithError(err).
			Warn("what was reported cannot be kept; after a restart, nodes that are gone by then would not be missed")
	}
}

// known are the manager's nodes, by name.
func (r *reporter) known(ctx context.Context) (map[string]api.Node, error) {
	all := map[string]api.Node{}
	for n, err := range r.to.EachNode(ctx, client.NodeFilter{}) {
		if err != nil {
			return nil, err
		}

		all[n.Name] = n
	}

	return all, nil
}

// say reports nodes. One that the manager refuses does not keep the others from
// being recorded: it is logged and left out.
func (r *reporter) say(ctx context.Context, discovered bool, nodes []api.LegacyEventNode) error {
	name := func(n api.LegacyEventNode) string { return inventory.NodeName(n.Label, n.Serial) }
	slices.SortFunc(nodes, func(a, b api.LegacyEventNode) int {
		// Those that were refused before are last, so that they are tried by
		// themselves as far as possible.
		_, x := r.refused[name(a)]

		_, y := r.refused[name(b)]
		switch {
		case x && !y:
			return 1
		case y && !x:
			return -1
		}

		return strings.Compare(name(a), name(b))
	})

	for part := range slices.Chunk(nodes, reportSize) {
		if err := r.post(ctx, discovered, part); err != nil {
			return err
		}
	}

	return nil
}

// post sends nodes and, where the manager refuses them, each half by itself.
func (r *reporter) post(ctx context.Context, discovered bool, nodes []api.LegacyEventNode) error {
	err := r.to.Report(ctx, discovered, nodes)
	switch kind := inventory.KindOf(err); {
	case err == nil:
		for _, n := range nodes {
			delete(r.refused, inventory.NodeName(n.Label, n.Serial))
		}

		return nil
	case kind != inventory.KindInvalid && kind != inventory.KindRefused && kind != inventory.KindTooLarge:
		return err
	case len(nodes) > 1:
		half := len(nodes) / 2
		if err := r.post(ctx, discovered, nodes[:half]); err != nil {
			return err
		}

		return r.post(ctx, discovered, nodes[half:])
	}

	node := inventory.NodeName(nodes[0].Label, nodes[0].Serial)
	if r.refused[node] != err.Error() {
		r.refused[node] = err.Error()
		r.log.WithField("node", node).WithError(err).Warn("the manager does not take this node")
	}

	return nil
}

// told keeps, for each manager, the nodes that it was told are there, in a file.
type told struct {
	path string

	mu  sync.Mutex
	all map[string]map[string]api.LegacyEventNode // by manager, by node
}

// openTold reads the file; managers that are not named any more are forgotten. A
// file that does not parse is an error.
func openTold(path string, targets []string) (*told, error) {
	t := &told{path: path, all: map[string]map[string]api.LegacyEventNode{}}

	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return t, nil
	}

	if err == nil {
		err = json.Unmarshal(data, &t.all)
	}

	if err != nil {
		return nil, inventory.Errorf(inventory.KindUnavailable, "what was reported before cannot be read: %s: %w", path, err).
			Do("remove the file; nodes that went away meanwhile then stay as the managers know them")
	}

	for target := range t.all {
		if !slices.Contains(targets, target) {
			delete(t.all, target)
		}
	}

	return t, nil
}

// names are the nodes that any manager was told are there.
func (t *told) names() []string {
	t.mu.Lock()
	defer t.mu.Unlock()

	var names []string
	for _, nodes := range t.all {
		names = slices.AppendSeq(names, maps.Keys(nodes))
	}

	return names
}

// of is a copy of what a manager was told.
func (t *told) of(target string) map[string]api.LegacyEventNode {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := map[string]api.LegacyEventNode{}
	maps.Copy(out, t.all[target])

	return out
}

// set keeps what a manager was told.
func (t *told) set(target string, now map[string]api.LegacyEventNode) error {
	t.mu.Lock()
	defer t.mu.Unlock()

	if maps.Equal(now, t.all[target]) {
		return nil
	}

	t.all[target] = now

	data, err := json.Marshal(t.all)
	if err != nil {
		return err
	}

	return writeNew(t.path, string(data)+"\n")
}
