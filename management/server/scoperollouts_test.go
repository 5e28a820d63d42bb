// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/window"
)

// TestScopeOfMixedRollout: a rollout with a node outside the scope is not there, and what it did
// to a node within is in the jobs of that, and in their explanations.
func TestScopeOfMixedRollout(t *testing.T) {
	t.Parallel()

	s, send := scopedServer(t, access.Scope{Groups: []string{inventory.GroupWorker}})
	own, mixed := rolloutID("1"), rolloutID("2")

	s.manager.change(func(v *state.View) {
		for i := range v.Jobs() {
			if v.Jobs()[i].ID == "4" {
				v.Jobs()[i].Rollout = mixed
			}
		}
	})

	for _, c := range []struct {
		method, path, body string
		status             int
		with, without      string
	}{
		{http.MethodGet, "/v1/rollouts", "", http.StatusOK, own, mixed},
		{http.MethodGet, "/v1/rollouts/" + own, "", http.StatusOK, inside, outside},
		{http.MethodGet, "/v1/rollouts/" + mixed, "", http.StatusNotFound, "", outside},
		{http.MethodPost, "/v1/rollouts/" + mixed + "/abort", "{}", http.StatusNotFound, "", outside},
		{http.MethodGet, "/v1/jobs/4", "", http.StatusOK, mixed, outside},
		{http.MethodGet, "/v1/jobs/4/explanation", "", http.StatusOK, "it is a part of rollout " + mixed, outside},
	} {
		w := send(c.method, c.path, c.body)
		if text := w.Body.String(); w.Code != c.status || !strings.Contains(text, c.with) ||
			strings.Contains(text, c.without) {
			t.Errorf("%s %s: %d %s", c.method, c.path, w.Code, text)
		}
	}
}

// TestScopeOfRolloutActs: an act that lets nodes be begun checks the group that they enter, as a
// start does, and a pause and an abort do not.
func TestScopeOfRolloutActs(t *testing.T) {
	t.Parallel()

	for _, act := range []string{"approve", "promote", "resume", "retry", "pause", "abort"} {
		begins := act != "pause" && act != "abort"

		for _, c := range []struct {
			group  string
			state  rollout.State
			status int
		}{
			{"", rollout.Waiting, http.StatusOK},
			{inventory.GroupWorker, rollout.Waiting, http.StatusOK},
			{inventory.GroupMaster, rollout.Waiting, http.StatusNotFound},
			{inventory.GroupMaster, rollout.Failed, http.StatusNotFound},
		} {
			s, send := scopedServer(t, access.Scope{Groups: []string{inventory.GroupWorker}})

			s.manager.change(func(v *state.View) {
				changeFirst(v, func(r *rollout.Record) {
					r.Spec = rollout.Spec{Action: inventory.VerbUpdate, Group: c.group}
					r.Nodes = []rollout.Node{{Name: inside, Group: inventory.GroupWorker, State: c.state}}
				})
			})

			before := s.manager.last()
			w := send(http.MethodPost, "/v1/rollouts/"+rolloutID("1")+"/"+act, `{}`)
			refused := c.status != http.StatusOK && begins

			if (w.Code != http.StatusOK) != refused || refused && s.manager.last() != before {
				t.Errorf("%s of %s nodes into %q: %d %s", act, c.state, c.group, w.Code, w.Body)
			}
		}
	}
}

