// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
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
		l.Settings = func() rollout.Settings {
			return rollout.Settings{Groups: inventory.DefaultGroups(), JobLimit: 10, Commands: []string{"smoke"}}
		}
		l.Command = func(_ context.Context, name string, n rollout.CommandNode, within time.Duration) error {
			s.mu.Lock()
			defer s.mu.Unlock()

			ran[n.Name]++

			if name != "smoke" || n.Addr == "" || n.Group != inventory.GroupWorker || n.Rollout == "" ||
				within != 30*time.Second || s.asked["http://"+n.Addr+":80/"] != 1 {
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
		errtest.None(t, err)
		r = s.run(l, r.ID, time.Hour, ended)
		if r.Nodes[0].State != rollout.Succeeded || r.Nodes[1].State != rollout.Failed || ran["w-0000"] != 3 ||
			ran["w-0001"] < 10 || !strings.Contains(r.Nodes[1].Reason,
			"its command smoke did not succeed within 30s: exit status 1: no quorum") {
			t.Errorf("%+v, ran %v", r.Nodes, ran)
		}

		s.tasks.Wait()
	})
}

// smoke lets the leader have the command smoke.
func smoke(l *rollout.Loop, run func(ctx context.Context, n rollout.CommandNode) error) {
	l.Settings = func() rollout.Settings {
		return rollout.Settings{Groups: inventory.DefaultGroups(), JobLimit: 100, Commands: []string{"smoke"}}
	}
	l.Command = func(ctx context.Context, _ string, n rollout.CommandNode, _ time.Duration) error { return run(ctx, n) }
}

// TestSlowCommands: commands that take long hold up neither the checks of another rollout, nor fail
// nodes that wait for their turn.
func TestSlowCommands(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 101)
		l := s.leader()
		s.status["http://10.0.0.101:80/"] = http.StatusOK

		now, most := 0, 0
		count := func(by int) {
			s.mu.Lock()
			defer s.mu.Unlock()
			now += by
			most = max(most, now)
		}

		smoke(l, func(context.Context, rollout.CommandNode) error {
			count(1)
			defer count(-1)
			time.Sleep(9 * time.Minute)
			return nil
		})

		slow := s.apply(func(o *rollout.Spec) {
			o.MaxUnavailable, o.Gate.SkipVerify = "100", true
			o.Gate.Command = &rollout.CommandCheck{Name: "smoke", Timeout: 10 * time.Minute}
		})
		slow.Nodes = s.names()[:100]

		a, err := l.Start(t.Context(), ann, slow)
		errtest.None(t, err)

		s.run(l, a.ID, time.Hour, func(r rollout.Record) bool {
			for _, n := range r.Nodes {
				if n.State != rollout.Checking {
					return false
				}
			}

			return true
		})

		quick := s.apply(func(o *rollout.Spec) {
			o.Gate.SkipVerify, o.Gate.HTTP = true, &rollout.HTTPCheck{Port: 80, Path: "/"}
		})
		quick.Nodes = s.names()[100:]

		b, err := l.Start(t.Context(), ann, quick)
		errtest.None(t, err)
		if b = s.run(l, b.ID, s.takes+5*time.Second, ended); b.Count().Succeeded != 1 {
			t.Errorf("the quick one: %s, %+v", b.Status, b.Nodes)
		}

		if a = s.run(l, a.ID, 2*time.Hour, ended); a.Count().Succeeded != 100 || most != rollout.CommandsAtOnce {
			t.Errorf("%s, %+v, %d commands at once", a.Status, a.Count(), most)
		}

		s.tasks.Wait()
	})
}

// TestAbortEndsCommand: no command goes on that nobody waits for.
func TestAbortEndsCommand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 1)
		l := s.leader()
		began := make(chan struct{})
		took := make(chan time.Duration, 1)

		smoke(l, func(ctx context.Context, _ rollout.CommandNode) error {
			close(began)

			begun := time.Now()
			<-ctx.Done()

			took <- time.Since(begun)

			return ctx.Err()
		})

		r, err := l.Start(t.Context(), ann, s.apply(func(o *rollout.Spec) {
			o.Gate.SkipVerify, o.Gate.Command = true, &rollout.CommandCheck{Name: "smoke", Timeout: time.Hour}
		}))
		errtest.None(t, err)

		go func() {
			<-began

			if _, err := l.Control(t.Context(), ann, r.ID, rollout.ActAbort, rollout.ActOptions{}); err != nil {
				t.Error(err)
			}
		}()

		r = s.run(l, r.ID, 30*time.Minute, func(rollout.Record) bool { return false })
		if took := <-took; r.Status != rollout.Aborted || took > time.Minute {
			t.Errorf("%s, and the command ended after %s", r.Status, took)
		}

		s.tasks.Wait()
	})
}

