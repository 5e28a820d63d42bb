// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/cluster/management/record/recordtest"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/step/playbook"
)

// TestHungPlaybooks: a folder that does not answer makes the playbooks unknown after a
// bounded time, with the reason, and they are known again as soon as it answers.
func TestHungPlaybooks(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		var (
			reads atomic.Int32
			hangs atomic.Bool

			answers, folder = make(chan struct{}), ""
		)

		store := recordtest.NewStore(&state.InstancePlaybooks)
		last := func() state.Playbooks {
			latest, _ := store.Latest()
			return state.PlaybooksOf(latest, "i")
		}

		p := newNote(&Runner{config: func() playbook.Config { return playbook.Config{Playbooks: folder} }}, 0)
		p.store, p.instance = store, "i"
		p.source = func(ctx context.Context) (string, error) {
			if reads.Add(1); hangs.Load() {
				<-answers
			}
			return "new", ctx.Err()
		}

		_ = p.look(t.Context())

		if last().Digest != "new" {
			t.Fatalf("%+v", last())
		}

		hangs.Store(true)
		began := time.Now()

		for range 3 {
			_ = p.look(t.Context())

			if last().Digest != "" || !strings.Contains(last().Problem, "did not answer") {
				t.Fatalf("%+v", last())
			}
		}

		if took := time.Since(began); took > 3*lookPatience || reads.Load() != 2 {
			t.Errorf("three looks took %s, with %d reads", took, reads.Load())
		}

		// The end of the manager does not wait for the folder.
		stopped, stop := context.WithCancelCause(t.Context())
		stop(errors.New("the end"))
		_ = p.look(stopped)

		// Another folder is read at once.
		folder = "/other"
		hangs.Store(false)
		_ = p.look(t.Context())

		if last().Digest != "new" || reads.Load() != 3 {
			t.Errorf("%+v after %d reads", last(), reads.Load())
		}

		folder = ""
		hangs.Store(true)
		_ = p.look(t.Context())

		hangs.Store(false)
		close(answers)
		_ = p.look(t.Context())

		if last().Digest != "new" || last().Problem != "" {
			t.Errorf("%+v", last())
		}
	})
}

// TestInterruptedPlaybooks: a read that ended with the look that began it is repeated.
func TestInterruptedPlaybooks(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		store := recordtest.NewStore(&state.InstancePlaybooks)
		last := func() state.Playbooks {
			latest, _ := store.Latest()
			return state.PlaybooksOf(latest, "i")
		}

		p := newNote(&Runner{config: func() playbook.Config { return playbook.Config{} }}, 0)
		p.store, p.instance = store, "i"
		p.source = func(ctx context.Context) (string, error) {
			select {
			case <-ctx.Done():
				return "", ctx.Err()
			case <-time.After(time.Second):
				return "new", nil
			}
		}

		stopped, stop := context.WithCancel(t.Context())
		go func() { _ = p.look(stopped) }()
		synctest.Wait()
		stop()
		synctest.Wait()

		if last() != (state.Playbooks{}) {
			t.Errorf("%+v", last())
		}

		_ = p.look(t.Context())

		if last().Digest != "new" || last().Problem != "" {
			t.Errorf("%+v", last())
		}
	})
}
