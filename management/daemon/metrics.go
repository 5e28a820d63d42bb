// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"time"

	"github.com/contiv/cluster/management/metrics"
	"github.com/contiv/cluster/management/metrics/present"
	"github.com/contiv/cluster/management/notify"
	"github.com/contiv/cluster/management/policy"
)

// newDecisions returns the counter of the decisions of policies.
func newDecisions(r metrics.Registry) *metrics.CounterVec {
	count := r.Counter("clusterm_policy_decisions_total")

	// Without a sample before it, the first decision would not be an increase.
	for _, action := range policy.Actions {
		count.WithLabelValues(action.Policy, string(action.Action))
	}

	return count
}

// snapshot emits the metrics of the present state.
func (d *Daemon) snapshot(emit func(name string, value float64, labels ...string)) {
	v := d.store.View()
	present.Measure(v, d.settings.Current().Jobs.Forks, time.Now(), emit)

	counts := d.desired.Of(v).Count(v.Nodes())
	emit("clusterm_nodes_outdated", float64(counts.Outdated))
	emit("clusterm_nodes_configuration_unknown", float64(counts.Unknown))

	deliveries := d.notifier.Counts()
	for _, status := range []string{notify.Pending, notify.Delivered, notify.Dead} {
		emit("clusterm_notification_deliveries", float64(deliveries[status]), status)
	}

	emit("clusterm_ssh_key_laggards", float64(len(d.sshKey.Laggards())))
	d.store.Measure(emit)
	d.gossip.Measure(emit)
	d.loopMetrics(emit)

	if d.embedded != nil {
		emit("clusterm_etcd_restarts_total", float64(d.embedded.Restarts()))
	}

	if d.certificates != nil {
		server, ca := d.certificates.Expiry()
		emit("clusterm_certificate_expiry_timestamp_seconds", float64(server.Unix()), "server")
		emit("clusterm_certificate_expiry_timestamp_seconds", float64(ca.Unix()), "ca")
	}
}

func (d *Daemon) loopMetrics(emit func(name string, value float64, labels ...string)) {
	gauge := map[bool]float64{true: 1}

	d.mu.Lock()
	loops := d.loops
	d.mu.Unlock()

	for _, l := range loops {
		s := l.Status()
		emit("clusterm_loop_on_duty", gauge[s.OnDuty], s.Name)
		emit("clusterm_loop_failing", gauge[s.Failure != ""], s.Name)
		emit("clusterm_loop_rounds_total", float64(s.Rounds), s.Name)
		emit("clusterm_loop_failures_total", float64(s.Failures), s.Name)
	}
}
