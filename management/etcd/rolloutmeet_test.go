// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
)

// meeting is a store whose first two writes of rollouts wait for each other: both are decided
// on the same view.
type meeting struct {
	*Store

	first sync.WaitGroup
	turn  chan struct{}
}

func (m *meeting) wait() {
	select {
	case m.turn <- struct{}{}:
		m.first.Done()
		m.first.Wait()
	default: // they have met
	}
}

func (m *meeting) Commit(ctx context.Context, tx *record.Tx) (int64, error) {
	m.wait()
	return m.Store.Commit(ctx, tx)
}

// anyPlaybooks can run every job, and runs none.
type anyPlaybooks struct{ rollout.Jobs }

func (anyPlaybooks) PrepareRollout(context.Context, access.Caller, job.Request) (digest, commit string, err error) {
	return "now", "", nil
}

type noAudit struct{}

func (noAudit) Record(context.Context, access.Record) {}

// TestActsMeet: of two acts at once that begin the same node, or that take the last place of an
// open rollout, one is carried out.
func TestActsMeet(t *testing.T) {
	t.Parallel()

	ann := access.Caller{Principal: "ann"}
	commission := func(names ...string) rollout.Request {
		return rollout.Request{
			Spec: rollout.Spec{Action: inventory.VerbCommission, Group: inventory.GroupWorker}, Nodes: names,
		}
	}

	for name, tt := range map[string]struct {
		failed [2]string // the failed node of each rollout that has ended
		open   int       // other rollouts that have not ended
		acts   [2]func(context.Context, *rollout.Loop) error
	}{
		"two retries": {
			failed: [2]string{"n-0000", "n-0000"},
			acts:   [2]func(context.Context, *rollout.Loop) error{retry("r00000000"), retry("r00000001")},
		},
		"a retry and a start": {
			failed: [2]string{"n-0000", "n-0000"},
			acts: [2]func(context.Context, *rollout.Loop) error{
				retry("r00000000"),
				func(ctx context.Context, l *rollout.Loop) error {
					return second(l.Start(ctx, ann, commission("n-0000", "n-0001")))
				},
			},
		},
		"two retries and one place": {
			failed: [2]string{"n-0000", "n-0001"}, open: rollout.MaxOpen - 1,
			acts: [2]func(context.Context, *rollout.Loop) error{retry("r00000000"), retry("r00000001")},
		},
	} {
		s, ctx := store(t), within(t, patience)
		seen(t, s, 2)

		for i, node := range tt.failed {
			r := aRollout(fmt.Sprintf("r%08x", i), 0)
			r.Status, r.Nodes = rollout.Fruitless, []rollout.Node{{Name: node, State: rollout.Failed, Attempt: 1}}
			putRollout(t, s, r)
		}

		for i := range tt.open {
			r := aRollout(fmt.Sprintf("r%08x", 100+i), 1)
			putRollout(t, s, r)
		}

		m := &meeting{Store: s, turn: make(chan struct{}, 2)}
		m.first.Add(2)

		l := rollout.New(rollout.Options{
			State: s, Records: m, Store: s, Jobs: anyPlaybooks{}, Audit: noAudit{}, Logger: silent(),
			Settings: func() rollout.Settings { return rollout.Settings{Groups: inventory.DefaultGroups()} },
		})

		results := make(chan error, 2)
		for _, act := range tt.acts {
			go func() { results <- act(ctx, l) }()
		}

		errs := []error{<-results, <-results}
		refused := func(err error) bool { return inventory.KindOf(err) == inventory.KindRefused }

		if !slices.Contains(errs, nil) || !slices.ContainsFunc(errs, refused) {
			t.Errorf("%s: %v", name, errs)
		}

		must(t, s.Sync(ctx))

		open, holders := 0, map[string]int{}
		for _, r := range record.All(s.View(), &rollout.Kind) {
			if r.Status != rollout.Running {
				continue
			}

			open++

			for _, n := range r.Nodes {
				if n.State == rollout.Waiting {
					holders[n.Name]++
				}
			}
		}

		if open != tt.open+1 || open > rollout.MaxOpen || holders["n-0000"] > 1 || holders["n-0001"] > 1 {
			t.Errorf("%s: %d are open, %v", name, open, holders)
		}
	}
}

func retry(id string) func(context.Context, *rollout.Loop) error {
	return func(ctx context.Context, l *rollout.Loop) error {
		return second(l.Control(ctx, access.Caller{Principal: "bob"}, id, rollout.ActRetry, rollout.ActOptions{}))
	}
}
