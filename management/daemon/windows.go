// SPDX-License-Identifier: Apache-2.0

package daemon

import "github.com/contiv/cluster/management/window"

// newWindows makes the keeper of the maintenance windows and the freeze.
func (d *Daemon) newWindows() *window.Keeper {
	return window.NewKeeper(window.Options{
		Store: d.store, Calendar: d.settings.Windows, Audit: d.audit,
	})
}
