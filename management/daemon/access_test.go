// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/state"
)

// TestPlainHTTPReadsOnly expects plain HTTP to change nothing by default, and a
// warning if the configuration makes every local program an admin.
func TestPlainHTTPReadsOnly(t *testing.T) {
	t.Parallel()
	s := begin(t, "plain_http_role: viewer")

	if code, text := s.get(api.LegacyConfig); code != http.StatusOK {
		t.Errorf("a read: %d %s", code, text)
	}

	code, text := s.post(api.LegacyConfig, `{"config":{"playbooks":"/tmp/mine"}}`)
	if code != http.StatusForbidden || !strings.Contains(text, "plain_http_role") {
		t.Errorf("a change: %d %s", code, text)
	}

	warned := func() bool {
		return slices.ContainsFunc(s.health(t.Context()).Warnings, func(w string) bool {
			return strings.Contains(w, "plain_http_role is admin")
		})
	}
	if warned() {
		t.Error("a viewer is warned about")
	}

	s.down()
	s.write("plain_http_role: admin")
	s.up()

	if !warned() {
		t.Error("an admin without authentication is not warned about")
	}
}

// scoped returns a client with a token of an operator within the scope.
func (s *site) scoped(scope *api.Scope) *client.Client {
	s.t.Helper()

	made, err := s.CreateToken(s.ctx(), api.TokenRequest{Role: "operator", Scope: scope})
	s.must(err)

	c, err := client.New(client.Options{Socket: s.dir + "/s", Token: made.Token})
	s.must(err)

	return c
}

// TestScopedDefaultGroup commissions without a group within a scope that selects by it: the
// rules choose the group as for everybody, and one outside the scope is refused.
func TestScopedDefaultGroup(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.report("a b")

	r := api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}}

	// There is no master, so the default is one.
	for _, selector := range []string{"group!=service-master", "!group"} {
		_, err := s.scoped(&api.Scope{Selector: selector}).Submit(s.ctx(), r)
		checkError(t, err, inventory.KindForbidden, "in service-master, a-1 would leave the scope")
	}

	jobs, err := s.Client.Jobs(s.ctx(), client.JobFilter{})
	s.must(err)

	if jobs.Total != 0 || s.status("a-1") != "Unallocated" {
		t.Fatalf("a refusal has left %+v", jobs.Items)
	}

	if j := s.runJob(api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"b-1"}}); j.Status != api.Complete {
		t.Fatalf("%+v", j)
	}

	c := s.scoped(&api.Scope{Selector: "group!=service-master"})
	j, err := c.Submit(s.ctx(), r)
	s.must(err)

	j, err = c.WaitJob(s.ctx(), j.ID)
	s.must(err)

	if j.Status != api.Complete || j.Group != inventory.GroupWorker {
		t.Errorf("%+v", j)
	}
}

