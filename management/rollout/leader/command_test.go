// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/rollout"
)

// TestCommandGate: the command runs once the HTTP check has succeeded, and is repeated until
// it succeeds or its time is over.
func TestCommandGate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 2)
		s.status["http://10.0.0.1:80/"] = http.StatusOK
		s.status["http://10.0.0.2:80/"] = http.StatusOK

		ran := map[string]int{}
		l := s.leader()
		l.Settings = func() Settings {
			return Settings{Groups: inventory.DefaultGroups(), JobLimit: 10, Commands: []string{"smoke"}}
		}
		l.Command = func(_ context.Context, name string, n CommandNode, within time.Duration) error {
			s.mu.Lock()
			defer s.mu.Unlock()

			ran[n.Name]++

			if name != "smoke" || n.Addr == "" || n.Group != inventory.GroupWorker || n.Rollout == "" ||
				within != 30*time.Second || s.asked["http://"+n.Addr+":80/"] < ran[n.Name] {
				t.Errorf("%s for %+v within %s, asked %v", name, n, within, s.asked)
			}

			if n.Name == "w-0000" && ran[n.Name] > 2 {
				return nil
			}

			return errors.New("exit status 1: no quorum")
		}

		r, err := l.Start(t.Context(), ann, s.apply(func(o *rollout.Spec) {
			o.Gate.HTTP = &rollout.HTTPCheck{Port: 80, Path: "/", Timeout: time.Second}
			o.Gate.Command = &rollout.CommandCheck{Name: "smoke", Timeout: 30 * time.Second}
			o.MaxFailures = 1
		}))
		if err != nil {
			t.Fatal(err)
		}

		r = s.run(l, r.ID, time.Hour, ended)
		if r.Nodes[0].State != rollout.Succeeded || r.Nodes[1].State != rollout.Failed || ran["w-0000"] != 3 ||
			ran["w-0001"] < 10 || !strings.Contains(r.Nodes[1].Reason,
			"its HTTP check and command smoke did not succeed within 30s: exit status 1: no quorum") {
			t.Errorf("%+v, ran %v", r.Nodes, ran)
		}

		s.tasks.Wait()
	})
}

// TestUnknownCommand: a command that is not configured is refused, and nothing is stored.
func TestUnknownCommand(t *testing.T) {
	t.Parallel()

	s := newSite(t, 1)
	l := s.leader()
	req := s.apply(func(o *rollout.Spec) { o.Gate.Command = &rollout.CommandCheck{Name: "smoke"} })

	_, previewed := l.Preview(t.Context(), ann, req)
	_, started := l.Start(t.Context(), ann, req)

	for _, err := range []error{previewed, started} {
		if inventory.KindOf(err) != inventory.KindInvalid || !strings.Contains(err.Error(), `no command "smoke"`) {
			t.Error(err)
		}
	}

	if len(s.View().Rollouts) > 0 {
		t.Errorf("%+v", s.View().Rollouts)
	}
}
