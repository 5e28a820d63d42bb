// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/selector"
	"github.com/contiv/cluster/management/state"
)

// watchBatch is about how many changes are taken from the feed at a time.
const watchBatch = 256

// getWatch tells what changes, as it changes, for as long as the client reads.
// A client that does not read delays nobody: it is told from the feed when it
// gets to it, and dropped when the feed no longer reaches back to it, or when
// one write takes too long (recorder).
func (s *Server) getWatch(w http.ResponseWriter, r *http.Request) error {
	v, q, err := s.read(w, r)
	if err != nil {
		return err
	}

	chosen, err := s.chosen(v, q)
	if err != nil {
		return err
	}

	since, resumes, err := resumption(r, q)
	if err != nil {
		return err
	}

	if s.watches.Add(1) > int64(s.Watches) {
		s.watches.Add(-1)

		return inventory.Errorf(inventory.KindUnavailable, "%s open, and no more are served at once",
			inventory.Count(s.Watches, "watch is", "watches are")).
			Do("end some, or try again later")
	}

	s.metrics.watches.Inc()
	defer func() {
		s.watches.Add(-1)
		s.metrics.watches.Dec()
	}()

	t := &teller{Server: s, w: w, chosen: chosen, at: v.Revision}
	if resumes {
		t.at = since
		if err := s.reach(r.Context(), since); err != nil {
			return err
		}
	}

	w.Header().Set("Content-Type", api.TypeEventStream)
	w.Header().Set("Connection", "close") // the deadline of the last piece stays on it
	w.WriteHeader(http.StatusOK)

	if r.Method == http.MethodHead {
		return nil
	}

	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.draining, func() {
		cancel()

		if rec, ok := w.(*recorder); ok {
			rec.cut()
		}
	})()

	if !resumes {
		if err := t.present(v); err != nil {
			return err
		}
	}

	err = t.follow(ctx, !resumes)
	switch {
	case s.draining.Err() != nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.metrics.dropped.Inc() // and cannot be told
	case ctx.Err() != nil:
		return nil // the client has gone
	}

	return err
}

// resumption is the revision that a watch goes on after, and whether there is one.
func resumption(r *http.Request, q url.Values) (int64, bool, error) {
	last := r.Header.Get(api.HeaderLastEventID)
	if last == "" {
		return number(q, "since")
	}

	since, err := strconv.ParseInt(last, 10, 64)
	if err != nil || since < 0 {
		return 0, false, inventory.Errorf(inventory.KindInvalid, "the header %s is %q", api.HeaderLastEventID, last).
			Do("send the id of an event of a watch")
	}

	return since, true, nil
}

// reach refuses to go on after a revision that is no longer kept, or that the
// store does not come to: it was put back to an older state, perhaps.
func (s *Server) reach(ctx context.Context, revision int64) error {
	c, err := s.State.Changes(revision, 1)
	if err != nil || c.Revision >= revision {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, revisionTime)
	defer cancel()

	if err := s.State.Wait(ctx, revision); err != nil {
		return inventory.Errorf(inventory.KindExpired, "the store is at revision %d only, not at %d", c.Revision,
			revision).
			Do("begin anew with the present state: leave the revision out")
	}

	return nil
}

// selection is what a watch is about.
type selection struct {
	kinds         []api.WatchKind
	names, groups []string // of nodes; empty: any
	selector      selector.Selector
}

func (s *Server) chosen(v *state.View, q url.Values) (selection, error) {
	c := selection{names: q["name"], groups: q["group"]}
	for _, text := range q["kinds"] {
		for word := range strings.SplitSeq(text, ",") {
			kind := api.WatchKind(word)
			if !slices.Contains(api.WatchKinds, kind) {
				return c, inventory.Errorf(inventory.KindInvalid, "%q is not a kind of what can be watched", word).
					Do("the kinds are %s",
						words(api.WatchKinds, func(i int) string { return string(api.WatchKinds[i]) }))
			}

			c.kinds = append(c.kinds, kind)
		}
	}

	text, chosen, err := s.selected(v, q)
	if err != nil {
		return c, err
	}

	c.selector = chosen

	onlyNodes := len(c.names) > 0 || len(c.groups) > 0 || text != ""
	switch {
	case len(c.kinds) == 0 && onlyNodes:
		c.kinds = []api.WatchKind{api.WatchNodes}
	case len(c.kinds) == 0:
		c.kinds = api.WatchKinds
	case onlyNodes && !slices.Equal(c.kinds, []api.WatchKind{api.WatchNodes}):
		return c, inventory.Errorf(inventory.KindInvalid,
			"name, group and selector choose among nodes, and other kinds are to be watched as well").
			Do("watch only the kind %s, or leave them out", api.WatchNodes)
	}

	return c, nil
}

func (c selection) has(kind api.WatchKind) bool { return slices.Contains(c.kinds, kind) }

// node tells whether the node is there and chosen.
func (c selection) node(n *inventory.Node) bool {
	return n != nil && oneOf(n.Name, c.names) && oneOf(n.Group, c.groups) && c.selector.Matches(n)
}

// teller writes the events of one watch.
type teller struct {
	*Server
	w      http.ResponseWriter
	chosen selection
	at     int64 // every change up to here was told
	stale  bool  // as it was told last
	buf    bytes.Buffer
}

