// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"maps"

	"github.com/contiv/cluster/management/notify"
)

// wireNotifier makes the notifier, and starts nothing.
func (d *Daemon) wireNotifier() {
	d.notifier = notify.New(notify.Options{
		Store: d.store, Leads: d.member.Leads, Health: d.complaints,
		Manager: d.node.Name(), Audit: d.audit, Logger: d.opts.Logger.WithField("part", "notifications"),
	})

	config := d.settings.Current()
	d.notifier.SetTargets(config.Targets())
}

// complaints returns the checks of the health that failed, by part, without that of the
// notifications itself.
func (d *Daemon) complaints(ctx context.Context) map[string]string {
	checks := maps.Clone(d.health(ctx).Checks)

	// Gossip that is off is no problem, and a target that is down is no reason to notify
	// others.
	maps.DeleteFunc(checks, func(part, said string) bool {
		return said == "ok" || said == "off" || part == "notifications"
	})

	return checks
}
