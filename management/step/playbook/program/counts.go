// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bytes"
	"cmp"

	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/metrics"
	"github.com/contiv/cluster/management/step/playbook"
)

// counts are the metrics of runs.
type counts struct {
	processes                        *metrics.GaugeVec
	starts, adoptions, cancellations *metrics.CounterVec
	ends                             *metrics.CounterVec
	bytes, lines, truncated          *metrics.CounterVec
}

// causes are the causes with which a run may end.
var causes = []job.Cause{
	job.ExitDone, job.CauseFailed, job.CauseCancelled, job.CauseDeadline, job.CauseInterrupted, job.CauseInternal,
}

func newCounts(r metrics.Registry) counts {
	c := counts{
		processes:     r.Gauge("clusterm_runner_processes"),
		starts:        r.Counter("clusterm_runner_starts_total"),
		adoptions:     r.Counter("clusterm_runner_adoptions_total"),
		cancellations: r.Counter("clusterm_runner_cancellations_total"),
		ends:          r.Counter("clusterm_runner_ends_total"),
		bytes:         r.Counter("clusterm_runner_output_bytes_total"),
		lines:         r.Counter("clusterm_runner_output_lines_total"),
		truncated:     r.Counter("clusterm_runner_truncated_total"),
	}

	// Create each series at 0: without a sample before it, the first event would
	// not be an increase.
	for _, s := range []job.Stream{job.StreamText, job.StreamEvents} {
		for _, vec := range []*metrics.CounterVec{c.bytes, c.lines, c.truncated} {
			vec.WithLabelValues(string(s))
		}
	}

	for _, cause := range causes {
		c.ends.WithLabelValues(string(cause))
	}

	return c
}

// emitted counts output of a run.
func (c counts) emitted(s job.Stream, chunk []byte) {
	c.bytes.WithLabelValues(string(s)).Add(float64(len(chunk)))
	c.lines.WithLabelValues(string(s)).Add(float64(bytes.Count(chunk, []byte{'\n'})))
}

func (c counts) ended(e playbook.RunExit, text, events bool) {
	cause := e.Cause
	// The engine derives the same cause from the code.
	if cause == "" && e.Code != 0 {
		cause = job.CauseFailed
	}

	c.ends.WithLabelValues(string(cmp.Or(cause, job.ExitDone))).Inc()

	if text {
		c.truncated.WithLabelValues(string(job.StreamText)).Inc()
	}

	if events {
		c.truncated.WithLabelValues(string(job.StreamEvents)).Inc()
	}
}
