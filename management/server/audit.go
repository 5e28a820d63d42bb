// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/audit"
	"github.com/contiv/cluster/management/openapi"
	"github.com/contiv/cluster/management/server/rest"
)

func (s *Server) auditRoutes() []rest.Route {
	results := []string{audit.Done, audit.Failed}
	for _, kind := range inventory.Kinds {
		results = append(results, string(kind))
	}

	filters := []openapi.Param{
		{Name: "since", Type: openapi.Time, Help: "Only entries at or after this time."},
		{Name: "until", Type: openapi.Time, Help: "Only entries before this time."},
		{Name: "who", Help: "Only entries of this principal."},
		{
			Name: "verb",
			Help: "Only entries of this verb, or of its beginning up to a dot: `jobs` selects `jobs.cancel`.",
		},
		{
			Name: "node",
			Help: "Only entries with exactly this target; a node, an address, a job or a level of variables.",
		},
		{
			// A mistyped result would look as if nothing had happened.
			Name: "result", Values: results,
			Help: "Only entries with this result: `done`, a kind of error, or `failed` for every kind.",
		},
		{Name: "job", Help: "Only entries about this job."},
		{Name: "request", Help: "Only entries of the request with this id."},
	}
	paging := append([]openapi.Param{
		{
			Name: "tail", Type: openapi.Number, Min: 1, Max: api.MaxAuditPage,
			Help: "Only the newest entries, at most this number.",
		},
		{
			Name: "limit", Type: openapi.Number, Min: 1, Max: api.MaxAuditPage,
			Default: strconv.Itoa(api.MaxAuditPage), Help: "The largest number of entries on the page.",
		},
		{Name: "continue", Type: openapi.Number, Help: "The token of the previous page."},
		{Name: "follow", Type: openapi.Flag, Help: "Stream new entries until the client closes the connection."},
		{
			Name: "after", Type: openapi.Number,
			Help: "With `follow=true`, resume after the entry with this number.",
		},
	}, filters...)

	return []rest.Route{
		{
			Method: http.MethodGet, Path: api.PathAudit,
			Allow: access.Admins, Serve: s.getAudit, Streams: true, Query: paging,
			Doc: &openapi.Doc{
				ID: "listAudit", Summary: "Read or follow the audit trail",
				Text: "Returns the entries of all managers, the oldest first: every change, every " +
					"refusal, and every decision of the manager itself. The entries of changes that were answered " +
					"before are included.\n\n" +
					"With `follow=true` the answer is a stream of server-sent events, each an `AuditEvent`: the " +
					"entries after `after`, or the newest `tail` ones, or those at or after `since`, and then each " +
					"new one. An idle stream has an event without an entry every 10 seconds. To resume, pass the " +
					"id of the last event as `after`, or in the header `Last-Event-ID`.",
				Answer: api.AuditList{}, Type: api.TypeEventStream, Item: api.AuditEvent{}, Success: "The entries.",
			},
		},
		{
			Method: http.MethodGet, Path: api.PathAuditLines,
			Allow: access.Admins, Serve: s.getAuditLines, Streams: true, Query: filters,
			Doc: &openapi.Doc{
				ID: "exportAudit", Summary: "Export the audit trail",
				Text: "Returns the entries as they are stored, one `AuditEntry` per line, with its hash as the " +
					"first field. `clusterm audit verify --export FILE` checks such a file on any host. An answer " +
					"that is cut off ends the connection without its last chunk.",
				Type: api.TypeLines, Item: api.AuditEntry{}, Success: "The entries, the oldest first.",
			},
		},
		{
			Method: http.MethodGet, Path: api.PathAuditCheck, Allow: access.Admins, Serve: s.getAuditCheck,
			Doc: &openapi.Doc{
				ID: "verifyAudit", Summary: "Check the chain of the audit trail",
				Text: "Reads the whole trail and reports missing and changed entries. Keep the last number and " +
					"hash on another host: the chain alone cannot show entries that were cut off at its end.",
				Answer: api.AuditReport{}, Success: "The result; without `problems` the chain is whole.",
			},
		},
	}
}

// auditQuery is the part of the audit trail that a request selects.
type auditQuery struct {
	filter audit.Filter
	tail   int // the newest entries only; 0: from the oldest one on
	limit  int // of a page
	follow bool
}

