// SPDX-License-Identifier: Apache-2.0

package access

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/contiv/cluster/inventory"
)

// Bounds of an audit record: a refused request may be as large as the largest body.
const (
	maxTargets = 100
	maxTarget  = 128     // bytes
	maxText    = 1 << 10 // bytes of action and reason
)

// Record is the audit record of one mutation, successful or refused.
type Record struct {
	Time      time.Time
	Principal string
	Action    string   // e.g. "jobs.submit", "nodes.forget", "variables.set"
	Targets   []string // nodes, addresses, jobs, scopes or keys
	Job       string   // the job that was made or changed
	Reason    string   // the operator's
	Replayed  bool     // a stored result was returned; nothing changed
	Request   string   // the id of the request; empty for the manager itself
	From, Via string   // as in Origin
	Deferred  bool     // the record may be stored soon after the answer, e.g. that of an observation
	Stored    bool     // the transaction of the change has the record
	Err       error    // nil: the mutation was made
}

// Auditor stores audit records. Record must not block for long: it is called
// after every mutation.
type Auditor interface {
	Record(ctx context.Context, r Record)
}

// Encoder is an Auditor whose records can be stored in the transaction of the change.
type Encoder interface {
	// Encode returns the stored form of a record, of one line.
	Encode(ctx context.Context, r Record) ([]byte, error)
}

// Audited carries out a mutation and leaves its audit record. mutate may complete
// the record, e.g. with the id of the new job. A transaction of the store under the context of mutate has
// the record; it must be the only one, or the last one, of the change. Else the record follows.
func Audited(
	ctx context.Context, a Auditor, c Caller, r Record, mutate func(context.Context, *Record) error,
) error {
	change := &Change{caller: c, record: &r}

	mutating := ctx
	if e, ok := a.(Encoder); ok && !r.Deferred {
		change.encode = e.Encode
		mutating = context.WithValue(ctx, changeKey{}, change)
	}

	// A refusal is part of the trail, so the error does not end this function.
	err := mutate(mutating, &r)
	r.Stored = change.state.Swap(changeOver) == changeStored

	complete(ctx, &r, c)
	r.Err, r.Replayed = err, c.Replayed()

	OriginOf(ctx).recorded.Store(true)
	a.Record(ctx, r)

	return err
}

// complete sets what a record has of the request, and bounds the rest.
func complete(ctx context.Context, r *Record, c Caller) {
	origin := OriginOf(ctx)
	r.Time, r.Principal = time.Now(), c.Principal
	r.Request, r.From, r.Via = origin.Request, origin.From, origin.Via
	r.Action, r.Reason = inventory.Shorten(r.Action, maxText), inventory.Shorten(r.Reason, maxText)
	r.Targets = inventory.ShortenAll(r.Targets, maxTargets, maxTarget)
}

// Entry is a part of a transaction: an audit record in its stored form.
type Entry []byte

// Announce returns the audit record of a decision of the manager as a part of the transaction that stores the
// decision, and what to call once that is carried out.
func Announce(ctx context.Context, a Auditor, c Caller, r Record) (part Entry, stored func()) {
	complete(ctx, &r, c)

	if e, ok := a.(Encoder); ok {
		// Without its stored form, the record follows.
		var err error
		part, err = e.Encode(ctx, r)
		r.Stored = err == nil
	}

	return part, func() { a.Record(ctx, r) }
}

// Change is a mutation under way, whose record a transaction of the store can have.
type Change struct {
	encode func(context.Context, Record) ([]byte, error)
	caller Caller
	record *Record
	state  atomic.Int32
}

// The states of a Change.
const (
	changeOpen int32 = iota
	changeTaken
	changeStored
	changeOver
)

type changeKey struct{}

// ChangeOf returns the mutation under a context, or nil.
func ChangeOf(ctx context.Context) *Change {
	c, _ := ctx.Value(changeKey{}).(*Change)
	return c
}

// Take returns the stored form of the record for a transaction, which Stored must follow; nil if another transaction
// has it. job is the job that the transaction makes or changes, or "".
func (c *Change) Take(ctx context.Context, job string) ([]byte, error) {
	if c == nil || !c.state.CompareAndSwap(changeOpen, changeTaken) {
		return nil, nil
	}

	r := *c.record
	complete(ctx, &r, c.caller)
	r.Job = cmp.Or(r.Job, job)

	line, err := c.encode(ctx, r)
	if err != nil {
		c.Stored(false)
	}
	return line, err
}

// Key returns the key whose result belongs into the transaction with the record, or nil.
func (c *Change) Key() *Key {
	if c.caller.Key == nil || !c.caller.Key.WithRecord {
		return nil
	}
	return c.caller.Key
}

// Stored ends Take, after the transaction was carried out or not.
func (c *Change) Stored(stored bool) {
	next := changeOpen
	if stored {
		next = changeStored
	}
	c.state.CompareAndSwap(changeTaken, next)
}
