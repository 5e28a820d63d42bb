// SPDX-License-Identifier: Apache-2.0

package serf

import (
	"context"
	"errors"
	"log"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/monitor"
)

// watch is what every source of membership feeds: an observer for each sink. It
// may have none. Its methods may be called by any goroutine and do not wait.
type watch []*monitor.Observer

// watching says how a watch is made.
type watching struct {
	sinks  []monitor.Sink
	list   func(context.Context) ([]monitor.Member, error)
	window time.Duration
	before []string
	known  func(member string) bool // a member that need not be a node
	gossip *log.Logger              // takes what anybody on the network can cause
	log    logrus.FieldLogger
}

func newWatch(o watching) watch {
	var w watch
	for i, sink := range o.sinks {
		stranger := func(member string, why error) {
			switch {
			case o.known(member):
			case errors.Is(why, monitor.ErrNoNode):
				o.gossip.Printf("[INFO] gossip: the member %q is not a node: %v", member, why)
			default:
				o.gossip.Printf("[WARN] gossip: the member %q is ignored: %v", member, why)
			}
		}
		if i > 0 {
			stranger = nil // said once, not once a sink
		}

		w = append(w, monitor.NewObserver(monitor.Options{
			Sink: sink, List: o.list, Window: o.window, Before: o.before, Stranger: stranger,
			Failed: func(err error, inRow int) {
				if inRow&(inRow-1) == 0 { // the first, and ever more rarely
					o.log.WithField("in_row", inRow).Warnf("gossip: %v; it will be said again", err)
				}
			},
			Again: func(nodes, inRow int) {
				o.log.WithField("in_row", inRow).
					Infof("gossip: a report about %s was recorded, after attempts that failed", inventory.Count(nodes, "node", "nodes"))
			},
		}))
	}

	return w
}

func (w watch) change(m monitor.Member) {
	for _, o := range w {
		o.Change(m)
	}
}

func (w watch) remove(member string) {
	for _, o := range w {
		o.Remove(member)
	}
}

func (w watch) pause() {
	for _, o := range w {
		o.Pause()
	}
}

func (w watch) resume() {
	for _, o := range w {
		o.Resume()
	}
}

func (w watch) compare() {
	for _, o := range w {
		o.Compare()
	}
}

// alive are the nodes alive by the last word that the first sink has recorded.
func (w watch) alive() []string {
	if len(w) == 0 {
		return nil
	}

	return w[0].Alive()
}

// stats are those of the first sink's observer.
func (w watch) stats() monitor.Stats {
	if len(w) == 0 {
		return monitor.Stats{}
	}

	return w[0].Stats()
}

// run reports until ctx is done.
func (w watch) run(ctx context.Context) {
	var all sync.WaitGroup
	for _, o := range w {
		all.Go(func() { o.Run(ctx) })
	}

	all.Wait()
}
