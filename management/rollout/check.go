// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/control"
)

const (
	asksAtOnce     = 32              // concurrent HTTP checks of a rollout
	commandsAtOnce = 16              // concurrent commands of a rollout
	checkEvery     = 2 * time.Second // polling interval of one node
)

// checkKey identifies the checks of an attempt.
type checkKey struct {
	rollout, node string
	attempt       int
}

// checkState is the newest result of a check.
type checkState struct {
	result CheckResult
	asking bool
	cancel context.CancelFunc // ends the check in progress
	next   time.Time          // when to poll next
	// used is the time the check had already spent when it was paused to wait for a free lane.
	used time.Duration
}

// wait pauses the clock of the check's timeout.
func (s *checkState) wait(now time.Time) {
	if !s.result.Since.IsZero() {
		s.used, s.result.Since = now.Sub(s.result.Since), time.Time{}
	}
}

// begin starts or resumes the clock of the check's timeout.
func (s *checkState) begin(now time.Time) {
	s.asking = true

	if s.result.Since.IsZero() {
		s.result.Since, s.used = now.Add(-s.used), 0
	}
}

// answer records the result of an attempt; nil is success. The command follows the HTTP check and has
// its own timeout.
func (s *checkState) answer(g Gate, err error, now time.Time) {
	switch {
	case err != nil:
		// The interval starts with the answer, so that a slow node gets a pause too.
		s.result.Error, s.next = inventory.Shorten(err.Error(), maxError), now.Add(checkEvery)
	case !s.result.Command && g.Command != nil:
		s.result, s.used = CheckResult{Command: true}, 0
	default:
		s.result.OK = true
	}
}

// result returns the newest result of the check.
func (l *Loop) result(id, node string, attempt int) CheckResult {
	l.mu.Lock()
	defer l.mu.Unlock()

	if s := l.checked[checkKey{id, node, attempt}]; s != nil {
		return s.result
	}
	return CheckResult{}
}

// check returns the act that polls the node, or none if the next poll is not due, and when it is due.
// Commands and HTTP checks of a rollout run in separate lanes, so that slow commands do not delay
// HTTP checks.
func (l *Loop) check(r Record, c Check, now time.Time) ([]control.Act, time.Time) {
	key, gate := checkKey{r.ID, c.Node, c.Attempt}, r.Spec.Gate

	l.mu.Lock()
	defer l.mu.Unlock()

	s := l.checked[key]
	if s == nil {
		s = &checkState{result: CheckResult{Command: gate.HTTP == nil}}
		l.checked[key] = s
	}

	if s.asking || s.result.OK || now.Before(s.next) {
		return nil, later(s.next, now)
	}

	s.wait(now)

	act := control.Act{
		Key: fmt.Sprintf("check of %s in rollout %s, attempt %d", c.Node, r.ID, c.Attempt),
		Do:  func(ctx context.Context) error { l.ask(ctx, s, r, c); return nil },
	}
	act.Lane, act.Width = r.ID+"/http", asksAtOnce

	if s.result.Command {
		act.Lane, act.Width = r.ID+"/command", commandsAtOnce
	}

	return []control.Act{act}, now.Add(checkEvery)
}

// ask polls once, unless the check is obsolete by now, and keeps the result.
func (l *Loop) ask(ctx context.Context, s *checkState, r Record, c Check) {
	now, _ := l.Clock()
	gate := r.Spec.Gate

	l.mu.Lock()

	if s.asking || s.result.OK || now.Before(s.next) {
		l.mu.Unlock()
		return
	}

	s.begin(now)

	ctx, s.cancel = whileAwaited(ctx, gate, s.result)
	defer s.cancel()

	command := s.result.Command
	l.mu.Unlock()

	var err error
	if command {
		node := CommandNode{Rollout: r.ID, Name: c.Node, Addr: c.Addr, Group: c.Group}
		err = l.Command(ctx, gate.Command.Name, node, commandTime(gate))
	} else {
		err = l.askHTTP(ctx, gate.HTTP, c.Addr)
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	// A check that was cut short has no reason of its own.
	if s.asking = false; err == nil || ctx.Err() == nil {
		s.answer(gate, err, time.Now())
	}
}

// later returns at, or the time of the next poll if at has passed.
func later(at, now time.Time) time.Time {
	if at.After(now) {
		return at
	}
	return now.Add(checkEvery)
}

// whileAwaited returns the context of a check. A command is ended at the timeout of its check, because a
// later result is ignored.
func whileAwaited(
	ctx context.Context, g Gate, c CheckResult,
) (context.Context, context.CancelFunc) {
	if !c.Command {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, c.Since.Add(commandTime(g)))
}

func commandTime(g Gate) time.Duration {
	return cmp.Or(g.Command.Timeout, DefaultCheckTime)
}

func (l *Loop) askHTTP(ctx context.Context, c *HTTPCheck, addr string) error {
	status, err := l.Ask(ctx, c.URL(addr))
	if err == nil && !c.Passes(status) {
		err = fmt.Errorf("the status of the answer is %d", status)
	}
	return err
}

// maxError bounds the error of a check, in bytes.
const maxError = 200

// forgetChecks drops the results of checks that no rollout waits for any more, and cancels such checks
// that are in progress.
func (l *Loop) forgetChecks(list []*Record) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if len(l.checked) == 0 {
		return
	}

	open := map[checkKey]bool{}

	for _, r := range list {
		for k := range r.Nodes {
			if n := &r.Nodes[k]; n.State == Checking {
				open[checkKey{r.ID, n.Name, n.Attempt}] = true
			}
		}
	}

	for key, s := range l.checked {
		switch {
		case open[key]:
		case s.asking:
			s.cancel() // its end wakes the round, which drops it
		default:
			delete(l.checked, key)
		}
	}
}
