// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/server/rest"
	"github.com/contiv/cluster/management/state"
)

// watchBatch is the approximate number of changes that a watch reads at a time.
const watchBatch = 256

func (s *Server) watchRoutes() []rest.Route {
	return []rest.Route{{
		Method: http.MethodGet, Path: api.PathWatch,
		Allow: access.Readers.Scoped(), Serve: s.reading(s.getWatch), Streams: true,
		Query: []openapi.Param{
			{
				Name: "kinds", Type: openapi.Texts,
				Help: "The kinds to watch, separated by commas: `" + strings.Join(watchKinds(), "`, `") +
					"`, or `all` for each of these that the caller may read. A kind that the caller may not read by " +
					"its path is forbidden. Default: the first four, or only nodes if one of the next parameters " +
					"selects nodes.",
			},
			{Name: "name", Type: openapi.Texts, Help: "Names of nodes."},
			{Name: "group", Type: openapi.Texts, Help: "Groups of nodes."},
			{Name: "selector", Help: "A selector over fields and labels of nodes, as for the list of nodes."},
			{Name: "since", Type: openapi.Number, Help: "Resume after this revision, without the initial state."},
		},
		Doc: &openapi.Doc{
			ID: "watch", Summary: "Watch changes",
			Text: "Returns server-sent events, each a `Change`: the initial state as `put` events, then `sync`, " +
				"then every change as it happens. An idle watch receives a `progress` event every 10 seconds. A " +
				"client that applies every `put` and `delete` has a copy of the manager's state. To resume, pass " +
				"the id of the last event as `since` or in the header `Last-Event-ID`; a change may come twice. A " +
				"client that is too slow receives `dropped`, and the connection ends.",
			Type: api.TypeEventStream, Item: api.Change{},
			Success: "The events, until the client closes the connection.",
			Fails: openapi.Fails{
				404: "A requested group does not exist.", 410: "The changes since that revision are no longer kept.",
			},
		},
	}}
}

// getWatch streams changes until the client disconnects. Each watch reads from
// the shared feed at its own pace, so a client that does not read delays nobody:
// it is disconnected when the feed no longer reaches back to its position, or
// when a write stalls.
func (s *Server) getWatch(w http.ResponseWriter, r *http.Request, v *state.Scoped) error {
	q := rest.Query(r)

	selected, err := s.selectionOf(access.IdentityOf(r.Context()), v, q)
	if err != nil {
		return err
	}

	since, resumes, err := resumeRevision(r)
	if err != nil {
		return err
	}

	release, err := s.acquireWatch()
	if err != nil {
		return err
	}
	defer release()

	position := v.Revision
	if resumes {
		position = since

		if err := s.checkResume(r.Context(), since); err != nil {
			return err
		}
	}

	events := &eventWriter{Server: s, out: rest.NewEventWriter(w), selected: selected, position: position}

	if r.Method == http.MethodHead {
		return nil
	}

	return s.stream(w, r, func(ctx context.Context) error {
		if !resumes {
			if err := events.writeState(v); err != nil {
				return err
			}
		}

		return events.follow(ctx, !resumes)
	})
}

// stream calls write, which writes events until its context ends: the client has
// disconnected, or the server stops.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, write func(context.Context) error) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()

	// When the server stops, also the write in progress must end.
	defer context.AfterFunc(s.draining, func() {
		cancel()
		rest.EndStream(w)
	})()

	err := write(ctx)

	switch {
	case s.draining.Err() != nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.metrics.dropped.Inc() // the client does not read, so no event can reach it
	case ctx.Err() != nil:
		return nil // the client has disconnected
	}

	return err
}

// acquireWatch reserves one of the limited number of watches.
func (s *Server) acquireWatch() (release func(), err error) {
	if s.watches.Add(1) > int64(s.Watches) {
		s.watches.Add(-1)

		return nil, inventory.
			Errorf(inventory.KindUnavailable, "all %s in use", inventory.Count(s.Watches, "watch is", "watches are")).
			Do("end some, or try again later")
	}

	s.metrics.watches.Inc()

	return func() {
		s.watches.Add(-1)
		s.metrics.watches.Dec()
	}, nil
}

// resumeRevision returns the revision after which a watch resumes. A reconnecting
// client sends Last-Event-ID, which takes precedence over the query.
func resumeRevision(r *http.Request) (since int64, resumes bool, err error) {
	last := r.Header.Get(api.HeaderLastEventID)
	if last == "" {
		q := rest.Query(r)
		return q.Number("since"), q.Has("since"), nil
	}

	since, err = strconv.ParseInt(last, 10, 64)
	if err != nil || since < 0 {
		return 0, false, inventory.Errorf(inventory.KindInvalid, "the header %s is %q", api.HeaderLastEventID, last).
			Do("send the id of an event of a watch")
	}

	return since, true, nil
}

