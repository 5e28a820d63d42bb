// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/contiv/cluster/management/api"
)

// AuditFilter selects entries of the audit trail. The zero value selects all.
type AuditFilter struct {
	Since, Until time.Time // not before Since, before Until
	Who          string    // a principal
	Verb         string    // or a part of it up to a dot: jobs selects jobs.cancel
	Node         string    // a target: a node, an address, a job or a level of variables
	Result       string    // api.AuditDone, api.AuditFailed, or the kind of an error
	Job          string
	Request      string // the id of a request
}

func (f AuditFilter) query() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{
		"who": f.Who, "verb": f.Verb, "node": f.Node, "result": f.Result, "job": f.Job, "request": f.Request,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}

	for name, at := range map[string]time.Time{"since": f.Since, "until": f.Until} {
		if !at.IsZero() {
			q.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}

	return q
}

// Audit returns the selected entries of the audit trail, the oldest first: with tail
// the newest ones only, at most api.MaxAuditPage, else all of them.
func (c *Client) Audit(ctx context.Context, f AuditFilter, tail int) (api.AuditList, error) {
	q := f.query()
	if tail > 0 {
		q.Set("tail", strconv.Itoa(tail))
	}

	all := api.AuditList{Items: []api.AuditEntry{}}

	for {
		var page api.AuditList
		if err := c.do(ctx, call{method: http.MethodGet, path: api.PathAudit, query: q}, &page); err != nil {
			return all, err
		}

		all.Items = append(all.Items, page.Items...)

		if page.Continue == "" {
			return all, nil
		}

		q.Set("continue", page.Continue)
	}
}

// ExportAudit writes the selected entries of the audit trail to w, one line of JSON
// each, as they are stored. An export is complete if there is no error.
func (c *Client) ExportAudit(ctx context.Context, f AuditFilter, w io.Writer) error {
	res, e, err := c.open(ctx, call{method: http.MethodGet, path: api.PathAuditLines, query: f.query()})
	if err != nil {
		return err
	}
	defer res.Body.Close()

	if !isType(res, api.TypeLines) {
		return e.notStream(res)
	}

	return e.copy(ctx, w, res.Body)
}

// Backup writes a backup of all records to w. Whether it is complete shows its end: see package backup.
func (c *Client) Backup(ctx context.Context, w io.Writer) error {
	res, e, err := c.open(ctx, call{method: http.MethodGet, path: api.PathBackup})
	if err != nil {
		return err
	}
	defer res.Body.Close()

	if !isType(res, api.TypeBackup) {
		return e.notStream(res)
	}

	return e.copy(ctx, w, res.Body)
}

// copy copies the body of an answer to w.
func (e *endpoint) copy(ctx context.Context, w io.Writer, body io.Reader) error {
	to := &written{to: w}

	_, err := io.Copy(to, body)
	if err != nil && to.err == nil {
		return e.explain(ctx, err)
	}

	return err
}

// written keeps the error of a writer apart from that of a reader.
type written struct {
	to  io.Writer
	err error
}

func (w *written) Write(p []byte) (int, error) {
	n, err := w.to.Write(p)
	w.err = err
	return n, err
}

// VerifyAudit checks the chain of the audit trail.
func (c *Client) VerifyAudit(ctx context.Context) (api.AuditReport, error) {
	return get[api.AuditReport](ctx, c, api.PathAuditCheck)
}

// AuditOptions select the entries of FollowAudit.
type AuditOptions struct {
	AuditFilter
	// Tail is the number of present entries to begin with. With Since, unless zero, it
	// has no effect: all of them since then come first.
	Tail int
	// Lost, unless nil, is called with the error before each reconnect.
	Lost func(error)
	// Found, unless nil, is called after each connection.
	Found func()
}

// FollowAudit yields entries of the audit trail as they are made, each once. It
// resumes after a broken connection, for up to Options.Patience since the last
// response. It ends with an error, that of the context included, or with the caller's
// loop.
func (c *Client) FollowAudit(ctx context.Context, o AuditOptions) iter.Seq2[api.AuditEntry, error] {
	return func(yield func(api.AuditEntry, error) bool) {
		f := &auditFollower{c: c, o: o, patience: c.patience()}

		err := c.reconnect(ctx, f.patience, o.Lost, func() error {
			return f.connection(ctx, func(e api.AuditEntry) bool { return yield(e, nil) })
		})
		if err != nil {
			yield(api.AuditEntry{}, err)
		}
	}
}

// auditFollower is the progress of FollowAudit over its connections.
type auditFollower struct {
	c        *Client
	o        AuditOptions
	patience *patience
	after    uint64 // the number of the last entry; 0: none came
}

// connection follows the trail until the connection ends.
func (f *auditFollower) connection(ctx context.Context, yield func(api.AuditEntry) bool) error {
	q := f.o.query()
	q.Set("follow", "true")

	switch {
	case f.after > 0:
		q.Set("after", strconv.FormatUint(f.after, 10))
	case f.o.Tail > 0 && f.o.Since.IsZero():
		q.Set("tail", strconv.Itoa(f.o.Tail))
	}

	return f.c.readEvents(ctx, api.PathAudit, q, f.o.Found, func(data []byte, _ int64) error {
		f.patience.reset()

		event, err := decodeEvent[api.AuditEvent](f.c, data)
		if err != nil || event.Entry == nil {
			return err
		}
		f.after = event.Entry.Seq
		if !yield(*event.Entry) {
			return errEnded
		}

		return nil
	})
}
