// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/step"
)

// crash is the death of a manager at one of its steps: nothing is written from then on.
type crash struct {
	keeper

	mu   sync.Mutex
	left int           // steps that are still carried out
	dead chan struct{} // closed at the crash
}

// reached counts a step, and reports whether the manager is dead.
func (c *crash) reached() bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.left--; c.left == -1 {
		close(c.dead)
	}
	return c.left < 0
}

// step counts a write. It blocks once the manager is dead.
func (c *crash) step(ctx context.Context) error {
	if !c.reached() {
		return nil
	}

	<-ctx.Done()
	return ctx.Err()
}

func (c *crash) Claim(ctx context.Context, claim state.Claim) (job.Job, error) {
	if err := c.step(ctx); err != nil {
		return job.Job{}, err
	}
	return c.keeper.Claim(ctx, claim)
}

func (c *crash) Commit(ctx context.Context, tx *record.Tx) (int64, error) {
	if runningIn(tx) != nil {
		if err := c.step(ctx); err != nil {
			return 0, err
		}
	}
	return c.keeper.Commit(ctx, tx)
}

func (c *crash) Finish(ctx context.Context, j job.Job, w []state.NodeWrite) (job.Job, error) {
	if err := c.step(ctx); err != nil {
		return j, err
	}
	return c.keeper.Finish(ctx, j, w)
}

func (c *crash) AppendLog(ctx context.Context, id string, stream job.Stream, offset int64, data []byte) error {
	if err := c.step(ctx); err != nil {
		return err
	}
	return c.keeper.AppendLog(ctx, id, stream, offset, data)
}

// outlived waits for the crash, or for the end of the job, and reports whether that came first.
func (c *crash) outlived(b *bench, id string) bool {
	b.t.Helper()

	ctx := b.within(patience)
	for {
		changed := b.store.Changed()

		if j, err := b.View().Job(id); err == nil && j.Status.Ended() {
			return true
		}

		select {
		case <-c.dead:
			return false
		case <-changed:
		case <-ctx.Done():
			b.t.Fatal("the manager neither died nor ended the job")
		}
	}
}

// TestCrashAtEachStep: wherever a manager dies, the next one begins the interrupted phase again,
// or goes on with its run, and the job succeeds.
func TestCrashAtEachStep(t *testing.T) {
	for _, tt := range []struct {
		name     string
		prepared bool   // a crash during the start of a run leaves one that has not begun
		next     string // the instance that goes on
	}{
		{"before the preparation", false, "bench-1"},
		{"after the preparation", true, "bench-1"},
		{"another instance", true, "bench-2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			crashed, again := 0, 0

			for steps := 0; ; steps++ {
				j, died := crashAt(t, steps, tt.prepared, tt.next)
				if !died {
					break
				}

				crashed++

				if strings.HasPrefix(phases(j), "configure:interrupted ") {
					again++
				}
			}

			if crashed < 5 {
				t.Errorf("the manager died at %d steps only", crashed)
			}

			if want := tt.prepared && tt.next == "bench-1"; want != (again == 1) {
				t.Errorf("the phase was begun again after %d crashes", again)
			}
		})
	}
}

// crashAt commissions a node with a manager that dies after so many steps, and with the next one.
func crashAt(t *testing.T, steps int, prepared bool, next string) (job.Job, bool) {
	t.Helper()

	c := &crash{left: steps, dead: make(chan struct{})}
	b := newBench(t, func(b *bench) {
		b.prefix += fmt.Sprint("/", steps)
		b.settings.Lease = 10 * time.Millisecond
		b.wrap = func(s keeper) keeper { c.keeper = s; return c }
	})
	b.see("a")

	b.books.dies = func() (dead, left bool) { return c.reached(), prepared }
	id := b.ask(commission, "a", master).ID

	if c.outlived(b, id) {
		return b.job(id), false
	}

	b.down()

	b.wrap, b.books.dies = nil, nil
	if next != b.instance {
		b.instance, b.books = next, newPlaybooks()
	}

	b.up()

	j := b.end(id, "Complete")
	b.are("a Allocated service-master")

	return j, true
}

// pulses is an executor of a task that must not be done twice on a host.
type pulses struct {
	step.Plain

	dead func() bool // the manager has died: what it sends does not arrive

	mu    sync.Mutex
	count map[string]int // by host
}

func (p *pulses) Run(ctx context.Context, s step.Step, out step.Events) (step.Result, error) {
	return step.Task{Name: "pulse", Limit: 2, Once: true, Do: func(_ context.Context, host string) error {
		if p.dead() {
			return nil
		}

		p.mu.Lock()
		defer p.mu.Unlock()
		p.count[host]++

		return nil
	}}.Each(ctx, s, out)
}

// reached returns how often the task was done on the host.
func (p *pulses) reached(host string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count[host]
}

// TestCrashRepeatsNothing: wherever a manager dies, what must not be done twice is not. A host of which the next one
// does not know whether it was done fails, and says so.
func TestCrashRepeatsNothing(t *testing.T) {
	t.Parallel()

	crashed, doubtful, went := 0, 0, 0

	for steps := 0; ; steps++ {
		c := &crash{left: steps, dead: make(chan struct{})}
		p := &pulses{dead: c.reached, count: map[string]int{}}
		b := newBench(t, func(b *bench) {
			b.prefix += fmt.Sprint("/", steps)
			b.wrap = func(s keeper) keeper { c.keeper = s; return c }
			b.power = p
		})
		b.see("a b c")

		id := b.ask(inventory.VerbPower, "a b c", "").ID
		if c.outlived(b, id) {
			break
		}
		crashed++

		b.down()
		b.wrap, p.dead = nil, func() bool { return false }
		b.up()
		b.until("the end of the job", func(v *state.View) bool {
			j, err := v.Job(id)
			return err == nil && j.Status.Ended()
		})

		unknown := 0

		for _, name := range names("a b c") {
			result := b.job(id).TargetResult(name)

			switch n := p.reached(name); {
			case result.OK && n == 1:
			case !result.OK && n <= 1 && strings.Contains(result.Error, "not repeated by itself"):
				unknown++
			default:
				t.Errorf("after %d steps %s was reached %d times, and ended %+v", steps, name, n, result)
			}
		}

		switch status := b.job(id).Status; {
		case unknown > 0 && status == job.Errored:
			doubtful++
		case unknown == 0 && status == job.Complete:
			went++
		default:
			t.Errorf("after %d steps: %d in doubt, and the job ended %s", steps, unknown, status)
		}
	}

	if crashed < 10 || doubtful < 3 || went < 3 {
		t.Errorf("the manager died at %d steps: %d times in doubt, %d times not", crashed, doubtful, went)
	}
}
