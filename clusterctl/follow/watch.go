// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
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
