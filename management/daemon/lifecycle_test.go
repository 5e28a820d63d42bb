// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// TestLifecycleIsWatched: jobs that succeed and fail, on any of two instances, break the lifecycle nowhere. A status
// that is written past the manager shows on both, by its metric and in its health.
func TestLifecycleIsWatched(t *testing.T) {
	t.Parallel()

	sites, _ := instances(t, "first", "second")
	first, other := sites[0], sites[1]

	first.up()
	t.Cleanup(first.down)
	other.copyKey(first)
	other.up()
	t.Cleanup(other.down)

	violations := func(s *site) float64 { return value(s.scrape(), "clusterm_lifecycle_violations_total") }
	// judged waits until an instance has judged all that happened before the call.
	judged := func(s *site) {
		s.must(s.store.Sync(s.ctx()))
		s.judge.Await(s.ctx())
		s.judge.Await(s.ctx())
	}

	first.report("a b c")

	commission := api.JobRequest{
		Verb:  inventory.VerbCommission,
		Nodes: []string{"a-1", "b-1"},
		Group: inventory.GroupMaster,
	}
	first.runJob(commission)
	first.runJob(api.JobRequest{Verb: inventory.VerbVerify, Nodes: []string{"a-1"}})
	other.runJob(api.JobRequest{Verb: inventory.VerbDecommission, Nodes: []string{"b-1"}})

	commission.Nodes, commission.ExtraVars = []string{"c-1"}, []byte(`{"fails_on":"c-1"}`)
	if j := other.runJob(commission); j.Status != api.Errored {
		t.Errorf("%+v", j)
	}

	for _, s := range sites {
		judged(s)

		if n := violations(s); n != 0 || s.judge.Warning() != "" {
			t.Errorf("%s: %v violations: %q", s.identity.Node, n, s.judge.Warning())
		}

		s.breaksLifecycle = true
	}

	key := first.etcd.Prefix + "/v/nodes/a-1"
	stored, err := first.etcd.Get(first.ctx(), key)
	first.must(err)

	var raw map[string]any
	first.must(json.Unmarshal(stored.Kvs[0].Value, &raw))

	if raw["status"] != string(inventory.Allocated) {
		t.Fatalf("%v", raw)
	}

	raw["status"] = inventory.Decommissioned
	changed, err := json.Marshal(raw)
	first.must(err)
	first.must(second(first.etcd.Put(first.ctx(), key, string(changed))))

	for _, s := range sites {
		s.eventually("the violation is counted", func() bool { return violations(s) == 1 })

		h, err := s.Health(s.ctx())
		if err != nil || !slices.ContainsFunc(h.Warnings, func(w string) bool {
			return strings.Contains(w, "a-1: it went from \"Allocated\" to \"Decommissioned\"")
		}) {
			t.Errorf("%q, %v", h.Warnings, err)
		}

		if !strings.Contains(s.log.String(), "against the lifecycle") {
			t.Error("the log does not have it")
		}

		// It is counted once.
		judged(s)

		if n := violations(s); n != 1 {
			t.Errorf("%v violations", n)
		}
	}
}
