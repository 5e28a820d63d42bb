// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"reflect"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/state"
)

// The bounds of what is kept for those who watch. At 100 transitions per second
// it is a good minute, which is more than a broken connection takes.
const (
	feedCount = 16 << 10
	feedBytes = 16 << 20
)

// subject is something that a change is about.
type subject struct {
	kind state.ChangeKind
	name string
}

// pending is what changes in the revision that is being applied. Only when all
// of the revision is applied is it known what a node counts as.
type pending struct {
	revision int64
	order    []subject
	was      map[subject]*inventory.Node // what a node counted as before; nil: it was not there
	size     map[subject]int             // bytes, about
	told     []state.Change              // of revisions that are complete
	off      bool                        // everything is being read anew, in any order
}

// note says that something is about to change, by a record of so many bytes.
func (v *view) note(kind state.ChangeKind, name string, size int) {
	if v.pending.off {
		return
	}

	s := subject{kind, name}
	if _, noted := v.pending.size[s]; !noted {
		if v.pending.size == nil {
			v.pending.was, v.pending.size = map[subject]*inventory.Node{}, map[subject]int{}
		}

		v.pending.order = append(v.pending.order, s)
		if kind == state.ChangeNodes {
			v.pending.was[s], _ = v.shown(name)
		}
	}

	v.pending.size[s] += size
}

// begin begins to apply a change of the revision.
func (v *view) begin(revision int64) {
	if revision != v.pending.revision {
		v.settle()
		v.pending.revision = revision
	}
}

// settle ends a revision: what was noted has changed to what the view shows now.
func (v *view) settle() {
	p := &v.pending

	const own = 512 // of a record, beside what is stored
	for _, s := range p.order {
		c := state.Change{Revision: p.revision, Kind: s.kind, Name: s.name, Size: own + p.size[s]}
		switch s.kind {
		case state.ChangeNodes:
			c.Was = p.was[s]
			if c.Node, _ = v.shown(s.name); c.Node == nil && c.Was == nil {
				continue // a connection that was set for no node
			}

			if conn, ok := v.conns.m[s.name]; ok && c.Node != nil {
				c.Connection = &conn
			}
		case state.ChangeJobs:
			if j, ok := v.jobs[s.name]; ok {
				c.Job = &j
			}
		case state.ChangeVars:
			c.Vars = v.settings.m[state.Scope(s.name)]
		}

		p.told = append(p.told, c)
	}

	p.order = p.order[:0]
	clear(p.was)
	clear(p.size)
}

// tell publishes what has settled.
func (v *view) tell() {
	v.settle()

	if v.feed != nil {
		v.feed.Publish(v.revision, v.pending.told)
	}

	v.pending.told = nil
}

// contents is what the view shows of that which can be watched.
type contents struct {
	nodes    map[string]*inventory.Node
	conns    map[string]configuration.Connection
	jobs     map[string]job.Job
	settings map[state.Scope]configuration.Vars
	config   int64
}

func (v *view) contents() contents {
	c := contents{
		nodes:    make(map[string]*inventory.Node, len(v.nodes)),
		conns:    v.conns.give(),
		jobs:     v.jobs,
		settings: v.settings.give(),
		config:   v.config,
	}
	for name := range v.nodes {
		c.nodes[name], _ = v.shown(name)
	}

	return c
}

// compare notes, when everything has been read anew, how that differs from what was
// known: to those who watch it is one change.
func (v *view) compare(old contents, revision int64) {
	v.pending = pending{revision: revision}
	if v.feed == nil {
		v.feed = state.NewFeed(revision, feedCount, feedBytes)
		return
	}

	now := v.contents()
	note := func(kind state.ChangeKind, name string) { v.note(kind, name, 0) }
	each(old.nodes, now.nodes, func(name string) {
		if !reflect.DeepEqual(old.nodes[name], now.nodes[name]) ||
			!reflect.DeepEqual(old.conns[name], now.conns[name]) {
			note(state.ChangeNodes, name)
			v.pending.was[subject{state.ChangeNodes, name}] = old.nodes[name]
		}
	})
	each(old.jobs, now.jobs, func(id string) {
		if old.jobs[id].Revision != now.jobs[id].Revision {
			note(state.ChangeJobs, id)
		}
	})
	each(old.settings, now.settings, func(s state.Scope) {
		if !reflect.DeepEqual(old.settings[s], now.settings[s]) {
			note(state.ChangeVars, string(s))
		}
	})

	if old.config != now.config {
		note(state.ChangeConfig, "")
	}
}

// each calls f with every key of both maps, once.
func each[K comparable, V any](a, b map[K]V, f func(K)) {
	for k := range a {
		f(k)
	}

	for k := range b {
		if _, done := a[k]; !done {
			f(k)
		}
	}
}

// Changes are what the views after that revision show differently.
func (s *Store) Changes(revision int64, limit int) (state.Changes, error) {
	return s.view.feed.Since(revision, limit)
}
