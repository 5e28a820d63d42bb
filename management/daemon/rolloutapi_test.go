// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// TestRolloutWaitsForWindow: a rollout begins no node outside of its window, says so, and goes
// on when the window is gone. Bad requests start nothing.
func TestRolloutWaitsForWindow(t *testing.T) {
	t.Parallel()
	s := begin(t)
	nodes, _ := s.fleet("a b")

	for what, bad := range map[string]api.RolloutRequest{
		"canary":          {Spec: api.RolloutSpec{Action: inventory.VerbApply, Canary: 3}, Nodes: nodes},
		"max_unavailable": {Spec: api.RolloutSpec{Action: inventory.VerbApply, MaxUnavailable: "0"}, Nodes: nodes},
		"\"101%\"":        {Spec: api.RolloutSpec{Action: inventory.VerbApply, MaxUnavailable: "101%"}, Nodes: nodes},
		"character 9":     {Spec: api.RolloutSpec{Action: inventory.VerbApply, Selector: "rack in ("}},
	} {
		_, err := s.Client.StartRollout(s.ctx(), bad)
		if inventory.KindOf(err) != inventory.KindInvalid || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}

	_, err := s.Client.PatchConfig(s.ctx(), map[string]any{"windows": []any{seldom(inventory.GroupMaster)}})
	s.must(err)

	request := api.RolloutRequest{
		Spec: api.RolloutSpec{
			Action: inventory.VerbApply, Selector: "group=" + inventory.GroupMaster,
			Gate: &api.RolloutGate{SkipVerify: true},
		},
	}

	preview, err := s.Client.PreviewRollout(s.ctx(), request)
	s.must(err)

	if len(preview.Nodes) != 2 || !strings.Contains(preview.Nodes[0].Window, "maintenance window seldom") {
		t.Errorf("%+v", preview)
	}

	started, err := s.Client.StartRollout(s.ctx(), request)
	s.must(err)

	held := func(r api.Rollout) bool { return !strings.Contains(r.Waits, "seldom") }
	if r, err := s.Client.WatchRollout(s.ctx(), started.ID, held); err != nil || r.Count.Waiting != 2 {
		t.Errorf("%+v, %v", r, err)
	}

	_, err = s.Client.PatchConfig(s.ctx(), map[string]any{"windows": nil})
	s.must(err)

	done, err := s.Client.WatchRollout(s.ctx(), started.ID, func(api.Rollout) bool { return true })
	s.must(err)

	if done.Status != "Done" || done.Count.Done != 2 {
		t.Errorf("%+v", done)
	}

	why, err := s.Client.ExplainJob(s.ctx(), done.Nodes[0].Job)
	s.must(err)

	if len(why.Findings) == 0 || !strings.Contains(why.Findings[0].Message, "rollout "+started.ID) {
		t.Errorf("%+v", why)
	}
}
