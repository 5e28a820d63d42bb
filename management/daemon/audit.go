// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/audit"
)

// maxAuditError bounds the error in an audit record, in bytes.
const maxAuditError = 4 << 10

// auditor writes audit records to the audit trail and to the daemon's log.
type auditor struct {
	trail *audit.Trail
	log   logrus.FieldLogger
}

var _ access.Encoder = auditor{}

// Encode implements access.Encoder.
func (a auditor) Encode(ctx context.Context, r access.Record) ([]byte, error) {
	return a.trail.Encode(entryOf(ctx, r))
}

// Record returns once the record of a change is stored. A refusal does not wait, so
// that a flood of refused requests costs no writes, nor does a deferred record.
func (a auditor) Record(ctx context.Context, r access.Record) {
	entry := entryOf(ctx, r)

	var err error

	switch {
	case r.Err != nil:
		err = a.trail.Refuse(entry)
	case r.Deferred:
		err = a.trail.Defer(entry)
	case !r.Stored:
		err = a.trail.Append(ctx, entry)
	}

	log := a.log.WithFields(fieldsOf(r, entry))

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
func entryOf(ctx context.Context, r access.Record) audit.Entry {
	entry := audit.Entry{
		Time: r.Time, Who: r.Principal, Credential: access.IdentityOf(ctx).Credential, From: r.From, Via: r.Via,
		Request: r.Request, Verb: r.Action, Targets: r.Targets, Job: r.Job, Reason: r.Reason, Replayed: r.Replayed,
		Result: audit.Done,
	}

	if r.Err != nil {
		// The error may quote the request.
		entry.Result = string(inventory.KindOf(r.Err))
		entry.Error = inventory.Shorten(r.Err.Error(), maxAuditError)
	}

	return entry
}

// fieldsOf returns the fields of a record in the log.
func fieldsOf(r access.Record, entry audit.Entry) logrus.Fields {
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

// openAudit makes the audit trail. Until its loop runs, entries wait in memory.
func (d *Daemon) openAudit() {
	d.trail = audit.New(audit.Options{
		Store: d.store, Instance: d.node.Name(), Keep: d.file.Audit.Keep, KeepFor: time.Duration(d.file.Audit.KeepFor),
		Leads:  func() bool { return d.member != nil && d.member.Leads() },
		Former: filepath.Join(d.file.DataDir, "audit"), Logger: d.opts.Logger,
	})
	d.audit = auditor{d.trail, d.opts.Logger}
}

// runAudit seals entries until Stop, which stores those that wait.
func (d *Daemon) runAudit(ctx context.Context) {
	d.onStop("entries of the audit trail", func(ctx context.Context) error { d.trail.Close(ctx); return nil })
	d.run(ctx, d.trail.Loop)
}
