// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// outdated returns the names of the outdated nodes.
func (s *site) outdated() []string {
	s.t.Helper()

	list, err := s.Client.Newest().Nodes(s.ctx(), client.NodeFilter{Selector: "outdated=true"})
	s.must(err)

	var names []string
	for _, n := range list.Items {
		names = append(names, n.Name)
	}

	return names
}

// beginLooking is begin with frequent looks at the folder of playbooks.
func beginLooking(t *testing.T) *site {
	t.Helper()

	s := prepare(t)
	s.tune = func(o *Options) { o.PlaybooksEvery = 200 * time.Millisecond }
	s.up()
	t.Cleanup(s.down)

	return s
}

// TestOutdated: variables, a request and the folder of playbooks make a node outdated,
// which apply and reapply mend, also across a restart.
func TestOutdated(t *testing.T) {
	t.Parallel()

	s := beginLooking(t)
	s.report("a b")

	run := func(r api.JobRequest) api.Job {
		t.Helper()

		j := s.runJob(r)
		if j.Status != api.Complete {
			t.Fatalf("%s: %s: %s", j.Verb, j.Status, j.Message)
		}
		return j
	}
	want := func(when string, names ...string) {
		t.Helper()

		if got := s.outdated(); !slices.Equal(got, names) {
			t.Errorf("%s: outdated are %v, want %v", when, got, names)
		}
	}
	a := []string{"a-1"}

	run(api.JobRequest{Verb: inventory.VerbCommission, Nodes: a})
	want("commissioned")

	_, err := s.Client.SetVars(s.ctx(), client.ScopeGlobal, api.Vars{"env": "prod"})
	s.must(err)
	want("a variable", "a-1")

	e, err := s.Client.Explain(s.ctx(), "a-1")
	if err != nil || !strings.HasPrefix(e.Summary, "it is in service; outdated (variables)") ||
		!strings.Contains(e.Findings[0].Message, "variables have changed: env (global), since ") {
		t.Errorf("%+v, %v", e, err)
	}

	s.restart()
	want("after a restart", "a-1")
	run(api.JobRequest{Verb: inventory.VerbApply, Nodes: a})
	want("applied")

	run(api.JobRequest{Verb: inventory.VerbApply, Nodes: a, ExtraVars: []byte(`{"env": "test"}`)})
	want("a variable of the request", "a-1")

	h, err := s.Health(s.ctx())
	if err != nil || h.Outdated != 1 || h.Unknown != 0 {
		t.Errorf("%+v, %v", h, err)
	}

	run(api.JobRequest{Verb: inventory.VerbReapply, Nodes: a})
	want("reapplied")

	s.must(os.WriteFile(filepath.Join(s.dir, "playbooks", "more.yml"), []byte("# more\n"), 0o600))
	s.eventually("the folder is looked at", func() bool { return slices.Equal(s.outdated(), a) })

	n, err := s.Node(s.ctx(), "a-1")
	if err != nil || !slices.Equal(n.Differs, []inventory.Part{inventory.PartPlaybooks}) {
		t.Errorf("%+v, %v", n, err)
	}

	// A job that has pinned the folder leaves no node outdated until the next look.
	run(api.JobRequest{Verb: inventory.VerbApply, Nodes: a})
	s.eventually("applied with the folder of now", func() bool { return len(s.outdated()) == 0 })

	n, err = s.Node(s.ctx(), "a-1")
	if err != nil || n.Configured == nil || time.Since(n.Configured.Time) > time.Minute {
		t.Errorf("%+v, %v", n, err)
	}
}

