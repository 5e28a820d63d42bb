// SPDX-License-Identifier: Apache-2.0

package daemon

import (
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

// TestOutdated: variables, a request and the folder of playbooks make a node outdated,
// which apply and reapply mend, also across a restart.
func TestOutdated(t *testing.T) {
	t.Parallel()

	s := begin(t)
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