// TestScopedOperator takes a node through its life as an operator who sees it alone.
func TestScopedOperator(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.report("a b c")

	for _, nodes := range [][]string{{"a-1"}, {"b-1", "c-1"}} { // a master, then workers
		if j := s.runJob(api.JobRequest{Verb: inventory.VerbCommission, Nodes: nodes}); j.Status != api.Complete {
			t.Fatalf("%+v", j)
		}
	}

	rack := "r1"
	_, err := s.PatchNode(s.ctx(), "b-1", api.NodePatch{Labels: map[string]*string{"rack": &rack}})
	s.must(err)

	for what, c := range map[string]*client.Client{
		"selector": s.scoped(&api.Scope{Selector: "rack=r1"}),
		"both":     s.scoped(&api.Scope{Groups: []string{inventory.GroupWorker}, Selector: "rack=r1"}),
	} {
		l, err := c.Nodes(s.ctx(), client.NodeFilter{})
		s.must(err)

		if l.Total != 1 || l.Items[0].Name != "b-1" {
			t.Errorf("%s: the nodes: %+v", what, l.Items)
		}

		jobs, err := c.Jobs(s.ctx(), client.JobFilter{})
		s.must(err)

		// The commission of both workers is a job of a node outside, too.
		if slices.ContainsFunc(jobs.Items, func(j api.Job) bool { return !slices.Equal(j.Nodes, []string{"b-1"}) }) {
			t.Errorf("%s: the jobs: %+v", what, jobs.Items)
		}

		// A node outside is answered as one that does not exist.
		for _, verb := range []inventory.Verb{inventory.VerbDecommission, inventory.VerbUpdate} {
			_, err = c.Submit(s.ctx(), api.JobRequest{Verb: verb, Nodes: []string{"b-1", "c-1"}})
			checkError(t, err, inventory.KindNotFound, "no such node: c-1")
		}

		_, err = c.Forget(s.ctx(), api.Forget{Nodes: []string{"c-1"}, Force: true, Reason: "x"})
		checkError(t, err, inventory.KindNotFound, "no such node: c-1")
		_, err = c.Node(s.ctx(), "c-1")
		checkError(t, err, inventory.KindNotFound, `there is no node "c-1"`)
		_, err = c.SetVars(s.ctx(), client.ScopeNode("c-1"), api.Vars{"x": 1})
		checkError(t, err, inventory.KindNotFound, `there is no node "c-1"`)
		_, err = c.SetVars(s.ctx(), client.ScopeGlobal, api.Vars{"x": 1})
		checkError(t, err, inventory.KindForbidden, "concerns the whole manager")
		_, err = c.Config(s.ctx())
		checkError(t, err, inventory.KindForbidden, "concerns the whole manager")

		// A worker needs a master, which the rules find outside of the scope.
		j, err := c.Submit(s.ctx(), api.JobRequest{Verb: inventory.VerbUpdate, Nodes: []string{"b-1"}})
		s.must(err)
		j, err = c.WaitJob(s.ctx(), j.ID)
		s.must(err)

		if j.Status != api.Complete {
			t.Errorf("%s: %+v", what, j)
		}
	}

	// The workers need the master, and a refusal names none of them, in its remedies neither.
	_, err = s.scoped(&api.Scope{Groups: []string{inventory.GroupMaster}}).
		Submit(s.ctx(), api.JobRequest{Verb: inventory.VerbDecommission, Nodes: []string{"a-1"}})
	checkError(t, err, inventory.KindRefused, "without a-1, "+state.HiddenNode)

	if e, ok := errors.AsType[*inventory.Error](err); ok {
		if text := fmt.Sprintf("%+v", *e); strings.Contains(text, "b-1") || strings.Contains(text, "c-1") {
			t.Errorf("a refusal names nodes outside of the scope: %s", text)
		}
	}

	// The operator of a group sees the end of the job that takes its node out of it.
	c := s.scoped(&api.Scope{Groups: []string{inventory.GroupWorker}})
	j, err := c.Submit(s.ctx(), api.JobRequest{Verb: inventory.VerbDecommission, Nodes: []string{"b-1"}})
	s.must(err)

	if j, err = c.WaitJob(s.ctx(), j.ID); err != nil || j.Status != api.Complete {
		t.Errorf("the decommission: %+v, %v", j, err)
	}

	_, err = c.Node(s.ctx(), "b-1")
	checkError(t, err, inventory.KindNotFound)

	// Without the group there is no such scope.
	_, err = s.CreateToken(s.ctx(), api.TokenRequest{Role: "viewer", Scope: &api.Scope{Groups: []string{"nosuch"}}})
	checkError(t, err, inventory.KindNotFound, `there is no group "nosuch"`)
}

// TestTokenCreatorsAreAdmins expects no operator to create a token, of any role.
func TestTokenCreatorsAreAdmins(t *testing.T) {
	t.Parallel()
	s := begin(t)
	c := s.scoped(nil)

	for _, role := range []string{"viewer", "operator", "admin"} {
		_, err := c.CreateToken(s.ctx(), api.TokenRequest{Role: role})
		checkError(t, err, inventory.KindForbidden, "admin")
	}
}
