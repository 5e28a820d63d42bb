// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/notify"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
)

const (
	asksAtOnce     = 32              // HTTP checks of a rollout
	commandsAtOnce = 16              // commands of a rollout
	checkEvery     = 2 * time.Second // of one node
	askTime        = 5 * time.Second // of one request
)

// checkKey identifies the checks of an attempt.
type checkKey struct {
	rollout, node string
	attempt       int
}

// checkKind is a kind of checks of a rollout. Each has a bound of its own, so that slow commands
// leave the other checks alone.
type checkKind struct {
	rollout string
	command bool
}

func (k checkKind) atOnce() int {
	if k.command {
		return commandsAtOnce
	}

	return asksAtOnce
}

// checkState is the newest result of a check.
type checkState struct {
	result rollout.CheckResult
	asking bool
	cancel context.CancelFunc // ends the asking
	next   time.Time          // when it is asked again
	// used is the part of the time of a check that was over when it had to wait for its turn.
	used time.Duration
}

// wait stops the time of the check.
func (s *checkState) wait(now time.Time) {
	if !s.result.Since.IsZero() {
		s.used, s.result.Since = now.Sub(s.result.Since), time.Time{}
	}
}

// begin lets the time of the check go on.
func (s *checkState) begin(now time.Time) {
	s.asking = true

	if s.result.Since.IsZero() {
		s.result.Since, s.used = now.Add(-s.used), 0
	}
}

// answer notes why the check failed, or nil. The command comes after the HTTP check, with a time
// of its own.
func (s *checkState) answer(g rollout.Gate, err error, now time.Time) {
	switch {
	case err != nil:
		// The time counts from the answer, so that a slow node has a pause as well.
		s.result.Error, s.next = inventory.Shorten(err.Error(), maxError), now.Add(checkEvery)
	case !s.result.Command && g.Command != nil:
		s.result, s.used = rollout.CheckResult{Command: true}, 0
	default:
		s.result.OK = true
	}
}

// result returns the newest result of the check.
func (l *Leader) result(id, node string, attempt int) rollout.CheckResult {
	l.mu.Lock()
	defer l.mu.Unlock()

	if s := l.checked[checkKey{id, node, attempt}]; s != nil {
		return s.result
	}

	return rollout.CheckResult{}
}

// check asks the node, unless it was asked just now, and returns when it is asked again.
func (l *Leader) check(ctx context.Context, r rollout.Record, c rollout.Check, now time.Time) time.Time {
	key, gate := checkKey{r.ID, c.Node, c.Attempt}, r.Spec.Gate

	l.mu.Lock()
	defer l.mu.Unlock()

	s := l.checked[key]
	if s == nil {
		s = &checkState{result: rollout.CheckResult{Command: gate.HTTP == nil}}
		l.checked[key] = s
	}

	if s.asking || s.result.OK || now.Before(s.next) {
		return later(s.next, now)
	}

	kind := checkKind{r.ID, s.result.Command}
	if l.asking[kind] >= kind.atOnce() { // another one ends soon
		s.wait(now)
		return now.Add(checkEvery)
	}

	s.begin(now)
	l.asking[kind]++

	ctx, s.cancel = whileAwaited(ctx, gate, s.result)

	l.tasks.Go(func() {
		defer l.Kick()

		err := l.ask(ctx, r, c, kind.command)

		l.mu.Lock()
		defer l.mu.Unlock()

		if l.asking[kind]--; l.asking[kind] == 0 {
			delete(l.asking, kind)
		}

		// A check that was cut short has no reason of its own.
		if s.asking = false; err == nil || ctx.Err() == nil {
			s.answer(gate, err, time.Now())
		}

		s.cancel()
	})

	return now.Add(checkEvery)
}

// later returns at, but not before the next check.
func later(at, now time.Time) time.Time {
	if at.After(now) {
		return at
	}

	return now.Add(checkEvery)
}

// ask makes the check of the node once. It returns why it failed, or nil.
func (l *Leader) ask(ctx context.Context, r rollout.Record, c rollout.Check, command bool) error {
	gate := r.Spec.Gate
	if !command {
		return l.askHTTP(ctx, gate.HTTP, c.Addr)
	}

	node := CommandNode{Rollout: r.ID, Name: c.Node, Addr: c.Addr, Group: c.Group}

	return l.Command(ctx, gate.Command.Name, node, commandTime(gate))
}

// whileAwaited returns the context of a check. Nobody waits for a command after its time.
func whileAwaited(
	ctx context.Context, g rollout.Gate, c rollout.CheckResult,
) (context.Context, context.CancelFunc) {
	if !c.Command {
		return context.WithCancel(ctx)
	}

	return context.WithDeadline(ctx, c.Since.Add(commandTime(g)))
}

func commandTime(g rollout.Gate) time.Duration {
	return cmp.Or(g.Command.Timeout, rollout.DefaultCheckTime)
}

func (l *Leader) askHTTP(ctx context.Context, c *rollout.HTTPCheck, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()

	status, err := l.Ask(ctx, c.URL(addr))
	if err == nil && !c.Passes(status) {
		err = fmt.Errorf("the status of the answer is %d", status)
	}

	return err
}

// maxError bounds the error of a check, in bytes.
const maxError = 200

// forgetChecks drops the results of checks that none of the rollouts waits for, and ends those
// that are being made.
func (l *Leader) forgetChecks(list []*rollout.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if len(l.checked) == 0 {
		return
	}

	open := map[checkKey]bool{}

	for _, r := range list {
		for k := range r.Nodes {
			if n := &r.Nodes[k]; n.State == rollout.Checking {
				open[checkKey{r.ID, n.Name, n.Attempt}] = true
			}
		}
	}

	for key, s := range l.checked {
		switch {
		case open[key]:
		case s.asking:
			s.cancel() // its end wakes the round that drops it
		default:
			delete(l.checked, key)
		}
	}
}

// client returns a client that asks nodes. It follows no redirect, uses no proxy, and keeps no
// connection. refuse, unless nil, refuses addresses to connect to.
func client(refuse func(network, address string, _ syscall.RawConn) error) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:       (&net.Dialer{Timeout: askTime, Control: refuse}).DialContext,
			DisableKeepAlives: true,
			//nolint:gosec // the request has no secret, and only the status of the answer counts
			TLSClientConfig:        &tls.Config{InsecureSkipVerify: true},
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// AskHTTP sends a GET request, and returns the status of the answer. It reads no body. A node reports its address
// itself, so none is asked behind which services trust this host, unless it is that of an instance.
func AskHTTP(ctx context.Context, v *state.View, target string) (int, error) {
	var own []string
	for _, i := range record.All(v, &state.Instances) {
		own = append(own, i.Addr)
	}

	const remedy = "the check asks only the node itself; correct the address that the node reports"

	return ask(ctx, client(notify.RefuseLocal(remedy, own...)), target)
}

func ask(ctx context.Context, c *http.Client, target string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, http.NoBody)
	if err != nil {
		return 0, err
	}

	resp, err := c.Do(req)
	if e, ok := errors.AsType[*url.Error](err); ok {
		return 0, e.Err // without the URL, which the rollout has
	}

	if err != nil {
		return 0, err
	}

	return resp.StatusCode, resp.Body.Close()
}
