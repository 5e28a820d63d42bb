// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/metrics"
	"github.com/contiv/cluster/management/state"
)

// counts are the metrics of jobs.
type counts struct {
	ended    *metrics.CounterVec
	duration *metrics.HistogramVec
}

// causes are the causes with which a job may end.
var causes = []job.Cause{
	job.ExitDone, job.CauseFailed, job.CauseCancelled, job.CauseDeadline, job.CauseInterrupted, job.CausePrecondition,
	job.CauseAbsent, job.CauseInternal,
}

func newCounts(r metrics.Registry) counts {
	c := counts{
		ended:    r.Counter("clusterm_jobs_ended_total"),
		duration: r.Histogram("clusterm_job_duration_seconds"),
	}

	// Create each series at 0: without a sample before it, the first event would
	// not be an increase.
	for _, t := range inventory.Lifecycle {
		for _, cause := range causes {
			c.ended.WithLabelValues(string(t.Verb), string(cause))
		}

		for _, status := range []job.Status{job.Complete, job.Errored, job.Cancelled} {
			c.duration.WithLabelValues(string(t.Verb), string(status))
		}
	}

	return c
}

// storeEnd writes the end of a job and counts it.
func (e *Engine) storeEnd(ctx context.Context, j job.Job, writes []state.NodeWrite) (job.Job, error) {
	out, err := e.store.Finish(ctx, j, writes)
	if err == nil {
		e.counts.ended.WithLabelValues(string(out.Verb), string(cmp.Or(out.Cause, job.ExitDone))).Inc()

		// A job that was cancelled in the queue has no duration.
		if !out.Started.IsZero() {
			e.counts.duration.WithLabelValues(string(out.Verb), string(out.Status)).
				Observe(out.Ended.Sub(out.Started).Seconds())
		}
	}

	return out, err
}