// present tells the state that a watch begins with.
func (t *teller) present(v *state.View) error {
	put := func(kind api.WatchKind, name string, object any) error {
		c, err := putOf(kind, name, v.Revision, object)
		if err != nil {
			return err
		}

		return t.write(c, 0)
	}
	if t.chosen.has(api.WatchNodes) {
		for _, n := range v.Nodes {
			if !t.chosen.node(n) {
				continue
			}

			if err := put(api.WatchNodes, n.Name, nodeOf(v, *n)); err != nil {
				return err
			}
		}
	}

	if t.chosen.has(api.WatchJobs) {
		for _, j := range v.Jobs {
			if err := put(api.WatchJobs, j.ID, jobOf(j)); err != nil {
				return err
			}
		}
	}

	if t.chosen.has(api.WatchVars) {
		for _, scope := range slices.Sorted(maps.Keys(v.Variables)) {
			// As they are read, secrets hidden; what differs by now is told next.
			vars, err := t.Variables.Get(scope)
			if err != nil || len(vars) == 0 {
				continue
			}

			if err := put(api.WatchVars, string(scope), vars); err != nil {
				return err
			}
		}
	}

	if t.chosen.has(api.WatchConfig) {
		if err := put(api.WatchConfig, "", t.Settings.Config()); err != nil {
			return err
		}
	}

	return t.sync(v.Stale)
}

// sync says that everything was told.
func (t *teller) sync(stale bool) error {
	t.stale = stale
	return t.write(api.Change{Type: api.ChangeSync, Revision: t.at, Stale: stale}, t.at)
}

// follow tells changes until ctx ends or the feed is no longer there for it.
func (t *teller) follow(ctx context.Context, synced bool) error {
	beat := time.NewTimer(t.Heartbeat)
	defer beat.Stop()

	due := false
	for ctx.Err() == nil {
		c, err := t.State.Changes(t.at, watchBatch)
		if inventory.KindOf(err) == inventory.KindExpired {
			return t.drop()
		}

		if err != nil {
			return err
		}

		if err := t.tell(t.Variables.Hide(c.List)); err != nil {
			return err
		}

		t.at = c.Revision
		switch {
		case c.More:
		case !synced:
			err, synced = t.sync(c.Stale), true
		case due, c.Stale != t.stale:
			t.stale = c.Stale
			err = t.write(api.Change{Type: api.ChangeProgress, Revision: t.at, Stale: c.Stale}, t.at)
		}

		if err != nil {
			return err
		}

		if t.buf.Len() > 0 {
			if err := t.flush(); err != nil {
				return err
			}

			beat.Reset(t.Heartbeat)
		}

		due = false

		if c.More {
			continue
		}

		select {
		case <-c.Woken:
		case <-beat.C:
			due = true
			beat.Reset(t.Heartbeat)
		case <-ctx.Done():
		}
	}

	return nil
}

// drop tells a client that it was too slow.
func (t *teller) drop() error {
	t.metrics.dropped.Inc()

	err := t.write(api.Change{
		Type:     api.ChangeDropped,
		Revision: t.at,
		Reason:   "what changed after this revision is no longer kept: it was read too slowly",
	}, 0)
	if err != nil {
		return err
	}

	return t.flush()
}

// tell writes changes. The last event of each revision gets its id: a client
// that resumes after an id has not missed a part of a revision.
func (t *teller) tell(list []state.Change) error {
	var held *api.Change
	for i := range list {
		e, err := t.event(&list[i])
		if err != nil {
			return err
		}

		if e == nil {
			continue
		}

		if held != nil {
			id := held.Revision
			if e.Revision == id {
				id = 0
			}

			if err := t.write(*held, id); err != nil {
				return err
			}
		}

		held = e
	}

	if held == nil {
		return nil
	}

	return t.write(*held, held.Revision)
}

// event is what the client is told of a change; nil: nothing.
func (t *teller) event(c *state.Change) (*api.Change, error) {
	kind := api.WatchKind(c.Kind)
	if !t.chosen.has(kind) {
		return nil, nil
	}

	var object any
	switch c.Kind {
	case state.ChangeNodes:
		switch {
		case t.chosen.node(c.Node):
			object = nodeWith(*c.Node, c.Connection)
		case !t.chosen.node(c.Was):
			return nil, nil
		}
	case state.ChangeJobs:
		if c.Job != nil {
			object = jobOf(*c.Job)
		}
	case state.ChangeVars:
		if len(c.Vars) > 0 {
			object = c.Vars
		}
	case state.ChangeConfig:
		object = t.Settings.Config()
	}

	if object == nil {
		return &api.Change{Type: api.ChangeDelete, Kind: kind, Name: c.Name, Revision: c.Revision}, nil
	}

	e, err := putOf(kind, c.Name, c.Revision, object)

	return &e, err
}

func putOf(kind api.WatchKind, name string, revision int64, object any) (api.Change, error) {
	data, err := compact(object)
	return api.Change{Type: api.ChangePut, Kind: kind, Name: name, Revision: revision, Object: data}, err
}

// compact writes JSON as one line.
func compact(v any) ([]byte, error) {
	b, err := encodeJSON(v)
	return bytes.TrimSuffix(b, []byte("\n")), err
}

// write adds an event. id 0: a watch cannot be resumed after it.
func (t *teller) write(c api.Change, id int64) error {
	data, err := compact(c)
	if err != nil {
		return err
	}

	if id > 0 {
		fmt.Fprintf(&t.buf, "id: %d\n", id)
	}

	fmt.Fprintf(&t.buf, "event: %s\ndata: %s\n\n", c.Type, data)

	if t.buf.Len() >= 64<<10 {
		_, err = t.buf.WriteTo(t.w)
	}

	return err
}

// flush sends what was written.
func (t *teller) flush() error {
	if _, err := t.buf.WriteTo(t.w); err != nil {
		return err
	}

	return http.NewResponseController(t.w).Flush()
}