// checkResume returns KindExpired if the changes after the revision are no longer
// kept, or if the store does not reach the revision, as after a restore.
func (s *Server) checkResume(ctx context.Context, revision int64) error {
	c, err := s.State.Changes(revision, 1)
	if err != nil || c.Revision >= revision {
		return err
	}

	// The event may come from an instance that is ahead of this one.
	ctx, cancel := context.WithTimeout(ctx, revisionTime)
	defer cancel()

	if err := s.State.Wait(ctx, revision); err != nil {
		return inventory.
			Errorf(inventory.KindExpired, "the store is at revision %d, before revision %d", c.Revision, revision).
			Do("begin again with the current state: leave the revision out")
	}

	return nil
}

// selection is the part of the state that a watch shows.
type selection struct {
	kinds []api.WatchKind
	nodes nodeFilter
}

// defaultKinds are those of a watch that names none, because clients may know no other.
var defaultKinds = []api.WatchKind{api.WatchNodes, api.WatchJobs, api.WatchVars, api.WatchConfig}

// WatchKinds returns the kinds that a watch accepts.
func WatchKinds() []api.WatchKind {
	all := make([]api.WatchKind, len(Resources))
	for i, o := range Resources {
		all[i] = o.name()
	}

	return all
}

// mayWatch returns an error if the identity may not read the objects of a kind.
func (s *Server) mayWatch(id access.Identity, kind api.WatchKind) error {
	i := slices.Index(WatchKinds(), kind)
	rt := s.route(http.MethodGet, Resources[i].path())

	return rt.Allow.Authorize(id, rt.String())
}

// permitted returns those of the kinds of which the identity may read the objects.
func (s *Server) permitted(id access.Identity, kinds []api.WatchKind) []api.WatchKind {
	return slices.DeleteFunc(slices.Clone(kinds), func(k api.WatchKind) bool { return s.mayWatch(id, k) != nil })
}

func (s *Server) selectionOf(id access.Identity, v *state.Scoped, q rest.Values) (selection, error) {
	selected := selection{nodes: nodeFilter{names: q.Texts("name"), groups: q.Texts("group")}}
	known := WatchKinds()

	for _, text := range q.Texts("kinds") {
		for name := range strings.SplitSeq(text, ",") {
			kind := api.WatchKind(name)
			if kind == api.WatchAll {
				selected.kinds = append(selected.kinds, s.permitted(id, known)...)
				continue
			}

			if !slices.Contains(known, kind) {
				return selected, inventory.Errorf(inventory.KindInvalid, "%q cannot be watched", name).
					Do("the kinds are %s; %s is all of them",
						rest.Names(known, func(i int) string { return string(known[i]) }), api.WatchAll)
			}

			if err := s.mayWatch(id, kind); err != nil {
				return selected, err
			}

			selected.kinds = append(selected.kinds, kind)
		}
	}

	text, parsed, err := s.parseSelector(v, q)
	if err != nil {
		return selected, err
	}

	// A change of what is not in the record is no event of a node.
	if field := parsed.Judged(); field != "" {
		return selected, inventory.Errorf(inventory.KindInvalid, "a watch cannot select nodes by %s", field).
			Do("list the nodes with this selector, or watch all nodes")
	}

	selected.nodes.selector = parsed

	// A filter for nodes implies the kind nodes, and excludes the others.
	filtered := q.Has("name") || q.Has("group") || text != ""
	onlyNodes := []api.WatchKind{api.WatchNodes}

	switch {
	case len(selected.kinds) == 0 && filtered:
		selected.kinds = onlyNodes
	case len(selected.kinds) == 0:
		selected.kinds = s.permitted(id, defaultKinds)
	case filtered && !slices.Equal(selected.kinds, onlyNodes):
		return selected, inventory.
			Errorf(inventory.KindInvalid, "name, group and selector filter nodes, but other kinds are watched too").
			Do("watch only the kind %s, or leave them out", api.WatchNodes)
	}

	return selected, nil
}

func (s selection) has(kind api.WatchKind) bool { return slices.Contains(s.kinds, kind) }

// hasNode reports whether the record is a node that is selected.
func (s selection) hasNode(record any) bool {
	n, ok := record.(*inventory.Node)
	return ok && s.nodes.accepts(n)
}

// accepts reports whether the record is selected. Only nodes may be not.
func (s selection) accepts(record any) bool {
	_, isNode := record.(*inventory.Node)
	return !isNode || s.hasNode(record)
}

// eventWriter writes the events of one watch.
type eventWriter struct {
	*Server
	out      *rest.EventWriter
	selected selection
	position int64 // every change up to this revision is written
	stale    bool  // as last written
}

// write buffers an event. The watch can be resumed after it unless id is 0.
func (e *eventWriter) write(c api.Change, id int64) error { return e.out.Write(string(c.Type), id, c) }

