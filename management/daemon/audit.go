// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
)

// maxAuditError bounds the error in an audit record, in bytes.
const maxAuditError = 4 << 10

// auditLog writes audit records to the daemon's log.
type auditLog struct{ log logrus.FieldLogger }

// Record writes the record at level info, or warning for a refusal.
func (a auditLog) Record(_ context.Context, r access.Record) {
	fields := logrus.Fields{"audit": r.Action, "principal": r.Principal, "targets": r.Targets}
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
		fields["kind"] = inventory.KindOf(r.Err)
		// The error may quote the request.
		fields[logrus.ErrorKey] = inventory.Shorten(r.Err.Error(), maxAuditError)
		a.log.WithFields(fields).Warn("mutation refused")

		return
	}

	a.log.WithFields(fields).Info("mutation")
}
