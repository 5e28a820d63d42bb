// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"slices"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// autoCommission are two policies for the same nodes: one master, then workers.
const autoCommission = `policies:
  commission:
    masters: {match: "label in (a,b,c)", group: service-master, maximum: 1, priority: 10, quiet: 1s}
    workers: {match: "label in (a,b,c)", group: service-worker, maximum: 9, quiet: 1s}
`

// TestAutoCommission: new nodes are commissioned by two policies once these are on, each
// node once, also across a restart. Another node stays as it is.
func TestAutoCommission(t *testing.T) {
	t.Parallel()

	s := begin(t, autoCommission)
	s.report("a b c x")

	c := s.Client.Newest()

	tested, err := c.TestPolicy(s.ctx(), "masters", api.PolicyTest{})
	if err != nil || tested.On || len(tested.Outlooks) != 1 || tested.Outlooks[0].Node != "a-1" ||
		tested.Outlooks[0].Group != "service-master" {
		t.Errorf("%v, %+v", err, tested)
	}

	for _, name := range []string{"masters", "workers"} {
		if _, err := c.EnablePolicy(s.ctx(), name, api.PolicyEnable{Reason: "wired"}); err != nil {
			t.Fatal(err)
		}
	}

	group := func(name string) string {
		n, err := c.Node(s.ctx(), name)
		s.must(err)

		if n.Status != inventory.Allocated {
			return ""
		}
		return n.Group
	}

	s.eventually("a master is in service", func() bool { return group("a-1") == "service-master" })
	s.restart()

	c = s.Client.Newest()

	s.eventually("workers are in service", func() bool {
		return group("b-1") == "service-worker" && group("c-1") == "service-worker"
	})

	jobs, err := c.Jobs(s.ctx(), client.JobFilter{})
	s.must(err)

	var done []string

	for _, j := range jobs.Items {
		if j.Verb != inventory.VerbCommission || len(j.Nodes) != 1 ||
			j.Actor != "policy:masters" && j.Actor != "policy:workers" {
			t.Errorf("job %s is a %s of %v by %s", j.ID, j.Verb, j.Nodes, j.Actor)
			continue
		}

		done = append(done, j.Nodes[0])
	}

	slices.Sort(done)

	if !slices.Equal(done, []string{"a-1", "b-1", "c-1"}) || s.status("x-1") != "Unallocated" {
		t.Errorf("commissioned %v; x-1 is %s", done, s.status("x-1"))
	}

	var p api.Policy

	s.eventually("its decisions are carried out", func() bool {
		p, err = c.Policy(s.ctx(), "workers")
		s.must(err)
		return len(p.Decisions) == 2 && p.Decisions[0].Phase == "done" && p.Decisions[1].Phase == "done"
	})

	if !p.On || p.Turned == nil || p.Turned.Reason != "wired" || len(p.Decisions[0].Evidence) != 3 ||
		p.Decisions[0].Group != "service-worker" || p.Decisions[0].Job == "" {
		t.Errorf("%+v", p)
	}
}