// readTrail parses the query, and awaits the entries that were made before the request.
func (s *Server) readTrail(r *http.Request) (q auditQuery, err error) {
	if s.Trail == nil {
		return q, inventory.Errorf(inventory.KindUnavailable, "this manager keeps no audit trail")
	}

	q.filter = auditFilter(rest.Query(r))

	if err := s.inAuditTime(r.Context(), s.Trail.Sync); err != nil {
		return q, inventory.Errorf(inventory.KindUnavailable, "%w", err).
			Do("check the disk of the manager").With(inventory.ShowHealth())
	}

	return q, nil
}

// inAuditTime reads the audit trail with a deadline.
func (s *Server) inAuditTime(ctx context.Context, read func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.AuditTime)
	defer cancel()

	err := read(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return inventory.Errorf(inventory.KindUnavailable, "the audit trail was not read within %s", s.AuditTime).
			Do("select a part of it with since and until, or check the disk of the manager")
	}

	return err
}

// newest returns the newest selected entries, the oldest first.
func (s *Server) newest(ctx context.Context, f audit.Filter, most int) (entries []audit.Entry, err error) {
	err = s.inAuditTime(ctx, func(ctx context.Context) error {
		entries, err = s.Trail.Newest(ctx, f, most)
		return err
	})

	return entries, err
}

// auditFilter returns the filter in a query.
func auditFilter(q rest.Values) audit.Filter {
	return audit.Filter{
		Since: q.Time("since"), Until: q.Time("until"), Who: q.Text("who"), Verb: q.Text("verb"),
		Target: q.Text("node"), Result: q.Text("result"), Job: q.Text("job"), Request: q.Text("request"),
	}
}

// place adds the parameters of a page or of a followed trail to the query.
func (q *auditQuery) place(r *http.Request) error {
	values := rest.Query(r)
	q.follow, q.tail, q.limit = values.Flag("follow"), int(values.Number("tail")), int(values.Number("limit"))

	position := "continue"
	if q.follow {
		position = "after"
	}

	for _, name := range []string{"continue", "after"} {
		if values.Has(name) && name != position || q.tail > 0 && values.Has(name) {
			return inventory.Errorf(inventory.KindInvalid, "%s does not go with the other query parameters", name).
				Do("use continue for pages, after with follow=true, and neither with tail")
		}
	}

	after := values.Number(position)

	if q.follow && r.Header.Get(api.HeaderLastEventID) != "" {
		var err error
		if after, _, err = resumeRevision(r); err != nil {
			return err
		}
	}

	q.filter.After = uint64(after) //nolint:gosec // Number returns none below 0

	return nil
}

// getAudit answers with a page of the audit trail, or follows it.
func (s *Server) getAudit(w http.ResponseWriter, r *http.Request) error {
	q, err := s.readTrail(r)
	if err != nil {
		return err
	}
	if err := q.place(r); err != nil {
		return err
	}

	if q.follow {
		return s.followAudit(w, r, q)
	}

	list := api.AuditList{Items: []api.AuditEntry{}}

	if q.tail > 0 {
		newest, err := s.newest(r.Context(), q.filter, q.tail)
		if err != nil {
			return err
		}
		for _, e := range newest {
			list.Items = append(list.Items, auditEntryOf(e))
		}

		return rest.WriteJSON(w, http.StatusOK, list)
	}

	err = s.inAuditTime(r.Context(), func(ctx context.Context) error {
		return s.Trail.Read(ctx, q.filter, func(e audit.Entry) error {
			// One more shows that there is another page.
			if len(list.Items) == q.limit {
				list.Continue = strconv.FormatUint(list.Items[q.limit-1].Seq, 10)
				return errPageFull
			}

			list.Items = append(list.Items, auditEntryOf(e))

			return nil
		})
	})
	if err != nil && !errors.Is(err, errPageFull) {
		return err
	}

	return rest.WriteJSON(w, http.StatusOK, list)
}

var errPageFull = errors.New("the page is full")

