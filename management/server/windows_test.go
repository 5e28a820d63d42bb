// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/window"
)

// fakeWindows has one window, and keeps a freeze.
type fakeWindows struct{ m *fakeManager }

func (f fakeWindows) Status(v *state.View) window.Status {
	calendar, err := window.New([]window.Spec{{
		Name: "nightly", Cron: "0 2 * * *", Duration: time.Hour, Groups: []string{inventory.GroupWorker},
	}}, inventory.DefaultGroups())
	if err != nil {
		panic(err)
	}

	now := time.Date(2026, 3, 1, 2, 30, 0, 0, time.UTC)
	w := calendar.Windows()[0]

	return window.Status{Now: now, Freeze: window.FreezeOf(v), Windows: []window.WindowStatus{
		{Window: w, Closes: w.Open(now), Opens: w.Next(now), Nodes: 2},
	}}
}

func (f fakeWindows) Freeze(
	_ context.Context, c access.Caller, until time.Time, reason string,
) (window.Freeze, error) {
	freeze := window.Freeze{On: true, Until: until, Actor: c.Principal, Reason: reason}
	f.m.change(func(v *state.View) { v.View = record.WithOne(v.View, &window.FreezeKind, freeze) })
	return freeze, f.m.called("freeze reason=%s actor=%s", reason, c.Principal)
}

func (f fakeWindows) Lift(_ context.Context, c access.Caller, reason string) (window.Freeze, error) {
	f.m.change(func(v *state.View) { v.View = record.WithOne(v.View, &window.FreezeKind, window.Freeze{}) })
	return window.Freeze{}, f.m.called("lift reason=%s actor=%s", reason, c.Principal)
}

// windowMethods checks the methods of the client about windows and the freeze.
func windowMethods(t *testing.T, c *client.Client) {
	t.Helper()

	ctx := t.Context()

	windows := must[api.Windows](t)(c.Windows(ctx))
	if len(windows.Windows) != 1 || windows.Freeze.Active {
		t.Fatalf("%+v", windows)
	}
	w := windows.Windows[0]
	if w.Name != "nightly" || !w.Open || w.TimeZone != "UTC" || w.Nodes != 2 ||
		!w.Closes.Equal(time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)) ||
		!w.Opens.Equal(time.Date(2026, 3, 2, 2, 0, 0, 0, time.UTC)) {
		t.Errorf("%+v", w)
	}

	until := time.Now().Add(time.Hour)

	frozen := must[api.Freeze](t)(c.SetFreeze(ctx, api.FreezeRequest{Until: &until, Reason: "an audit"}))
	if !frozen.Active || !frozen.Until.Equal(until) || frozen.Reason != "an audit" {
		t.Errorf("%+v", frozen)
	}

	if again := must[api.Freeze](t)(c.Freeze(ctx)); !again.Active {
		t.Errorf("%+v", again)
	}

	if lifted := must[api.Freeze](t)(c.LiftFreeze(ctx, "it is over")); lifted.Active {
		t.Errorf("%+v", lifted)
	}
}
