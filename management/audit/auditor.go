// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
)

// maxError bounds the error in an entry, in bytes.
const maxError = 4 << 10

// Auditor enters the records of mutations in the trail and in a log.
type Auditor struct {
	Trail *Trail
	Log   logrus.FieldLogger
}

var _ access.Encoder = Auditor{}

// Encode implements access.Encoder.
func (a Auditor) Encode(ctx context.Context, r access.Record) ([]byte, error) {
	return a.Trail.Encode(entryOf(ctx, r))
}

// Record returns once the record of a change is stored. A refusal does not wait, so
// that a flood of refused requests costs no writes, nor does a deferred record.
func (a Auditor) Record(ctx context.Context, r access.Record) {
	entry := entryOf(ctx, r)

	var err error

	switch {
	case r.Err != nil:
		err = a.Trail.Refuse(entry)
	case r.Deferred:
		err = a.Trail.Defer(entry)
	case !r.Stored:
		err = a.Trail.Append(ctx, entry)
	}

	log := a.Log.WithFields(fieldsOf(r, entry))

	switch {
	case err != nil:
		log.WithField("lost", err.Error()).Error("the audit trail has no entry for this")
	case r.Err != nil:
		log.Warn("refused")
	case r.Deferred: // who reports a change of state logs that itself
		log.Debug("mutation")
	default:
		log.Info("mutation")
	}
}

// entryOf returns the entry of a record.
func entryOf(ctx context.Context, r access.Record) Entry {
	entry := Entry{
		Time: r.Time, Who: r.Principal, Credential: access.IdentityOf(ctx).Credential, From: r.From, Via: r.Via,
		Request: r.Request, Verb: r.Action, Targets: r.Targets, Job: r.Job, Reason: r.Reason, Replayed: r.Replayed,
		Result: Done,
	}

	if r.Err != nil {
		// The error may quote the request.
		entry.Result = string(inventory.KindOf(r.Err))
		entry.Error = inventory.Shorten(r.Err.Error(), maxError)
	}

	return entry
}

// fieldsOf returns the fields of a record in the log.
func fieldsOf(r access.Record, entry Entry) logrus.Fields {
	fields := logrus.Fields{"audit": r.Action, "principal": r.Principal, "targets": r.Targets}

	if r.Request != "" {
		fields["request"] = r.Request
	}

	if r.Job != "" {
		fields["job"] = r.Job
	}

	if r.Reason != "" {
		fields["reason"] = r.Reason
	}

	if r.Replayed {
		fields["replayed"] = true
	}

	if r.Err != nil {
		fields["kind"], fields[logrus.ErrorKey] = entry.Result, entry.Error
	}

	return fields
}
