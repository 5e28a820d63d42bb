// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/audit"
	"github.com/contiv/cluster/management/audit/audittest"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/server"
)

// openTrail opens a trail with entries about node1, node2 and so on, a minute apart,
// every third one refused.
func openTrail(t *testing.T, entries int) *audit.Trail {
	t.Helper()

	logger, _ := logtest.NewNullLogger()
	logger.SetLevel(logrus.ErrorLevel)

	l := audit.New(audit.Options{
		Store: &audittest.Store{}, Instance: "one", Keep: 1000, KeepFor: time.Hour, Leads: func() bool { return true },
		Logger: logger,
	})
	addEntries(t, l, 1, entries)

	return l
}

// auditNoon is the time of entry 0.
var auditNoon = time.Now().Add(-time.Hour).UTC().Truncate(time.Second)

func addEntries(t *testing.T, l *audit.Trail, from, to int) {
	t.Helper()

	for i := from; i <= to; i++ {
		e := audit.Entry{
			Time: auditNoon.Add(time.Duration(i) * time.Minute),
			Who:  "root",
			Verb: "nodes.patch",
			Targets: []string{
				fmt.Sprint("node", i),
			},
			Result:  audit.Done,
			From:    "uid 0",
			Via:     "socket",
			Request: fmt.Sprint("r", i),
		}
		if i%3 == 0 {
			e.Who, e.Verb, e.Result, e.Error = "anonymous", "requests.refuse", "forbidden", "not <permitted> & \"so\""
		}
		if err := l.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
}

// everyAudit calls every method of the client on a trail of three entries.
func everyAudit(t *testing.T, c *client.Client) {
	t.Helper()
	ctx := testCtx(t)

	list := must[api.AuditList](t)(c.Audit(ctx, client.AuditFilter{}, 0))
	if len(list.Items) != 3 || list.Items[2].Result != "forbidden" || list.Items[2].Request != "r3" {
		t.Errorf("the trail: %+v", list)
	}

	var export bytes.Buffer
	if err := c.ExportAudit(ctx, client.AuditFilter{}, &export); err != nil {
		t.Error(err)
	}

	offline, err := audit.VerifyExport(t.Context(), &export)
	online := must[api.AuditReport](t)(c.VerifyAudit(ctx))

	if err != nil || len(offline.Problems) > 0 || offline.Entries != 3 || offline.LastHash != online.LastHash ||
		online.Entries != 3 || online.LastHash != list.Items[2].Hash {
		t.Errorf("the export: %+v, %v, the trail: %+v", offline, err, online)
	}

	for e, err := range c.FollowAudit(ctx, client.AuditOptions{Tail: 1}) {
		if err != nil || e.Seq != 3 {
			t.Errorf("followed: %+v, %v", e, err)
		}

		break
	}
}

// TestAuditQueries selects entries, page by page, and refuses what it cannot do.
func TestAuditQueries(t *testing.T) {
	t.Parallel()

	s := serve(t, func(o *server.Options) { o.Trail = openTrail(t, 12) })
	c := s.client(t)
	ctx := testCtx(t)

	for want, f := range map[string]client.AuditFilter{
		"1":                 {Node: "node1"},
		"10":                {Node: "node10"},
		"3 6 9 12":          {Result: api.AuditFailed},
		"3 6 9 12 ":         {Result: "forbidden"},
		"1 2":               {Until: auditNoon.Add(3 * time.Minute), Who: "root"},
		"11 12":             {Since: auditNoon.Add(11 * time.Minute)},
		"5":                 {Request: "r5"},
		"":                  {Verb: "node"},
		"1 2 4 5 7 8 10 11": {Verb: "nodes"},
	} {
		var seqs []string
		for _, e := range must[api.AuditList](t)(c.Audit(ctx, f, 0)).Items {
			seqs = append(seqs, fmt.Sprint(e.Seq))
		}

		if got := strings.Join(seqs, " "); got != strings.TrimSpace(want) {
			t.Errorf("%+v selects %s, want %s", f, got, want)
		}
	}

	_, err := c.Audit(ctx, client.AuditFilter{Result: "faild"}, 0)
	if inventory.KindOf(err) != inventory.KindInvalid || !strings.Contains(fmt.Sprint(err), "failed") {
		t.Errorf("a mistyped result: %v", err)
	}

	newest := must[api.AuditList](t)(c.Audit(ctx, client.AuditFilter{Result: api.AuditFailed}, 2)).Items
	if len(newest) != 2 || newest[0].Seq != 9 || newest[1].Seq != 12 {
		t.Errorf("the newest ones are %+v", newest)
	}

	var pages []string

	for query := "?limit=5"; query != ""; {
		res, text := s.ask(t, "GET", api.PathAudit+query, "")
		if res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", query, text)
		}
		pages = append(pages, fmt.Sprint(strings.Count(text, `"seq"`)))

		_, rest, more := strings.Cut(text, `"continue":"`)
		token, _, _ := strings.Cut(rest, `"`)

		if query = ""; more {
			query = "?limit=5&continue=" + token
		}
	}

	if !slices.Equal(pages, []string{"5", "5", "2"}) {
		t.Errorf("the pages have %v entries", pages)
	}

	for _, query := range []string{
		"tail=0", "tail=1001", "tail=-1", "limit=99999", "since=yesterday", "until=", "who=a&who=b", "continue=x",
		"after=1", "follow=true&continue=1", "tail=1&continue=1", "follow=maybe", "nosuch=1",
	} {
		if res, text := s.ask(t, "GET", api.PathAudit+"?"+query, ""); res.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %d %s", query, res.StatusCode, text)
		}
	}

	_, err = serve(t).client(t).Audit(ctx, client.AuditFilter{}, 0)
	if inventory.KindOf(err) != inventory.KindUnavailable {
		t.Errorf("without a trail: %v", err)
	}
}