// writeState writes the selected state of a view, followed by a sync event.
func (e *eventWriter) writeState(v *state.Scoped) error {
	seen := e.seen(v)

	for _, o := range Resources {
		if !e.selected.has(o.name()) {
			continue
		}

		for name, object := range o.objects(seen, e.selected.accepts) {
			c, err := putOf(o.name(), name, v.Revision, object)
			if err != nil {
				return err
			}
			if err := e.write(c, 0); err != nil {
				return err
			}
		}
	}

	return e.writeMark(api.ChangeSync, v.Stale)
}

// writeMark writes a sync or progress event: every change up to the position is
// written.
func (e *eventWriter) writeMark(kind api.ChangeType, stale bool) error {
	e.stale = stale
	return e.write(api.Change{Type: kind, Revision: e.position, Stale: stale}, e.position)
}

// follow writes changes until ctx ends, or until the feed no longer reaches back
// to the position. Unless synced, a sync event marks the end of the first changes.
func (e *eventWriter) follow(ctx context.Context, synced bool) error {
	heartbeat := time.NewTimer(e.Heartbeat)
	defer heartbeat.Stop()

	due := false
	for ctx.Err() == nil {
		c, err := e.State.Changes(e.position, watchBatch)
		if inventory.KindOf(err) == inventory.KindExpired {
			return e.writeDropped()
		}

		if err != nil {
			return err
		}

		if err := e.writeChanges(e.view(ctx), c.List); err != nil {
			return err
		}

		e.position = c.Revision

		switch {
		case c.More:
		case !synced:
			err, synced = e.writeMark(api.ChangeSync, c.Stale), true
		case due, c.Stale != e.stale:
			err = e.writeMark(api.ChangeProgress, c.Stale)
		}

		if err != nil {
			return err
		}

		// A progress event is due only after a time without any other event.
		if e.out.Buffered() {
			if err := e.out.Flush(); err != nil {
				return err
			}

			heartbeat.Reset(e.Heartbeat)
		}

		due = false

		if c.More {
			continue
		}

		select {
		case <-c.Woken:
		case <-heartbeat.C:
			due = true
			heartbeat.Reset(e.Heartbeat)
		case <-ctx.Done():
		}
	}

	return nil
}

// writeDropped ends the watch of a client that has fallen behind the feed.
func (e *eventWriter) writeDropped() error {
	e.metrics.dropped.Inc()

	err := e.write(api.Change{
		Type:     api.ChangeDropped,
		Revision: e.position,
		Reason:   "the client read too slowly: the changes after this revision are no longer kept",
	}, 0)
	if err != nil {
		return err
	}

	return e.out.Flush()
}

// writeChanges writes the selected changes. Only the last event of a revision
// has an id: a client that resumes after an id has received whole revisions.
func (e *eventWriter) writeChanges(v *state.Scoped, list []state.Change) error {
	list = v.Changes(list)
	if len(list) == 0 {
		return nil
	}

	seen := e.seen(v)

	// An event without a record of its own shows the newest one, so the last change of each is enough. A node
	// may leave the selection with each.
	last := map[record.Ref]int{}

	for i := range list {
		last[list[i].Ref] = i
	}

	var pending *api.Change
	for i, c := range list {
		if c.Record == nil && c.Kind != job.Nodes.Name && last[c.Ref] != i {
			continue
		}

		next, err := e.eventOf(seen, c)
		if err != nil {
			return err
		}
		if next == nil {
			continue
		}

		if pending != nil {
			id := pending.Revision
			if next.Revision == id {
				id = 0
			}
			if err := e.write(*pending, id); err != nil {
				return err
			}
		}

		pending = next
	}

	if pending == nil {
		return nil
	}

	return e.write(*pending, pending.Revision)
}

// eventOf returns the event of a change, or nil if the change is not selected.
func (e *eventWriter) eventOf(v *Seen, c state.Change) (*api.Change, error) {
	o := resourceOf(c.Kind)
	if o == nil || !e.selected.has(o.name()) {
		return nil, nil
	}

	// A node that leaves the selection is deleted for this watch.
	if c.Kind == job.Nodes.Name && !e.selected.hasNode(c.Record) {
		if c.Record = nil; !e.selected.hasNode(c.Former) {
			return nil, nil
		}
	}

	return changeOf(o.name(), c.Key, c.Revision, o.object(v, c))
}

// changeOf returns the event of a change to the object; nil: it is gone.
func changeOf(kind api.WatchKind, name string, revision int64, object any) (*api.Change, error) {
	if object == nil {
		return &api.Change{Type: api.ChangeDelete, Kind: kind, Name: name, Revision: revision}, nil
	}

	put, err := putOf(kind, name, revision, object)
	return &put, err
}

func putOf(kind api.WatchKind, name string, revision int64, object any) (api.Change, error) {
	data, err := rest.EncodeJSON(object)
	data = bytes.TrimSuffix(data, []byte("\n"))
	return api.Change{Type: api.ChangePut, Kind: kind, Name: name, Revision: revision, Object: data}, err
}