// followAudit streams entries until the client disconnects: those after a number, or
// the newest ones, and then each new one.
func (s *Server) followAudit(w http.ResponseWriter, r *http.Request, q auditQuery) error {
	release, err := s.acquireWatch()
	if err != nil {
		return err
	}
	defer release()

	resumes := q.filter.After > 0

	// What comes meanwhile is after it, and may be among the newest ones, too.
	last, err := s.newest(r.Context(), audit.Filter{}, 1)
	if err != nil {
		return err
	}

	var first []audit.Entry
	if q.tail > 0 {
		if first, err = s.newest(r.Context(), q.filter, q.tail); err != nil {
			return err
		}
	}

	f := &auditFollower{Server: s, out: rest.NewEventWriter(w), filter: q.filter, after: q.filter.After}
	// With a time to begin at, the past comes first.
	if !resumes && q.filter.Since.IsZero() && len(last) > 0 {
		f.after = last[0].Seq
	}

	if r.Method == http.MethodHead {
		return nil
	}

	return s.stream(w, r, func(ctx context.Context) error {
		if err := f.write(first); err != nil {
			return err
		}
		return f.follow(ctx)
	})
}

// auditFollower writes the entries of the audit trail to one client.
type auditFollower struct {
	*Server
	out    *rest.EventWriter
	filter audit.Filter
	after  uint64 // the number of the last entry that was considered
}

func (f *auditFollower) follow(ctx context.Context) error {
	heartbeat := time.NewTicker(f.Heartbeat)
	defer heartbeat.Stop()

	for ctx.Err() == nil {
		var (
			entries []audit.Entry
			woken   <-chan struct{}
		)

		err := f.inAuditTime(ctx, func(ctx context.Context) (err error) {
			entries, woken, err = f.Trail.After(ctx, f.after)
			return err
		})
		if err != nil {
			return err
		}

		if err := f.write(entries); err != nil {
			return err
		}

		if len(entries) > 0 {
			continue
		}

		select {
		case <-woken:
		case <-heartbeat.C:
			if err := f.out.Write("progress", 0, api.AuditEvent{}); err != nil {
				return err
			}

			if err := f.out.Flush(); err != nil {
				return err
			}
		case <-ctx.Done():
		}
	}

	return nil
}

// write sends the selected entries.
func (f *auditFollower) write(entries []audit.Entry) error {
	for _, e := range entries {
		f.after = max(f.after, e.Seq)

		// A follower resumes after it, so the number does not select.
		all := f.filter
		all.After = 0

		if !all.Selects(e) {
			continue
		}

		shown := auditEntryOf(e)
		id := int64(e.Seq) //nolint:gosec // it counts from 1

		if err := f.out.Write("entry", id, api.AuditEvent{Entry: &shown}); err != nil {
			return err
		}
	}

	return f.out.Flush()
}

// getAuditLines exports the selected entries, one per line.
func (s *Server) getAuditLines(w http.ResponseWriter, r *http.Request) error {
	q, err := s.readTrail(r)
	if err != nil {
		return err
	}

	w.Header().Set("Content-Type", api.TypeLines)
	w.WriteHeader(http.StatusOK)

	if r.Method == http.MethodHead {
		return nil
	}

	return s.Trail.Read(r.Context(), q.filter, func(e audit.Entry) error {
		if s.draining.Err() != nil {
			return s.draining.Err() // an export that is cut off must not look complete
		}

		_, err := w.Write(append(e.Export(), '\n'))
		return err
	})
}

// getAuditCheck checks the chain of the audit trail.
func (s *Server) getAuditCheck(w http.ResponseWriter, r *http.Request) error {
	if _, err := s.readTrail(r); err != nil {
		return err
	}

	var report audit.Report

	err := s.inAuditTime(r.Context(), func(ctx context.Context) (err error) {
		report, err = s.Trail.Verify(ctx)
		return err
	})
	if err != nil {
		return err
	}

	return rest.WriteJSON(w, http.StatusOK, api.AuditReport{
		Entries: report.Entries, First: report.First, Last: report.Last, LastHash: report.LastHash,
		Lost: report.Lost, Dropped: report.Dropped, Problems: report.Problems,
	})
}

func auditEntryOf(e audit.Entry) api.AuditEntry {
	return api.AuditEntry{
		Hash: e.Hash(), Seq: e.Seq, Time: e.Time, Instance: e.Instance, Who: e.Who, Credential: e.Credential,
		From: e.From, Via: e.Via, Request: e.Request, Verb: e.Verb, Targets: e.Targets, Job: e.Job, Reason: e.Reason,
		Replayed: e.Replayed, Result: e.Result, Error: e.Error, Count: e.Count, Prev: e.Prev,
	}
}
