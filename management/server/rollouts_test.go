// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
)

// rolloutID returns the id of the nth rollout of the fake manager.
func rolloutID(n string) string { return "r0000000" + n }

// fakeRollouts keeps rollouts in the view of the fake manager.
type fakeRollouts struct{ m *fakeManager }

func (f fakeRollouts) Preview(ctx context.Context, c access.Caller, r rollout.Request) (rollout.Record, error) {
	if _, err := c.Check(ctx, f.m, f.m.View(), rollout.Starting(r)); err != nil {
		return rollout.Record{}, err
	}

	one := rollout.Record{Status: rollout.Planned, Spec: r.Spec}
	for _, name := range r.Nodes {
		one.Nodes = append(one.Nodes, rollout.Node{Name: name, State: rollout.Waiting})
	}

	return one, f.m.called("preview %s %v actor=%s", r.Action, r.Nodes, c.Principal)
}

func (f fakeRollouts) Start(ctx context.Context, c access.Caller, r rollout.Request) (rollout.Record, error) {
	one, err := f.Preview(ctx, c, r)
	if err != nil {
		return one, err
	}

	number := '1' + len(record.List(f.m.View(), &rollout.Kind))
	one.ID, one.Status, one.Actor, one.Revision = rolloutID(string(rune(number))), rollout.Running, c.Principal, 7

	f.m.change(func(v *state.View) { v.View = record.Set(v.View, &rollout.Kind, one.ID, &one) })

	return one, err
}

func (f fakeRollouts) Undo(ctx context.Context, c access.Caller, id, reason string) (rollout.Record, error) {
	one, err := f.act(ctx, c, rollout.Undoing(id), "undo", id, reason)
	one.UndoOf, one.ID = id, "r0000000f"
	return one, err
}

func (fakeRollouts) Remaining(rollout.Record) (time.Duration, bool) { return time.Minute, true }

func (fakeRollouts) Held(_ *state.View, _ rollout.Record, node string) string {
	return node + " is held"
}

// act notes an act on a rollout of the view.
func (f fakeRollouts) act(
	ctx context.Context, c access.Caller, subject access.Subject, what, id, details string,
) (rollout.Record, error) {
	if _, err := c.Check(ctx, f.m, f.m.View(), subject); err != nil {
		return rollout.Record{}, err
	}

	one, err := rollout.Get(f.m.View(), id)
	if err != nil {
		return one, err
	}
	return one, f.m.called("%s rollout %s %s actor=%s", what, id, details, c.Principal)
}

func (f fakeRollouts) Control(
	ctx context.Context, c access.Caller, id string, act rollout.Act, o rollout.ActOptions,
) (rollout.Record, error) {
	details := o.Reason
	if act == rollout.ActRetry {
		details = strings.Join(o.Nodes, ",")
	}
	return f.act(ctx, c, rollout.Acting(id, act, o), string(act), id, details)
}

