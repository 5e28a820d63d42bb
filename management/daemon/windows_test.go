// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// seldom is a window that opens half a year from now.
func seldom(group string) map[string]any {
	return map[string]any{
		"name": "seldom", "cron": fmt.Sprintf("0 0 1 %d *", (time.Now().Month()+5)%12+1), "duration": "1h",
		"groups": []any{group},
	}
}

// TestWindows: windows come from the settings, and a job outside of them waits and says
// until when. A wrong window changes nothing.
func TestWindows(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.report("a")
	s.runJob(api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}, Group: inventory.GroupMaster})

	_, err := s.Client.PatchConfig(s.ctx(), map[string]any{"windows": []any{seldom(inventory.GroupMaster)}})
	s.must(err)

	wrong := seldom(inventory.GroupMaster)
	wrong["cron"] = "0 2 30 2 *"

	_, err = s.Client.PatchConfig(s.ctx(), map[string]any{"windows": []any{seldom(inventory.GroupMaster), wrong}})
	if inventory.KindOf(err) != inventory.KindInvalid || !strings.Contains(err.Error(), "windows: window 2") {
		t.Errorf("a wrong window: %v", err)
	}

	windows, err := s.Client.Windows(s.ctx())
	s.must(err)

	if len(windows.Windows) != 1 || windows.Windows[0].Open || windows.Windows[0].Nodes != 1 ||
		!windows.Windows[0].Opens.After(time.Now()) {
		t.Errorf("%+v", windows)
	}

	held, err := s.Client.Submit(s.ctx(), api.JobRequest{Verb: inventory.VerbMaintenance, Nodes: []string{"a-1"}})
	s.must(err)

	const reason = "a-1 is outside of the maintenance window seldom, which opens on"
	if !strings.Contains(held.WaitReason, reason) {
		t.Errorf("it waits: %q", held.WaitReason)
	}

	why, err := s.Client.ExplainJob(s.ctx(), held.ID)
	s.must(err)

	about := func(f api.Finding) bool { return f.About == "window" && strings.Contains(f.Message, "seldom") }
	if !strings.Contains(why.Summary, reason) || !slices.ContainsFunc(why.Findings, about) {
		t.Errorf("%+v", why)
	}

	node, err := s.Client.Explain(s.ctx(), "a-1")
	s.must(err)

	if !slices.ContainsFunc(node.Findings, about) {
		t.Errorf("%+v", node.Findings)
	}

	done := s.runJob(api.JobRequest{
		Verb:  inventory.VerbMaintenance,
		Nodes: []string{"a-1"},
		JobOptions: inventory.JobOptions{
			SharedOptions: inventory.SharedOptions{OverrideWindow: true, Reason: "it burns"},
		},
	})
	if done.Status != "Complete" || !done.OverrideWindow {
		t.Errorf("%+v", done)
	}

	cancelled, err := s.Client.Cancel(s.ctx(), held.ID)
	s.must(err)

	if cancelled.Status != "Cancelled" {
		t.Errorf("%+v", cancelled)
	}
}

// TestFreeze: a freeze holds every change, survives a restart, and ends with a word of an
// operator.
func TestFreeze(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.report("a")

	frozen, err := s.Client.SetFreeze(s.ctx(), api.FreezeRequest{Reason: "an audit"})
	s.must(err)

	if !frozen.Active || frozen.Until != nil {
		t.Errorf("%+v", frozen)
	}

	past := time.Now().Add(-time.Minute)
	for _, wrong := range []api.FreezeRequest{{}, {Until: &past, Reason: "late"}} {
		if _, err := s.Client.SetFreeze(s.ctx(), wrong); inventory.KindOf(err) != inventory.KindInvalid {
			t.Errorf("%+v: %v", wrong, err)
		}
	}

	request := api.JobRequest{Verb: inventory.VerbCommission, Nodes: []string{"a-1"}, Group: inventory.GroupMaster}
	held, err := s.Client.Submit(s.ctx(), request)
	s.must(err)

	if !strings.Contains(held.WaitReason, "froze all changes until it is lifted: an audit") {
		t.Errorf("it waits: %q", held.WaitReason)
	}

	s.restart()

	again, err := s.Client.Freeze(s.ctx())
	s.must(err)

	if !again.Active || again.Reason != "an audit" {
		t.Errorf("after a restart: %+v", again)
	}

	if j, err := s.Client.Job(s.ctx(), held.ID); err != nil || j.Status != "Queued" {
		t.Errorf("%+v, %v", j, err)
	}

	if lifted, err := s.Client.LiftFreeze(s.ctx(), "it is over"); err != nil || lifted.Active {
		t.Errorf("%+v, %v", lifted, err)
	}

	done, err := s.Client.WaitJob(s.ctx(), held.ID)
	s.must(err)

	if done.Status != "Complete" {
		t.Errorf("%+v", done)
	}

	if _, err := s.Client.LiftFreeze(s.ctx(), ""); inventory.KindOf(err) != inventory.KindRefused {
		t.Errorf("a second time: %v", err)
	}
}
