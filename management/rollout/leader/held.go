// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"time"

	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
)

// Held returns why the maintenance windows of a node hold it back from the rollout now, or "".
func (l *Leader) Held(v *state.View, r rollout.Record, node string) string {
	n, known := v.Lookup(node)
	if !known || l.Allowed == nil || r.Spec.OverrideWindow {
		return ""
	}

	return l.Allowed(v, r, &n, time.Now()).Reason
}
