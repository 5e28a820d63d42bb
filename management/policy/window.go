// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/state"
	"github.com/contiv/cluster/management/window"
)

// held reports whether the action on a node may begin now. A repair changes its host, so
// it waits for a maintenance window, and for the observers after a start; the others do not.
func (w World) held(o outlook, n *inventory.Node) window.Verdict {
	if o.stage != stageAct || o.decision.Action != state.ActionRepair {
		return window.Verdict{OK: true}
	}

	if early, until := w.early(); early != "" {
		return window.Verdict{Reason: early, Until: until}
	}

	return w.Settings.Windows.Allowed(w.View, n, w.Now)
}
