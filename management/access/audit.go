// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"time"
)

// maxTargets limits the targets of one audit record.
const maxTargets = 100

// Record is the audit record of one mutation, successful or refused.
type Record struct {
	Time      time.Time
	Principal string
	Action    string   // e.g. "jobs.submit", "nodes.forget", "variables.set"
	Targets   []string // nodes, addresses, jobs, scopes or keys
	Job       string   // the job that was made or changed
	Reason    string   // the operator's
	Replayed  bool     // a stored result was returned; nothing changed
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
	r.Targets = r.Targets[:min(len(r.Targets), maxTargets)]
	a.Record(ctx, r)

	return err
}
