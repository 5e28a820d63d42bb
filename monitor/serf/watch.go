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

// watch has an observer for each sink, and may be empty. Every source of
// membership feeds one. Its methods may be called by any goroutine and do not
// block.
type watch []*monitor.Observer

// watchOptions configure a watch.
type watchOptions struct {
	sinks  []monitor.Sink
	list   func(context.Context) ([]monitor.Member, error)
	window time.Duration
	before []string
	exempt func(member string) bool // true for a member that need not be a node
	gossip *log.Logger              // limited: any host on the network can trigger its messages
	log    logrus.FieldLogger
}

func newWatch(o watchOptions) watch {
	var w watch
	for i, sink := range o.sinks {
		// All observers find the same strangers: the first one logs them.
		stranger := o.logStranger
		if i > 0 {
			stranger = nil
		}

		w = append(w, monitor.NewObserver(monitor.Options{
			Sink: sink, List: o.list, Window: o.window, Before: o.before,
			Stranger: stranger, Failed: o.logFailure, Recovered: o.logRecovery,
		}))
	}

	return w
}

func (o watchOptions) logStranger(member string, reason error) {
	switch {
	case o.exempt(member):
	case errors.Is(reason, monitor.ErrNotNode):
		o.gossip.Printf("[INFO] gossip: the member %q is not a node: %v", member, reason)
	default:
		o.gossip.Printf("[WARN] gossip: the member %q is ignored: %v", member, reason)
	}
}

// logFailure logs the 1st, 2nd, 4th, 8th, … consecutive failure.
func (o watchOptions) logFailure(err error, consecutive int) {
	if isPowerOfTwo(consecutive) {
		o.log.WithField("in_row", consecutive).Warnf("gossip: %v; retrying", err)
	}
}

func (o watchOptions) logRecovery(nodes, consecutive int) {
	o.log.WithField("in_row", consecutive).
		Infof("gossip: recorded a report about %s after failed attempts", inventory.Count(nodes, "node", "nodes"))
}

func isPowerOfTwo(n int) bool { return n&(n-1) == 0 }

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

// alive lists the nodes that are alive by the last report that the first sink
// has acknowledged.
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
