// SPDX-License-Identifier: Apache-2.0

package management

import (
	"context"
	"time"

	"github.com/contiv/cluster/inventory"
)

// For how long, and how many requests are remembered that are to be carried
// out once. Where there are more, the oldest are forgotten.
const (
	OnceFor   = 24 * time.Hour
	OnceLimit = 10_000
)

// IdempotencyKey makes of a request that may arrive several times one that is carried
// out once: what was done is kept under its key, in the transaction that did
// it. A refusal is not kept; the request is judged anew. nil: no such wish.
type IdempotencyKey struct {
	Key     string // of whose request it is, and of what kind
	Request string // a digest of what is asked for
	// Replayed is set where the request was carried out before: what is
	// returned is what it did then.
	Replayed bool
}

// IdempotencyResult is what is kept of a request that was carried out.
type IdempotencyResult struct {
	Request string    `json:"request"`
	Job     string    `json:"job,omitempty"` // that it made or changed
	Time    time.Time `json:"time"`
	// Revision is that of the transaction; not part of the record.
	Revision int64 `json:"-"`
}

func (o *IdempotencyKey) replayed() bool { return o != nil && o.Replayed }

func orZero(j *Job) Job {
	if j == nil {
		return Job{}
	}

	return *j
}

// done returns what was kept of the request; nil: it was not carried out yet.
// Whoever decides on a view has to take that before asking, so that it cannot
// show what this does not.
func (s *Service) done(ctx context.Context, once *IdempotencyKey) (*IdempotencyResult, error) {
	if once == nil {
		return nil, nil
	}

	d, err := s.Store.Done(ctx, once.Key)
	if d == nil || err != nil {
		return nil, err
	}

	if d.Request != once.Request {
		return nil, inventory.Errorf(inventory.KindKeyReused, "the Idempotency-Key was used at %s for another request", d.Time.UTC().Format(time.RFC3339)).
			Do("make a new key for every request, and repeat one only with the request that it was made for")
	}

	once.Replayed = true

	return d, s.Store.Wait(ctx, d.Revision)
}

// doneJob returns the job that the request made or changed, as it is now; nil:
// it was not carried out yet.
func (s *Service) doneJob(ctx context.Context, once *IdempotencyKey) (*Job, error) {
	d, err := s.done(ctx, once)
	if d == nil || err != nil {
		return nil, err
	}

	j, err := s.View().Job(d.Job)
	if err != nil {
		return nil, inventory.Errorf(inventory.KindExpired, "the request was carried out, as job %s, which is no longer kept", d.Job).
			Do("see what there is with clusterctl job list; to do it once more, make a new Idempotency-Key")
	}

	return &j, nil
}