// TestRequestVars: what only a request had set is shown as that. A plan and a job warn before they
// take it back, and the remedy of the explanation keeps it.
func TestRequestVars(t *testing.T) {
	t.Parallel()

	s := begin(t)
	s.report("a")

	a := []string{"a-1"}
	_, err := s.Client.SetVars(s.ctx(), client.ScopeGlobal, api.Vars{"shopd": "1.3", "color": "red"})
	s.must(err)

	s.runJob(api.JobRequest{Verb: inventory.VerbCommission, Nodes: a})
	upgraded := s.runJob(api.JobRequest{
		Verb: inventory.VerbMaintenance, Nodes: a, ExtraVars: []byte(`{"shopd": "2.0", "color": "red"}`),
	})

	// One of them is what it would be without the request.
	n, err := s.Node(s.ctx(), "a-1")
	if err != nil || !slices.Equal(n.RequestVars, []string{"shopd"}) {
		t.Fatalf("%+v, %v", n, err)
	}

	warning := "a-1: it takes back shopd, which only the request of job " + upgraded.ID + " had set"

	p, err := s.Client.Plan(s.ctx(), api.JobRequest{Verb: inventory.VerbApply, Nodes: a})
	if err != nil || !slices.Contains(p.Warnings, warning) {
		t.Errorf("%+v, %v", p.Warnings, err)
	}

	preview := func(verb inventory.Verb, extra string) []string {
		r, err := s.Client.PreviewRollout(s.ctx(), api.RolloutRequest{
			Nodes: a, Spec: api.RolloutSpec{Action: verb}, ExtraVars: []byte(extra),
		})
		s.must(err)
		return r.Warnings
	}

	if got := preview(inventory.VerbApply, ""); !slices.Equal(got, []string{warning}) {
		t.Errorf("the preview of a rollout warns %q", got)
	}

	if got := slices.Concat(
		preview(inventory.VerbApply, `{"shopd": "2.1"}`), preview(inventory.VerbVerify, ""),
	); len(got) > 0 {
		t.Errorf("the preview of a rollout that takes nothing back warns %q", got)
	}

	p, err = s.Client.Plan(s.ctx(), api.JobRequest{
		Verb: inventory.VerbApply, Nodes: a, ExtraVars: []byte(`{"shopd": "2.1"}`),
	})
	if err != nil || len(p.Warnings) > 0 {
		t.Errorf("%+v, %v", p.Warnings, err)
	}

	s.restart()

	e, err := s.Client.Explain(s.ctx(), "a-1")
	if err != nil || len(e.Findings) != 1 || len(e.Findings[0].Actions) != 1 {
		t.Fatalf("%+v, %v", e, err)
	}

	// Its own request, as another client sends it.
	action := e.Findings[0].Actions[0]
	if action.Method != http.MethodPatch || action.Path != "/v1/vars/nodes/a-1" ||
		string(action.Body) != `{"shopd":"2.0"}` {
		t.Errorf("%+v", action)
	}

	_, err = s.Client.PatchVars(s.ctx(), client.ScopeNode("a-1"), api.Vars{"shopd": "2.0"})
	s.must(err)

	if n, err = s.Node(s.ctx(), "a-1"); err != nil || n.Outdated == nil || *n.Outdated || len(n.RequestVars) > 0 {
		t.Errorf("%+v, %v", n, err)
	}

	if j := s.runJob(api.JobRequest{Verb: inventory.VerbApply, Nodes: a}); len(j.Warnings) > 0 {
		t.Errorf("%v", j.Warnings)
	}
}

