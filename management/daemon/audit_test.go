// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/audit"
	"github.com/contiv/cluster/management/client"
)

// TestAuditTrail: an accepted change is in the trail before its answer, a refusal soon
// after, and both survive a restart in one chain.
func TestAuditTrail(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.report("a")

	entries := func(f audit.Filter) (found []string) {
		t.Helper()
		s.must(s.readAudit(f, func(e audit.Entry) error {
			found = append(found, strings.Join([]string{e.Verb, strings.Join(e.Targets, ","), e.Job, e.Result}, " "))

			if e.Who == "" || e.Instance == "" || e.Time.IsZero() {
				t.Errorf("%+v", e)
			}
			return nil
		}))

		return found
	}

	j := s.runJob(api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}})

	want := fmt.Sprintf("jobs.submit.commission a-1 %s done", j.ID)
	if got := entries(audit.Filter{Job: j.ID, Verb: "jobs.submit"}); !slices.Equal(got, []string{want}) {
		t.Errorf("got %q, want %q", got, want)
	}

	_, err := s.Client.Submit(s.ctx(), api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"nosuch-1"}})
	if err == nil {
		t.Fatal("an unknown node is commissioned")
	}

	before := len(entries(audit.Filter{}))

	s.restart()

	got := entries(audit.Filter{Target: "nosuch-1"})
	if len(got) != 1 || got[0] != "jobs.submit.commission nosuch-1  not-found" {
		t.Errorf("the refusal is %q", got)
	}

	r, err := s.auditReader().Verify(s.ctx())
	if err != nil || len(r.Problems) > 0 || r.Lost > 0 || r.Entries < uint64(before) || r.First != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestAuditOrigin: each record says from where its request came. A flood of requests
// without credentials makes few entries, which are found through the API.
func TestAuditOrigin(t *testing.T) {
	t.Parallel()
	s := begin(t, "plain_http_role: viewer")

	rack := "r1"
	_, err := s.PatchNode(s.ctx(), "nosuch-1", api.NodePatch{Labels: map[string]*string{"rack": &rack}})

	refused, ok := errors.AsType[*inventory.Error](err)
	if !ok || refused.Request == "" {
		t.Fatalf("%+v", err)
	}

	one := func(f client.AuditFilter) api.AuditEntry {
		t.Helper()

		list, err := s.Client.Audit(s.ctx(), f, 0)
		if s.must(err); len(list.Items) != 1 {
			t.Fatalf("%+v selects %+v", f, list.Items)
		}
		return list.Items[0]
	}

	e := one(client.AuditFilter{Request: refused.Request})
	if e.Verb != "nodes.patch" || e.Result != "not-found" || e.Via != "socket" ||
		e.From != fmt.Sprint("uid ", os.Getuid()) ||
		!slices.Equal(e.Targets, []string{"nosuch-1"}) {
		t.Errorf("%+v", e)
	}

	if status, text := s.post("/commission/nodes", `{"nodes":["a-1"]}`); status != 403 {
		t.Errorf("%d %s", status, text)
	}

	e = one(client.AuditFilter{Result: string(inventory.KindForbidden)})
	if e.Via != "plain_http" || e.Who != "http:127.0.0.1" || e.Verb != "requests.refuse" ||
		!slices.Equal(e.Targets, []string{"POST /commission/nodes"}) {
		t.Errorf("%+v", e)
	}

	// The manager's own decisions have no origin.
	list, err := s.Client.Audit(s.ctx(), client.AuditFilter{Who: access.Manager}, 0)
	s.must(err)

	for _, e := range list.Items {
		if e.From != "" || e.Via != "" || e.Request != "" || e.Credential != "" {
			t.Errorf("%+v", e)
		}
	}

	const flood = 200

	for range flood {
		req, err := http.NewRequestWithContext(s.ctx(), http.MethodGet, s.url+api.PathNodes, nil)
		s.must(err)
		req.Header.Set("Authorization", "Bearer guess")

		if status, _ := s.do(req); status != http.StatusUnauthorized {
			t.Fatal(status)
		}
	}

	s.restart() // which ends the count

	list, err = s.Client.Audit(s.ctx(), client.AuditFilter{Who: "anonymous"}, 0)
	s.must(err)

	refusals := uint64(0)
	for _, e := range list.Items {
		refusals += max(1, e.Count)
	}

	if len(list.Items) > 5 || refusals != flood {
		t.Errorf("%d entries for %d refusals: %+v", len(list.Items), refusals, list.Items)
	}

	if r, err := s.Client.VerifyAudit(s.ctx()); err != nil || len(r.Problems) > 0 || r.Lost > 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// auditReader reads the trail in the store, beside the daemon.
func (s *site) auditReader() audit.Reader {
	s.t.Helper()

	// It stores the refusals that wait in memory for up to a second.
	_, err := s.Client.VerifyAudit(s.ctx())
	s.must(err)

	t, err := OpenStoreTool(s.ctx(), s.options())
	s.must(err)
	s.t.Cleanup(func() { _ = t.Close() })

	r, err := t.Trail(s.ctx())
	s.must(err)

	return r
}

func (s *site) readAudit(f audit.Filter, do func(audit.Entry) error) error {
	s.t.Helper()
	return s.auditReader().Read(s.ctx(), f, do)
}
