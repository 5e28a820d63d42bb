// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"time"
)

// Identity identifies an instance. Two values are equal if they denote the same
// instance on the same host: a data directory that was copied to another host
// has the ID of the original, but another node name.
type Identity struct {
	ID   string `json:"id"`   // random, kept in the data directory: stable over restarts
	Node string `json:"node"` // name of the instance's own node
}

// ErrOwnershipLost is the cause with which the context of a job ends when this
// instance no longer owns the job.
var ErrOwnershipLost = errors.New("this instance no longer owns the job")

// Membership is the authority of this instance among all instances. All methods
// may be called at once.
type Membership interface {
	// Leads reports whether this instance does the singleton duties now: it
	// schedules the queue, assigns its jobs to instances, and applies the retention. It does
	// not block. The jobs that an instance owns do not depend on it.
	Leads() bool

	// Own makes this instance the owner of a job that is assigned to it. assigned is the
	// revision of the job's record that says so. The returned context ends
	// with ErrOwnershipLost as its cause when the ownership is lost. Work on the
	// job, including all its writes, runs under that context. The caller must
	// call release, which ends the context and gives the job up; it may block for
	// a few seconds.
	//
	// Own blocks while the store is slow. It returns KindConflict if the record has changed,
	// KindRefused if another live instance owns the job, and KindUnavailable if the store
	// does not answer.
	Own(ctx context.Context, jobID string, assigned int64) (owned context.Context, release func(), err error)
}

// Alone is the membership of an instance without others: it always leads, and
// never loses a job.
type Alone struct{}

var _ Membership = Alone{}

// Leads returns true.
func (Alone) Leads() bool { return true }

// Own returns a child of ctx that ends with release.
func (Alone) Own(ctx context.Context, _ string, _ int64) (context.Context, func(), error) {
	owned, release := context.WithCancel(ctx)
	return owned, release, nil
}

// Token orders the owners of jobs: those of one job, and those of the jobs that hold one node after another. Its
// numbers are compared in this order.
type Token struct {
	Epoch    int64 // of the store: revisions may begin anew in a restored one
	Revision int64 // at which the ownership was written; 0: there is no order
}

// ownership is what the context of an owned job has.
type ownership struct {
	token   Token
	expires func() time.Time
}

// ownershipKey is the key of an ownership in the context of an owned job.
type ownershipKey struct{}

// WithLease returns the context of an owned job. expires returns, without blocking, until when its lease is certain to
// last, by a clock that never runs behind that of the store.
func WithLease(ctx context.Context, token Token, expires func() time.Time) context.Context {
	return context.WithValue(ctx, ownershipKey{}, ownership{token, expires})
}

// TokenOf returns the token of the owned job of the context; zero: it has none.
func TokenOf(ctx context.Context) Token {
	o, _ := ctx.Value(ownershipKey{}).(ownership)
	return o.token
}

// Owned reports whether the job of the context is certain to be owned still. After a pause of this
// process it notices the loss before the context ends.
func Owned(ctx context.Context) bool {
	until := OwnedUntil(ctx)
	return ctx.Err() == nil && (until.IsZero() || time.Now().Before(until))
}

// OwnedUntil returns the time until which the job of the context is certain to be owned, unless the lease is renewed;
// zero: there is no lease.
func OwnedUntil(ctx context.Context) time.Time {
	o, _ := ctx.Value(ownershipKey{}).(ownership)
	if o.expires == nil {
		return time.Time{}
	}
	return o.expires()
}
