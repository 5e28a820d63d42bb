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
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
)

const (
	checksAtOnce = 32
	checkEvery   = 2 * time.Second // of one node
	askTime      = 5 * time.Second // of one request
)

// checkKey identifies the checks of an attempt.
type checkKey struct {
	rollout, node string
	attempt       int
}

// checkState is the newest result of a check.
type checkState struct {
	result rollout.CheckResult
	asking bool
	next   time.Time // when it is asked again
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
	key := checkKey{r.ID, c.Node, c.Attempt}

	l.mu.Lock()
	defer l.mu.Unlock()

	s := l.checked[key]
	if s == nil {
		s = &checkState{}
		l.checked[key] = s
	}

	if s.asking || now.Before(s.next) {
		return later(s.next, now)
	}

	select {
	case l.slots <- struct{}{}:
	default: // another one ends soon
		return now.Add(checkEvery)
	}

	s.asking = true

	l.tasks.Go(func() {
		defer func() { <-l.slots }()
		defer l.wake()

		result := l.checks(ctx, r, c)

		l.mu.Lock()
		defer l.mu.Unlock()

		// The time counts from the answer, so that a slow node has a pause as well.
		s.result, s.asking, s.next = result, false, time.Now().Add(checkEvery)
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

// checks makes the checks of the gate once: the command only after the HTTP check succeeded.
func (l *Leader) checks(ctx context.Context, r rollout.Record, c rollout.Check) rollout.CheckResult {
	gate := r.Spec.Gate
	result := rollout.CheckResult{Known: true, OK: true}

	if gate.HTTP != nil {
		result = l.ask(ctx, gate.HTTP, c.Addr)
	}

	if gate.Command == nil || !result.OK {
		return result
	}

	// Later than that nobody waits for it.
	within := cmp.Or(gate.Command.Timeout, rollout.DefaultCheckTime)
	node := CommandNode{Rollout: r.ID, Name: c.Node, Addr: c.Addr, Group: c.Group}

	if err := l.Command(ctx, gate.Command.Name, node, within); err != nil {
		return rollout.CheckResult{Known: true, Error: inventory.Shorten(err.Error(), maxError)}
	}

	return result
}

// ask asks the node once.
func (l *Leader) ask(ctx context.Context, c *rollout.HTTPCheck, addr string) rollout.CheckResult {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()

	result := rollout.CheckResult{Known: true}

	target, err := c.URL(addr)
	if err != nil {
		result.Error = err.Error()
		return result
	}

	status, err := l.Ask(ctx, target)

	switch {
	case err != nil:
		result.Error = inventory.Shorten(err.Error(), maxError)
	case c.Passes(status):
		result.OK = true
	default:
		result.Error = fmt.Sprintf("the status of the answer is %d", status)
	}

	return result
}

// maxError bounds the error of a check, in bytes.
const maxError = 200

// forgetChecks drops the results of checks that no rollout waits for.
func (l *Leader) forgetChecks(v *state.View) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if len(l.checked) == 0 {
		return
	}

	// A check that is being asked is dropped in a later round.
	open := map[checkKey]bool{}

	for i := range v.Rollouts {
		r := &v.Rollouts[i]
		for k := range r.Nodes {
			if n := &r.Nodes[k]; n.State == rollout.Checking {
				open[checkKey{r.ID, n.Name, n.Attempt}] = true
			}
		}
	}

	for key, s := range l.checked {
		if !open[key] && !s.asking {
			delete(l.checked, key)
		}
	}
}

// client asks nodes. It follows no redirect, uses no proxy, and keeps no connection.
var client = &http.Client{
	Transport: &http.Transport{
		DialContext:       (&net.Dialer{Timeout: askTime}).DialContext,
		DisableKeepAlives: true,
		//nolint:gosec // the request has no secret, and only the status of the answer counts
		TLSClientConfig:        &tls.Config{InsecureSkipVerify: true},
		MaxResponseHeaderBytes: 64 << 10,
	},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// AskHTTP sends a GET request, and returns the status of the answer. It reads no body.
func AskHTTP(ctx context.Context, target string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, http.NoBody)
	if err != nil {
		return 0, err
	}

	resp, err := client.Do(req)
	if e, ok := errors.AsType[*url.Error](err); ok {
		return 0, e.Err // without the URL, which the rollout has
	}

	if err != nil {
		return 0, err
	}

	return resp.StatusCode, resp.Body.Close()
}
