// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// Watcher opens a watch that reconnects by itself.
type Watcher interface {
	Watch(ctx context.Context, o client.WatchOptions) iter.Seq2[api.Change, error]
}

// watch is one watch of the command line.
type watch struct {
	options client.WatchOptions
	out     Output
	outage  *outage
	synced  bool // the initial state is complete
	stale   bool
	seen    []string // names in the initial state
}

// each calls do with every change until the watch fails. The end of a watch by
// Ctrl-C is an *exit.Error without a message.
func each(ctx context.Context, from Watcher, o client.WatchOptions, out Output, do func(api.Change) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	w := &watch{options: o, out: out, outage: newOutage(func(s string) { out.Say("%s", s) }, "")}
	w.options.Lost = func(err error) {
		// Without a first answer there is nothing to resume.
		if !w.synced {
			cancel(err)
			return
		}

		w.outage.begin(err)
	}

	for change, err := range from.Watch(ctx, w.options) {
		if err != nil {
			return watchError(ctx, err)
		}

		w.outage.over()
		w.observe(change)

		if err := do(change); err != nil {
			return err
		}
	}

	return nil
}

func watchError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}

	if errors.Is(err, exit.ErrInterrupted) || errors.Is(err, context.Canceled) {
		return exit.Errorf(exit.Interrupted, "")
	}

	return err
}

// observe reports missing names once, and changes of staleness.
func (w *watch) observe(change api.Change) {
	switch change.Type {
	case api.ChangePut:
		if !w.synced {
			w.seen = append(w.seen, change.Name)
		}
	case api.ChangeSync, api.ChangeProgress:
		for _, name := range w.options.Names {
			if !w.synced && !slices.Contains(w.seen, name) {
				w.out.Say("there is no node %s yet", name)
			}
		}

		w.synced = true

		if change.Stale == w.stale {
			return
		}

		if w.stale = change.Stale; w.stale {
			w.out.Say("warning: the manager has lost contact with its store; changes may be missing")
		} else {
			w.out.Say("the manager has contact with its store again")
		}
	}
}

// Nodes prints every change of the chosen nodes as one line, or as a JSON object
// per line, until ctx is cancelled.
func Nodes(ctx context.Context, from Watcher, o client.WatchOptions, asJSON bool, out Output) error {
	o.Kinds = []api.WatchKind{api.WatchNodes}
	if asJSON {
		return each(ctx, from, o, out, func(change api.Change) error { return writeJSON(change, out) })
	}

	n := &nodeChanges{out: out, nodes: map[string]api.Node{}, deleted: "forgotten"}
	if len(o.Groups) > 0 || o.Selector != "" {
		// The wire does not distinguish the two.
		n.deleted = "no longer selected, or forgotten"
	}

	return each(ctx, from, o, out, n.show)
}

func writeJSON(change api.Change, out Output) error {
	if change.Type == api.ChangeProgress {
		return nil
	}

	line, err := print.Compact(change)
	if err != nil {
		return err
	}

	return out.Write(line)
}

// nodeChanges prints the differences between successive records of nodes.
type nodeChanges struct {
	out     Output
	nodes   map[string]api.Node // as of the last change
	synced  bool
	deleted string // the text for a node that left the watch
}

func (n *nodeChanges) show(change api.Change) error {
	p := &print.Printer{Style: n.out.Style}

	switch change.Type {
	case api.ChangePut:
		now, err := change.Node()
		if err != nil {
			return err
		}

		before, exists := n.nodes[change.Name]
		n.nodes[change.Name] = now

		// The initial state is not a change.
		if !n.synced {
			return nil
		}

		changes := p.NodeChanges(before, now)
		if !exists {
			changes = append([]string{"new"}, changes...)
		}

		if len(changes) > 0 {
			p.Change(time.Now(), now.Name, changes...)
		}
	case api.ChangeDelete:
		delete(n.nodes, change.Name)
		p.Change(time.Now(), change.Name, p.Paint.Bad(n.deleted))
	case api.ChangeSync:
		// A second sync follows an outage.
		if n.synced {
			return nil
		}

		n.synced = true
		n.out.Say("watching %s; press Ctrl-C to stop", inventory.Count(len(n.nodes), "node", "nodes"))
	}

	return n.out.Write(p.Bytes())
}