// rolloutMethods checks the methods of the client about rollouts.
func rolloutMethods(t *testing.T, c *client.Client) {
	t.Helper()

	ctx, two := t.Context(), 2
	soak := api.Duration(time.Minute)
	request := api.RolloutRequest{Nodes: []string{"a-1"}, Spec: api.RolloutSpec{
		Action:         inventory.VerbApply,
		MaxUnavailable: "10%",
		MaxFailures:    1,
		Canary:         1,
		Promote:        true,
		Soak:           soak,
		Order:          &api.RolloutOrder{By: "label", Label: "rack"},
		Strategies: map[string]api.RolloutStrategy{
			inventory.GroupMaster: {MaxUnavailable: "1", MaxFailures: &two, Soak: &soak},
		},
		Gate: &api.RolloutGate{SkipVerify: true, HTTP: &api.RolloutHTTPCheck{
			TLS: true, Port: 8443, Path: "/health", Status: 204, Timeout: soak,
		}, Command: &api.RolloutCommand{Name: "smoke", Timeout: soak}},
		RequireApproval: true,
		SharedOptions: inventory.SharedOptions{
			OverrideWindow: true,
			Tags:           []string{"x"},
			SkipTags:       []string{"y"},
			Reason:         "a release",
		},
		Timeout: soak,
	}}

	preview := must[api.Rollout](t)(c.PreviewRollout(ctx, request))
	if preview.Status != "Planned" || preview.ID != "" || len(preview.Nodes) != 1 ||
		preview.Nodes[0].Window != "a-1 is held" {
		t.Errorf("%+v", preview)
	}

	if preview.Remaining != nil {
		t.Errorf("%v are left, though a window holds a node", *preview.Remaining)
	}

	started := must[api.Rollout](t)(c.StartRollout(ctx, request))
	if got := started.Spec; got.Canary != 1 || *got.Strategies[inventory.GroupMaster].MaxFailures != 2 ||
		*got.Order != *request.Spec.Order || *got.Gate.HTTP != *request.Spec.Gate.HTTP ||
		*got.Gate.Command != *request.Spec.Gate.Command || !got.Gate.SkipVerify ||
		!got.RequireApproval || !got.OverrideWindow || got.Timeout != soak || got.Tags[0] != "x" {
		t.Errorf("%+v", got)
	}

	list := must[api.List[api.Rollout]](t)(c.ListRollouts(ctx))
	if len(list.Items) != 1 || list.Items[0].ID != started.ID || list.Items[0].Nodes != nil {
		t.Errorf("%+v", list)
	}

	must[api.Rollout](t)(c.Rollout(ctx, started.ID))
	must[api.Rollout](t)(c.WatchRollout(ctx, started.ID, func(api.Rollout) bool { return false }))

	for path, body := range map[string]any{
		api.PathPauseRollout:   api.RolloutControl{Reason: "x"},
		api.PathResumeRollout:  api.RolloutResume{},
		api.PathAbortRollout:   api.RolloutAbort{Cancel: true},
		api.PathRetryRollout:   api.RolloutRetry{Nodes: []string{"a-1"}},
		api.PathPromoteRollout: api.RolloutControl{},
		api.PathApproveRollout: api.RolloutControl{},
	} {
		must[api.Rollout](t)(c.ControlRollout(ctx, path, body, started.ID))
	}

	undo := must[api.Rollout](t)(c.ControlRollout(ctx, api.PathUndoRollout, api.RolloutControl{}, started.ID))
	if undo.UndoOf != started.ID {
		t.Errorf("%+v", undo)
	}

	if _, err := c.Rollout(ctx, "r00000000"); inventory.KindOf(err) != inventory.KindNotFound {
		t.Error(err)
	}
}

// TestRolloutSelector: a selector chooses the nodes, and a wrong one is refused with its
// position.
func TestRolloutSelector(t *testing.T) {
	t.Parallel()
	s := serve(t)

	post := func(selector string) (int, string) {
		res, text := s.exchange(t, http.MethodPost, api.PathPreviewRollout,
			`{"spec":{"action":"apply","selector":"`+selector+`"}}`)

		return res.StatusCode, text
	}

	if status, text := post("name=a-1"); status != http.StatusOK || !strings.Contains(text, `"name":"a-1"`) {
		t.Errorf("%d %s", status, text)
	}

	if status, text := post("name=a-1,rack in (r1"); status != http.StatusBadRequest ||
		!strings.Contains(text, "at character 18") {
		t.Errorf("%d %s", status, text)
	}

	if status, text := post("name=nobody-1"); status != http.StatusNotFound {
		t.Errorf("%d %s", status, text)
	}
}

// TestRolloutRemedy: a stopped rollout has the retry with the corrected playbooks as data; lists leave it out.
func TestRolloutRemedy(t *testing.T) {
	t.Parallel()
	s := serve(t)

	s.manager.change(func(v *state.View) {
		v.View = record.WithList(v.View, &rollout.Kind, &rollout.Record{
			ID: rolloutID("1"), Status: rollout.Stopped, Playbooks: "broken",
			Spec:  rollout.Spec{Action: inventory.VerbApply},
			Nodes: []rollout.Node{{Name: "a-1", State: rollout.Failed}},
		})
	})

	one := must[api.Rollout](t)(s.client(t).Rollout(testCtx(t), rolloutID("1")))
	now := slices.IndexFunc(one.Actions, func(a api.Action) bool { return a.Playbooks == inventory.PlaybooksCurrent })

	if one.Remedy == "" || len(one.Actions) != 2 || now < 0 ||
		one.Actions[now].Path != "/v1/rollouts/"+rolloutID("1")+"/retry" ||
		string(one.Actions[now].Body) != `{"playbooks_now":true}` {
		t.Errorf("%q, %+v", one.Remedy, one.Actions)
	}

	list := must[api.List[api.Rollout]](t)(s.client(t).ListRollouts(testCtx(t)))
	if len(list.Items) != 1 || list.Items[0].Remedy != "" || list.Items[0].Actions != nil {
		t.Errorf("%+v", list.Items)
	}
}
