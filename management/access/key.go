// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/plan"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// The limits of stored results. The oldest are dropped first.
const (
	ResultAge   = 24 * time.Hour
	ResultLimit = 10_000
)

// Key makes a mutation idempotent: its result is stored with the transaction,
// and a retry returns it. A refusal is not stored; a retry is decided anew.
type Key struct {
	ID      string // identifies the caller, the operation and the client's key
	Request string // digest of the request's content
	// Replayed is set if the mutation was carried out before and the stored
	// result is returned.
	Replayed bool
}

// Result is the stored result of a mutation with a key.
type Result struct {
	Request string
	Job     string // the job that was made or changed
	Plan    string // the plan that was made
	Rollout string // the rollout that was started
	Time    time.Time
	// Revision is the revision of the transaction; it is not stored.
	Revision int64
}

// Results reads stored results by quorum.
type Results interface {
	// Result returns the result stored under the key, or nil.
	Result(ctx context.Context, key string) (*Result, error)
}

// StoreResult is a part of a transaction: it stores the result of a mutation under its key. The commit
// is KindConflict if there is one already.
type StoreResult struct {
	Key    Key
	Result Result
}

// Keep stores the result of the caller's mutation with its transaction, if the mutation has a key.
func (c Caller) Keep(tx *record.Tx, r Result) {
	if c.Key != nil {
		tx.Attach(StoreResult{*c.Key, r})
	}
}

// Replayed reports whether the caller's mutation returned a stored result.
func (c Caller) Replayed() bool { return c.Key != nil && c.Key.Replayed }

// Replay returns the stored result of the caller's key, once the view shows it,
// or nil if the mutation was not carried out yet. Take the view to decide on
// before calling Replay: then a result that Replay misses makes the write
// conflict.
func (c Caller) Replay(ctx context.Context, results Results, r state.Reader) (*Result, error) {
	if c.Key == nil {
		return nil, nil
	}

	result, err := results.Result(ctx, c.Key.ID)
	if result == nil || err != nil {
		return nil, err
	}

	// One key for two requests is a fault of the client. Neither may be guessed.
	if result.Request != c.Key.Request {
		return nil, inventory.Errorf(inventory.KindKeyReused,
			"the Idempotency-Key was already used for a different request at %s",
			result.Time.UTC().Format(time.RFC3339)).
			Do("make a new key for every request, and repeat a key only with the same request")
	}

	c.Key.Replayed = true

	return result, r.Wait(ctx, result.Revision)
}

// ReplayJob returns the job that the caller's mutation made or changed, as it is
// now, or nil if the mutation was not carried out yet.
func (c Caller) ReplayJob(ctx context.Context, results Results, r state.Reader) (*job.Job, error) {
	result, err := c.Replay(ctx, results, r)
	if result == nil || err != nil {
		return nil, err
	}

	j, err := r.View().Job(result.Job)
	if err != nil {
		return nil, inventory.Errorf(inventory.KindExpired,
			"the request was carried out, as job %s, which is no longer kept", result.Job).
			Do("list the jobs that are kept; to do it once more, make a new Idempotency-Key").
			With(inventory.ListJobs())
	}

	return &j, nil
}

// ReplayPlan returns the plan that the caller's mutation made, as it is now, or nil if
// the mutation was not carried out yet.
func (c Caller) ReplayPlan(ctx context.Context, results Results, r state.Reader) (*plan.Plan, error) {
	result, err := c.Replay(ctx, results, r)
	if result == nil || err != nil {
		return nil, err
	}

	p := record.Get(r.View(), &plan.Kind, result.Plan)
	if p == nil {
		return nil, inventory.Errorf(inventory.KindExpired,
			"the request was carried out, as plan %s, which is no longer kept", result.Plan).
			Do("list the plans that are kept; to make another one, make a new Idempotency-Key").
			With(inventory.ListPlans())
	}

	return p, nil
}