// TestAuditIsFollowed yields each selected entry once, over a restart of the server,
// and keeps an idle stream alive.
func TestAuditIsFollowed(t *testing.T) {
	t.Parallel()

	l := openTrail(t, 3)
	s := serve(t, func(o *server.Options) { o.Trail, o.Heartbeat = l, 10*time.Millisecond })

	ctx, cancel := context.WithCancel(testCtx(t))
	defer cancel()

	// Each request comes over a connection of its own, which the test can break.
	transport := &breakable{RoundTripper: dialing(s.socket)}

	c, err := client.New(client.Options{
		URL: s.url, HTTPClient: &http.Client{Transport: transport}, Timeout: 10 * time.Second, Patience: patience,
	})
	if err != nil {
		t.Fatal(err)
	}

	var seqs []uint64

	lost := 0
	o := client.AuditOptions{
		AuditFilter: client.AuditFilter{Who: "root"}, Tail: 1, Lost: func(error) { lost++ },
	}

	for e, err := range c.FollowAudit(ctx, o) {
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}

			break
		}

		switch seqs = append(seqs, e.Seq); e.Seq {
		case 2: // the newest one of root: 3 is a refusal
			transport.breakNow()
			addEntries(t, l, 4, 5)
		case 5:
			addEntries(t, l, 6, 7)
		case 7:
			cancel()
		}
	}

	if !slices.Equal(seqs, []uint64{2, 4, 5, 7}) || lost != 1 {
		t.Errorf("followed %v, with %d outages", seqs, lost)
	}
}

// breakable can break the body of its last answer.
type breakable struct {
	http.RoundTripper
	breakNow func()
}

func (b *breakable) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		b.breakNow = func() { _ = res.Body.Close() }
	}
	return res, err
}

// slowTrail is a trail whose reads last until their context ends.
type slowTrail struct{ *audit.Trail }

func (slowTrail) Read(ctx context.Context, _ audit.Filter, _ func(audit.Entry) error) error {
	<-ctx.Done()
	return ctx.Err()
}

func (slowTrail) Newest(ctx context.Context, _ audit.Filter, _ int) ([]audit.Entry, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (slowTrail) Verify(ctx context.Context) (audit.Report, error) {
	<-ctx.Done()
	return audit.Report{}, ctx.Err()
}

// TestAuditDeadline expects a read of the audit trail that takes long to end with an
// error that says what to do.
func TestAuditDeadline(t *testing.T) {
	t.Parallel()

	s := serve(t, func(o *server.Options) { o.Trail, o.AuditTime = slowTrail{openTrail(t, 1)}, time.Second })

	for _, path := range []string{
		api.PathAudit, api.PathAudit + "?tail=3", api.PathAudit + "?follow=true&tail=3", api.PathAuditCheck,
	} {
		status, text := s.request(t, http.MethodGet, path, "")
		if status != http.StatusServiceUnavailable || !strings.Contains(text, "since and until") {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
}

// prunedTrail is a trail whose oldest entries the retention has removed.
type prunedTrail struct{ *audit.Trail }

func (prunedTrail) Verify(context.Context) (audit.Report, error) {
	return audit.Report{Entries: 1, First: 4, Last: 4, Dropped: []string{"entries 1 to 3 were removed"}}, nil
}

// TestAuditNamesTheDropped: the check of the trail names what the retention removed.
func TestAuditNamesTheDropped(t *testing.T) {
	t.Parallel()

	s := serve(t, func(o *server.Options) { o.Trail = prunedTrail{openTrail(t, 1)} })

	_, text := s.request(t, http.MethodGet, api.PathAuditCheck, "")
	if !strings.Contains(text, "entries 1 to 3 were removed") {
		t.Error(text)
	}
}
