// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"encoding/json"
	"iter"

	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// AuditFollower follows the audit trail, and reconnects by itself.
type AuditFollower interface {
	FollowAudit(ctx context.Context, o client.AuditOptions) iter.Seq2[api.AuditEntry, error]
}

// Audit prints the entries of the audit trail as they are made, one line each, or with
// lines one JSON object each, until ctx is cancelled.
func Audit(ctx context.Context, from AuditFollower, o client.AuditOptions, lines bool, out Output) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	outage, begun := newOutage(func(s string) { out.Say("%s", s) }, ""), false

	o.Lost = func(err error) {
		// Without a first answer there is nothing to resume.
		if !begun {
			cancel(err)
			return
		}

		outage.begin(err)
	}
	o.Found = func() {
		if !begun {
			out.Say("following the audit trail; press Ctrl-C to stop")
		}

		begun = true

		outage.over()
	}

	for e, err := range from.FollowAudit(ctx, o) {
		if err != nil {
			return watchError(ctx, err)
		}

		if lines {
			err = AuditLines([]api.AuditEntry{e}, out)
		} else {
			p := &print.Printer{Style: out.Style}
			p.AuditEntry(e)
			err = out.Write(p.Bytes())
		}

		if err != nil {
			return err
		}
	}

	return nil
}

// AuditLines prints entries, one JSON object per line.
func AuditLines(entries []api.AuditEntry, out Output) error {
	for _, e := range entries {
		text, err := json.Marshal(e)
		if err != nil {
			return err
		}
		if err := out.Write(append(text, '\n')); err != nil {
			return err
		}
	}

	return nil
}