// TestRequestVarsOfFolder: what the playbooks set by themselves is not taken back, in host_vars over all else, and in
// group_vars below the variables of the manager.
func TestRequestVarsOfFolder(t *testing.T) {
	t.Parallel()

	s := beginLooking(t)
	s.report("a")

	a := []string{"a-1"}
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(s.dir, "playbooks", name)
		s.must(os.MkdirAll(filepath.Dir(path), 0o700))
		s.must(os.WriteFile(path, []byte(text), 0o600))
	}
	check := func(when, remedy string, names ...string) {
		t.Helper()

		var n api.Node

		s.eventually(when, func() bool {
			var err error
			n, err = s.Node(s.ctx(), "a-1")
			s.must(err)
			return slices.Equal(n.RequestVars, names)
		})

		p, err := s.Client.Plan(s.ctx(), api.JobRequest{Verb: inventory.VerbApply, Nodes: a})
		if err != nil || len(names) == 0 && len(p.Warnings) > 0 || len(names) > 0 &&
			!strings.Contains(strings.Join(p.Warnings, ""), "it takes back "+strings.Join(names, ", ")+", which") {
			t.Errorf("%s: warnings %q, %v", when, p.Warnings, err)
		}

		e, err := s.Client.Explain(s.ctx(), "a-1")
		if err != nil || !strings.HasPrefix(e.Findings[0].Remedy, remedy) {
			t.Errorf("%s: %+v, %v", when, e.Findings, err)
		}
	}

	write("host_vars/a-1.yml", "color: blue\n")
	_, err := s.Client.SetVars(s.ctx(), client.ScopeGlobal, api.Vars{"size": 1})
	s.must(err)
	s.runJob(api.JobRequest{Verb: inventory.VerbCommission, Nodes: a})

	s.runJob(api.JobRequest{
		Verb: inventory.VerbApply, Nodes: a, ExtraVars: []byte(`{"color": "green", "shopd": "2.0", "size": 2}`),
	})
	check("at first", "keep color by setting it in host_vars/a-1.yml", "color", "shopd", "size")

	write("host_vars/a-1.yml", "color: green\n")
	check("in host_vars", "keep shopd, size by setting it for the node", "shopd", "size")

	// A variable of the manager wins over group_vars.
	write("group_vars/service-master.yml", "shopd: '2.0'\nsize: 2\n")
	check("in group_vars", "keep size by setting it for the node", "size")

	write("host_vars/a-1.yml", "color: green\nsize: 2\n")
	check("all", "configure it again")

	// Nothing is outdated where the request sets what the playbooks set.
	s.runJob(
		api.JobRequest{Verb: inventory.VerbApply, Nodes: a, ExtraVars: []byte(`{"color": "green", "shopd": "2.0"}`)},
	)
	s.eventually("up to date", func() bool { return len(s.outdated()) == 0 })
}

// TestOutdatedByMasters: whoever refers to the masters is outdated as soon as they are others, and
// the explanation names those that came and went. An apply mends that.
func TestOutdatedByMasters(t *testing.T) {
	t.Parallel()

	s := begin(t)
	s.report("a b c w")

	run := func(verb inventory.Verb, group string, names ...string) {
		t.Helper()

		if j := s.runJob(api.JobRequest{Verb: verb, Nodes: names, Group: group}); j.Status != api.Complete {
			t.Fatalf("%s: %s: %s", verb, j.Status, j.Message)
		}
	}
	want := func(when, text string, names ...string) {
		t.Helper()

		if got := s.outdated(); !slices.Equal(got, names) {
			t.Errorf("%s: outdated are %v, want %v", when, got, names)
		}

		n, err := s.Node(s.ctx(), "w-1")
		if err != nil || !slices.Equal(n.Differs, []inventory.Part{inventory.PartMasters}) && text != "" {
			t.Errorf("%s: it differs by %v, %v", when, n.Differs, err)
		}

		e, err := s.Client.Explain(s.ctx(), "w-1")
		if err != nil || text != "" && !strings.Contains(e.Findings[0].Message, text) {
			t.Errorf("%s: %+v, %v", when, e.Findings, err)
		}
	}

	run(inventory.VerbCommission, inventory.GroupMaster, "a-1", "b-1")
	run(inventory.VerbCommission, inventory.GroupWorker, "w-1")
	want("commissioned", "")

	run(inventory.VerbApply, "", "a-1")
	want("a master is served in place", "")

	run(inventory.VerbDecommission, "", "b-1")
	want("a master left", "the masters have changed: without b-1", "a-1", "w-1")

	run(inventory.VerbApply, "", "a-1", "w-1")
	want("applied", "")

	run(inventory.VerbCommission, inventory.GroupMaster, "c-1")
	want("a master came", "the masters have changed: with c-1", "a-1", "w-1")
	s.restart()
	want("after a restart", "the masters have changed: with c-1", "a-1", "w-1")

	run(inventory.VerbApply, "", "a-1", "w-1")
	want("applied again", "")

	// Templates read hostvars of the masters as well.
	for name, scope := range map[string]client.Scope{
		"group": client.ScopeGroup(inventory.GroupMaster), "node": client.ScopeNode("a-1"),
	} {
		if _, err := s.PatchVars(s.ctx(), scope, api.Vars{"port_" + name: 8080}); err != nil {
			t.Fatal(err)
		}

		want("a variable of the "+name, "variables of the masters have changed", "a-1", "c-1", "w-1")
		run(inventory.VerbApply, "", "a-1", "c-1")
		want("the masters are served", "variables of the masters have changed", "w-1")
		run(inventory.VerbApply, "", "w-1")
		want("all are served", "")
	}
}