// TestCommandHasItsTime: the time of the command begins after the HTTP check, and the reason of a
// failure is that of the command.
func TestCommandHasItsTime(t *testing.T) {
	t.Parallel()

	for takes, want := range map[time.Duration]string{
		20 * time.Second: "",
		time.Hour:        "its command smoke did not succeed within 1m0s: it has not ended",
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, 1)
			l := s.leader()

			var begun time.Time

			l.Ask = func(context.Context, string) (int, error) {
				if begun.IsZero() {
					begun = time.Now()
				}

				if time.Since(begun) < 50*time.Second {
					return http.StatusServiceUnavailable, nil
				}
				return http.StatusOK, nil
			}

			smoke(l, func(ctx context.Context, _ rollout.CommandNode) error {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(takes):
					return nil
				}
			})

			r, err := l.Start(t.Context(), ann, s.apply(func(o *rollout.Spec) {
				o.Gate.SkipVerify = true
				o.Gate.HTTP = &rollout.HTTPCheck{Port: 80, Path: "/", Timeout: time.Minute}
				o.Gate.Command = &rollout.CommandCheck{Name: "smoke", Timeout: time.Minute}
			}))
			errtest.None(t, err)
			r = s.run(l, r.ID, time.Hour, func(r rollout.Record) bool { return r.Status != rollout.Running })
			if n := r.Nodes[0]; n.Reason != want || (n.State == rollout.Succeeded) != (want == "") {
				t.Errorf("%s: %q, want %q", n.State, n.Reason, want)
			}

			s.tasks.Wait()
		})
	}
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

	if len(s.rollouts()) > 0 {
		t.Errorf("%+v", s.rollouts())
	}
}

// TestUndoWithoutCommand: the command of the former rollout is kept if the configuration has it, and
// else left out, with an event.
func TestUndoWithoutCommand(t *testing.T) {
	t.Parallel()

	for _, commands := range [][]string{{"smoke"}, nil} {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, 1)
			l := s.leader()
			smoke(l, func(context.Context, rollout.CommandNode) error { return nil })

			r, err := l.Start(t.Context(), ann, s.apply(func(o *rollout.Spec) {
				o.Gate.SkipVerify, o.Gate.Command = true, &rollout.CommandCheck{Name: "smoke"}
			}))
			errtest.None(t, err)
			s.run(l, r.ID, time.Hour, ended)
			s.mu.Lock()
			s.publish(func(v *state.View) {
				node := v.Nodes()[0].Clone()
				done := *record.Get(v, &rollout.Kind, r.ID)
				node.Applied = done.Nodes[0].Job
				v.PutNode(&node)

				// The jobs of this site have no former playbooks.
				done.Nodes = slices.Clone(done.Nodes)
				done.Nodes[0].Former = "former"
				setRollout(v, done)
			})
			s.mu.Unlock()

			l.Settings = func() rollout.Settings {
				return rollout.Settings{Groups: inventory.DefaultGroups(), JobLimit: 10, Commands: commands}
			}

			undo, err := l.Undo(t.Context(), ann, r.ID, "it is broken")
			if err != nil {
				t.Fatalf("with %v: %v", commands, err)
			}
			said := slices.ContainsFunc(undo.Events, func(e rollout.Event) bool {
				return strings.Contains(e.Text, "the command smoke of the gate is left out")
			})
			if has := undo.Spec.Gate.Command != nil; has != (commands != nil) || said == has {
				t.Errorf("with %v: %+v, %+v", commands, undo.Spec.Gate, undo.Events)
			}

			if undo = s.run(l, undo.ID, time.Hour, ended); undo.Status != rollout.Done {
				t.Errorf("with %v: %s, %+v", commands, undo.Status, undo.Nodes)
			}

			s.tasks.Wait()
		})
	}
}
