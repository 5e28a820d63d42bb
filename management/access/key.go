// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
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
	// WithRecord has the transaction with the audit record store the result. Else the mutation stores its own, see
	// Caller.Keep.
	WithRecord bool
	// Replayed is set if the mutation was carried out before and the stored
	// result is returned.
	Replayed bool
}

// ErrCarriedOut is returned by a transaction with the audit record of a mutation whose key has a result: the mutation
// was carried out meanwhile by another request with the key.
var ErrCarriedOut = inventory.Errorf(inventory.KindRefused,
	"another request with the same Idempotency-Key has carried it out meanwhile").Do("repeat it with the key")

// Result is the stored result of a mutation with a key.
type Result struct {
	Request string    `json:"request"`
	Job     string    `json:"job,omitempty"`     // the job that was made or changed
	Plan    string    `json:"plan,omitempty"`    // the plan that was made
	Rollout string    `json:"rollout,omitempty"` // the rollout that was started
	Time    time.Time `json:"time"`
	// Revision is the revision of the transaction; it is not stored.
	Revision int64 `json:"-"`
}

// ids returns the ids of the records by the names of their kinds.
func (r Result) ids() map[string]string {
	return map[string]string{"jobs": r.Job, "plans": r.Plan, "rollouts": r.Rollout}
}

// Results reads stored results by quorum.
type Results interface {
	// Result returns the result stored under the key, or nil.
	Result(ctx context.Context, key string) (*Result, error)
}

// Waiter has a view.
type Waiter interface {
	// Wait blocks until the view has reached the revision.
	Wait(ctx context.Context, revision int64) error
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
func (c Caller) Replay(ctx context.Context, results Results, v Waiter) (*Result, error) {
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

	return result, v.Wait(ctx, result.Revision)
}

// Once makes and changes the records of a kind, each once for a key.
type Once[T any] struct {
	Kind    *record.Kind[T]
	Records record.Store
	Results Results
	State   state.Reader
}

// Replay returns the record that the caller's mutation made or changed, as it is now, and whether the mutation was
// carried out.
func (o Once[T]) Replay(ctx context.Context, c Caller) (r T, found bool, err error) {
	result, err := c.Replay(ctx, o.Results, o.State)
	if result == nil || err != nil {
		return r, false, err
	}
	id := result.ids()[o.Kind.Name]
	if kept := record.Get(o.State.View(), o.Kind, id); kept != nil {
		return *kept, true, nil
	}

	return r, false, inventory.Errorf(inventory.KindExpired,
		"the request was carried out, as %s %s, which is no longer kept", strings.TrimSuffix(o.Kind.Name, "s"), id).
		Do("list the %s that are kept; to do it once more, make a new Idempotency-Key", o.Kind.Name).
		With(inventory.Action{Name: inventory.ActionName("list-" + o.Kind.Name)})
}

// Decide is Decide for a request that may have a key: it returns what Replay does, and decides
// only if that finds nothing. The decision stores its result, see Caller.Keep.
func (o Once[T]) Decide(
	ctx context.Context, c Caller, subject Subject, decide func(*record.Tx) (T, error),
) (T, error) {
	replay := func() (T, bool, error) { return o.Replay(ctx, c) }

	made, revision, err := decideAs(ctx, o.Records, c, subject, replay, decide)
	if revision > 0 {
		o.Kind.At(&made, revision)
	}
	return made, err
}