// TestScopeKeepsItsRollout: whoever decommissions the nodes of their group sees the rollout to its
// end, and acts on it, while the nodes leave the group.
func TestScopeKeepsItsRollout(t *testing.T) {
	t.Parallel()

	s, send := scopedServer(t, access.Scope{Groups: []string{inventory.GroupWorker}})
	path := "/v1/rollouts/" + rolloutID("1")

	s.manager.change(func(v *state.View) {
		changeFirst(v, func(r *rollout.Record) {
			r.Spec = rollout.Spec{Action: inventory.VerbDecommission}
			r.Nodes = []rollout.Node{
				{Name: "gone-1", Group: inventory.GroupWorker, State: rollout.Succeeded},
				{Name: "left-1", Group: inventory.GroupWorker, State: rollout.Failed},
				{Name: inside, Group: inventory.GroupWorker, State: rollout.Waiting},
			}
		})
		// One was forgotten since, the other has no group any more.
		v.SetNodes(append(slices.Clip(v.Nodes()), &inventory.Node{
			Name: "left-1", Label: "left", Serial: "1", Status: inventory.Decommissioned, State: inventory.Discovered,
		})...)
	})

	for _, c := range []struct {
		method, path string
		status       int
	}{
		{http.MethodGet, path, http.StatusOK},
		{http.MethodPost, path + "/pause", http.StatusOK},
		{http.MethodPost, path + "/resume", http.StatusOK},
		{http.MethodPost, path + "/abort", http.StatusOK},
		// It would begin a job on a node that is not in the scope.
		{http.MethodPost, path + "/retry", http.StatusNotFound},
	} {
		if w := send(c.method, c.path, map[string]string{http.MethodPost: "{}"}[c.method]); w.Code != c.status {
			t.Errorf("%s %s: %d %s", c.method, c.path, w.Code, w.Body)
		}
	}

	// The nodes of a commission were in no group before.
	s.manager.change(func(v *state.View) {
		changeFirst(v, func(r *rollout.Record) {
			r.Spec = rollout.Spec{Action: inventory.VerbCommission, Group: inventory.GroupWorker}
		})
	})

	if w := send(http.MethodGet, path, ""); w.Code != http.StatusNotFound {
		t.Errorf("a commission of nodes outside: %d %s", w.Code, w.Body)
	}
}

// TestScopeOfFreeze: a freeze holds back the jobs of a scope as all others.
func TestScopeOfFreeze(t *testing.T) {
	t.Parallel()

	s, send := scopedServer(t, access.Scope{Groups: []string{inventory.GroupWorker}})
	s.manager.change(func(v *state.View) {
		v.View = record.WithOne(
			v.View,
			&window.FreezeKind,
			window.Freeze{On: true, Since: time.Now(), Actor: "anna", Reason: "outage of " + outside},
		)
	})

	text := send(http.MethodGet, "/v1/freeze", "").Body.String()
	if !strings.Contains(text, `"active":true`) || !strings.Contains(text, "outage of") ||
		strings.Contains(text, outside) {
		t.Error(text)
	}
}

// TestScopeOfTheQueue: no text counts or names a job that the caller may not see.
func TestScopeOfTheQueue(t *testing.T) {
	t.Parallel()

	_, send := scopedServer(t, access.Scope{Groups: []string{inventory.GroupWorker}})

	// Of the jobs 2, 3 and 4 that are queued, 4 alone is on nodes within the scope.
	for _, path := range []string{"/v1/jobs/4", "/v1/jobs/4/explanation", "/v1/nodes/" + inside + "/explanation"} {
		text := send(http.MethodGet, path, "").Body.String()

		for _, hidden := range []string{
			"job 2", "job 3", "jobs 2", `"2"`, `"3"`, "of 3 in the queue", "of 2 in the queue",
		} {
			if strings.Contains(text, hidden) {
				t.Errorf("%s shows %s: %s", path, hidden, text)
			}
		}

		if !strings.Contains(text, "outside the scope come first") ||
			strings.HasSuffix(path, "explanation") && !strings.Contains(text, "place 1 of 1 in the queue") {
			t.Errorf("%s: %s", path, text)
		}
	}
}

// changeFirst changes the first rollout of the fake manager.
func changeFirst(v *state.View, change func(*rollout.Record)) {
	r := *record.Get(v, &rollout.Kind, rolloutID("1"))
	change(&r)
	v.View = record.Set(v.View, &rollout.Kind, r.ID, &r)
}
