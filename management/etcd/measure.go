// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"time"

	"github.com/contiv/cluster/inventory/etcd"
	"github.com/contiv/cluster/management/metrics"
	"github.com/contiv/cluster/management/state"
)

// spacesTimeout limits the wait of a scrape for an endpoint of the store.
const spacesTimeout = time.Second

// Count counts the round trips to etcd from now on, and notes those that were a trouble.
func (s *Store) Count(r metrics.Registry, troubles *state.Troubles) {
	roundTrip := r.Histogram("clusterm_etcd_round_trip_seconds").WithLabelValues()
	unanswered := r.Counter("clusterm_etcd_unanswered_total").WithLabelValues()

	s.OnProbe(func(took time.Duration, err error) {
		switch {
		case err == nil:
			roundTrip.Observe(took.Seconds())
			troubles.Probed(took, time.Now())
		case !errors.Is(err, context.Canceled): // a stop of the daemon is no failure of the store
			unanswered.Inc()
		}
	})
}

// CountUpkeep returns the function that counts an action of the upkeep.
func CountUpkeep(r metrics.Registry) func(etcd.UpkeepAction) {
	count := r.Counter("clusterm_etcd_upkeep_total")

	// Without a sample before it, the first action would not be an increase.
	for _, action := range etcd.UpkeepActions {
		count.WithLabelValues(string(action))
	}

	return func(a etcd.UpkeepAction) { count.WithLabelValues(string(a)).Inc() }
}

// Measure emits the metrics of the view and of the databases.
func (s *Store) Measure(emit func(name string, value float64, labels ...string)) {
	v := s.View()
	emit("clusterm_view_revision", float64(v.Revision))
	emit("clusterm_view_staleness_seconds", s.Staleness().Seconds())
	emit("clusterm_view_stale", gaugeOf(v.Stale))

	for kind, count := range s.Conflicts() {
		emit("clusterm_store_conflicts_total", float64(count), kind)
	}

	s.measureSpaces(emit)
}

// gaugeOf returns 1 for true and 0 for false.
func gaugeOf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (s *Store) measureSpaces(emit func(string, float64, ...string)) {
	ctx, cancel := context.WithTimeout(context.Background(), spacesTimeout)
	defer cancel()

	for _, space := range s.client.Spaces(ctx) {
		endpoint := space.Endpoint
		emit("clusterm_etcd_up", gaugeOf(space.Err == nil), endpoint)

		// Without an answer there is no size to emit; clusterm_etcd_up is 0.
		if space.Err != nil {
			continue
		}

		emit("clusterm_etcd_db_size_bytes", float64(space.File), endpoint)
		emit("clusterm_etcd_db_in_use_bytes", float64(space.InUse), endpoint)

		if space.Quota > 0 {
			emit("clusterm_etcd_db_quota_bytes", float64(space.Quota), endpoint)
		}

		for _, alarm := range etcd.Alarms {
			emit("clusterm_etcd_alarm", gaugeOf(space.Raised(alarm)), endpoint, string(alarm))
		}
	}
}
