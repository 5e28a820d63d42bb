// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/bmc/bmctest"
	"github.com/contiv/cluster/management/api"
)

// TestAlerts: an alert refuses its verb at acceptance, in a plan and at the claim, names itself, and ends by itself.
func TestAlerts(t *testing.T) {
	t.Parallel()
	s := prepare(t)
	s.up()
	t.Cleanup(s.down)
	s.report("web db")

	machine := bmctest.NewRedfish(t, 1)
	s.register("web-1", machine.BMC)

	on := api.JobRequest{Verb: inventory.VerbPower, Nodes: []string{"web-1"}, ExtraVars: []byte(`{"to":"on"}`)}

	added, err := s.AddAlert(s.ctx(), api.AlertRequest{
		Nodes: []string{"web-1", "db-1"}, Reason: "on the bench", Effects: []inventory.Effect{inventory.BlocksPower},
	})
	s.must(err)

	if _, err := s.Submit(s.ctx(), on); inventory.KindOf(err) != inventory.KindRefused ||
		!strings.Contains(err.Error(), "on the bench") {
		t.Errorf("a request: %v", err)
	}

	if _, err := s.Plan(s.ctx(), on); err != nil && !strings.Contains(err.Error(), "on the bench") {
		t.Errorf("a plan: %v", err)
	}

	s.restart()

	e, err := s.Explain(s.ctx(), "web-1")
	s.must(err)

	named := false
	for _, f := range e.Findings {
		named = named || strings.Contains(f.Message, "on the bench") && len(f.Actions) == 1
	}

	if !named {
		t.Errorf("the explanation does not name it: %+v", e.Findings)
	}

	if machine.System(1).On() {
		t.Error("the machine was turned on")
	}

	ended, err := s.EndAlert(s.ctx(), api.AlertEnd{ID: added.Items[0].ID})
	if err != nil || len(ended.Items) != 2 {
		t.Errorf("the end: %+v, %v", ended, err)
	}

	if j := s.runJob(on); j.Status != api.Complete || !machine.System(1).On() {
		t.Errorf("after the end: job %s is %s: %s", j.ID, j.Status, j.Message)
	}

	until := time.Now().Add(300 * time.Millisecond)
	_, err = s.AddAlert(s.ctx(), api.AlertRequest{Nodes: []string{"db-1"}, Reason: "short", Until: &until})
	s.must(err)

	s.eventually("the end of the alert", func() bool {
		list, err := s.Alerts(s.ctx())
		s.must(err)

		return list.Total == 0
	})

	history, err := s.History(s.ctx(), "db-1", 1)
	s.must(err)

	last := history.Items[0]
	if last.Verb != inventory.VerbAlert || !strings.Contains(last.Reason, "its time is over") {
		t.Errorf("the history: %+v", last)
	}
}

// TestAlertWithinScope: a caller with a scope sees and ends alerts on its own nodes only.
func TestAlertWithinScope(t *testing.T) {
	t.Parallel()

	s := begin(t, "plain_http: 127.0.0.1:0")
	s.report("web db")

	rack := "a"
	_, err := s.PatchNode(s.ctx(), "web-1", api.NodePatch{Labels: map[string]*string{"rack": &rack}})
	s.must(err)

	added, err := s.AddAlert(s.ctx(), api.AlertRequest{Nodes: []string{"web-1", "db-1"}, Reason: "as db-1 is broken"})
	s.must(err)

	c := s.scoped(&api.Scope{Selector: "rack=a"})

	list, err := c.Alerts(s.ctx())
	s.must(err)

	if len(list.Items) != 1 || list.Items[0].Node != "web-1" || strings.Contains(list.Items[0].Reason, "db-1") {
		t.Errorf("it sees %+v", list.Items)
	}

	if _, err := c.AddAlert(s.ctx(), api.AlertRequest{Nodes: []string{"db-1"}, Reason: "x"}); inventory.KindOf(err) !=
		inventory.KindNotFound {
		t.Errorf("on another node: %v", err)
	}

	if ended, err := c.EndAlert(s.ctx(), api.AlertEnd{ID: added.Items[0].ID}); err != nil || len(ended.Items) != 1 {
		t.Errorf("it ended %+v, %v", ended.Items, err)
	}

	if list, err := s.Alerts(s.ctx()); err != nil || len(list.Items) != 1 || list.Items[0].Node != "db-1" {
		t.Errorf("left are %+v, %v", list.Items, err)
	}
}
