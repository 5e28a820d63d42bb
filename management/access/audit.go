// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
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
	Err       error    // nil: the mutation was made
}

// Auditor stores audit records. Record must not block for long: it is called
// after every mutation.
type Auditor interface {
	Record(ctx context.Context, r Record)
}

// Audited carries out a mutation and leaves its audit record. mutate may complete
// the record, e.g. with the id of the new job.
func Audited(ctx context.Context, a Auditor, c Caller, r Record, mutate func(*Record) error) error {
	// A refusal is part of the trail, so the error does not end this function.
	err := mutate(&r)

	r.Time, r.Principal, r.Err = time.Now(), c.Principal, err
	r.Replayed = c.Replayed()

	origin := OriginOf(ctx)
	origin.recorded.Store(true)
	r.Request, r.From, r.Via = origin.Request, origin.From, origin.Via

	r.Action, r.Reason = inventory.Shorten(r.Action, maxText), inventory.Shorten(r.Reason, maxText)
	r.Targets = inventory.ShortenAll(r.Targets, maxTargets, maxTarget)
	a.Record(ctx, r)

	return err
}
