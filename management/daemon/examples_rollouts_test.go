// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/server"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/window"
)

// documentedRollout is the id of the rollout in the document.
const documentedRollout = "r7b1e44d2"

// rolling is a state with the rollout of the document. The jobs of a real one would take
// numbers of the other examples.
type rolling struct{ server.State }

func (s rolling) View() *state.View {
	v := *s.State.View()
	one := documented()
	v.View = record.WithList(v.View, &rollout.Kind, &one)
	return &v
}

// documented is the rollout of the document: its canary runs.
func documented() rollout.Record {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

	return rollout.Record{
		ID: documentedRollout, Status: rollout.Running, Actor: "root", Created: at, Started: at, Revision: 120,
		Spec: rollout.Spec{
			Action: inventory.VerbApply, Selector: "group=" + inventory.GroupWorker, MaxUnavailable: "10%", Canary: 1,
		},
		Nodes: []rollout.Node{
			{
				Name: "host2-04f4", Group: inventory.GroupWorker, State: rollout.Working, Attempt: 1, Job: "12",
				Former: "former",
			},
			{Name: "host3-35a0", Group: inventory.GroupWorker, State: rollout.Waiting},
		},
		Estimate: rollout.Pace{Jobs: 8, Node: 4 * time.Minute},
	}
}

// steps acts on the rollout of the document, in the status that each act is for, and stores
// nothing. What it does not implement is that of the daemon.
type steps struct {
	server.Rollouts
	view func() *state.View
}

func (s steps) Start(ctx context.Context, c access.Caller, req rollout.Request) (rollout.Record, error) {
	r, err := s.Preview(ctx, c, req)
	r.ID = documentedRollout
	return r.Begin(c.Principal, time.Now()), err
}

func (steps) Control(
	_ context.Context, c access.Caller, _ string, act rollout.Act, o rollout.ActOptions,
) (rollout.Record, error) {
	r, m := documented(), rollout.Mark{By: c.Principal, At: time.Now(), Reason: o.Reason}

	switch act {
	case rollout.ActPause:
		return r.Pause(m)
	case rollout.ActResume:
		r.Status = rollout.Paused
		return r.Resume(m)
	case rollout.ActAbort:
		return r.Abort(m, o.Cancel)
	case rollout.ActRetry:
		r.Status, r.Nodes[0].State = rollout.Stopped, rollout.Failed
		return r.Retry(m, o.Nodes)
	case rollout.ActPromote:
		r.Status = rollout.AwaitingPromotion
		return r.Promote(m)
	}

	r.Status, r.Actor = rollout.AwaitingApproval, "bob"

	return r.Approve(m)
}

func (s steps) Undo(_ context.Context, c access.Caller, _, reason string) (rollout.Record, error) {
	r, v := documented(), s.view()
	r.Status, r.Nodes[0].State, r.Nodes[1].State = rollout.Aborted, rollout.Succeeded, rollout.Skipped

	n, _ := v.Lookup(r.Nodes[0].Name)
	r.Nodes[0].Job = n.Applied

	u, err := r.Undo(v.Snapshot, nil, func(string) (bool, error) { return true, nil }, reason, time.Now())
	u.ID = "r9c1d20a5"

	return u.Begin(c.Principal, time.Now()), err
}

// nightly has one window, which is open. That of a daemon would be open at night only, and
// its jobs would wait for it.
type nightly struct{ server.Windows }

func (nightly) Status(*state.View) window.Status {
	c, err := window.New([]window.Spec{{
		Name: "nightly", Cron: "0 2 * * *", Duration: 3 * time.Hour, TimeZone: "Europe/Berlin",
		Groups: []string{inventory.GroupWorker},
	}}, inventory.DefaultGroups())
	if err != nil {
		panic(err)
	}

	now := time.Date(2026, 3, 1, 2, 30, 0, 0, time.UTC)
	w := c.Windows()[0]

	return window.Status{
		Now: now, Windows: []window.WindowStatus{{Window: w, Closes: w.Open(now), Opens: w.Next(now), Nodes: 12}},
	}
}
