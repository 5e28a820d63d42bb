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
	"github.com/contiv/cluster/management/setting"
)

// maxAuditError bounds the error in an audit record, in bytes.
const maxAuditError = 4 << 10

// auditor writes audit records to the audit trail and to the daemon's log.
type auditor struct {
	trail *audit.Log
	log   logrus.FieldLogger
}

// Record returns once the record of a change is synced. A refusal does not wait, so
// that a flood of refused requests costs no syncs, nor does a deferred record.
func (a auditor) Record(ctx context.Context, r access.Record) {
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

	var err error

	switch {
	case r.Err != nil:
		err = a.trail.Refuse(entry)
	case r.Deferred:
		err = a.trail.Defer(ctx, entry)
	default:
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

// openAudit continues the audit trail.
func (d *Daemon) openAudit() error {
	trail, err := audit.Open(audit.Options{
		Dir: auditDir(d.file.Config), Instance: d.node.Name(), Keep: d.file.Audit.Keep,
		KeepFor: time.Duration(d.file.Audit.KeepFor), Logger: d.opts.Logger,
	})
	if err != nil {
		return inventory.Errorf(inventory.KindUnavailable, "%w", err).
			Do("make %s writable, with space for it, or restore it", auditDir(d.file.Config))
	}

	d.onStop("audit trail", func(context.Context) error { return trail.Close() })
	d.trail, d.audit = trail, auditor{trail, d.opts.Logger}

	return nil
}

func auditDir(c setting.Config) string { return filepath.Join(c.DataDir, "audit") }

// VerifyAudit checks the audit trail of the configuration in a file, with or without a
// running daemon. It ends with ctx.
func VerifyAudit(ctx context.Context, configPath string) (audit.Report, error) {
	f, err := setting.Load(configPath, adapters{})
	if err != nil {
		return audit.Report{}, err
	}
	return audit.Verify(ctx, auditDir(f.Config))
}

// ReadAudit calls emit with the selected entries of the audit trail, the oldest first,
// until ctx ends.
func ReadAudit(
	ctx context.Context, configPath string, filter audit.Filter, emit func(audit.Entry) error,
) error {
	f, err := setting.Load(configPath, adapters{})
	if err != nil {
		return err
	}
	return audit.Read(ctx, auditDir(f.Config), filter, emit)
}
