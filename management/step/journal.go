// SPDX-License-Identifier: Apache-2.0

package step

import (
	"context"
	"sync"
	"time"

	"github.com/contiv/cluster/management/job"
)

// recordEvery is how often the results of a step that goes on are recorded.
const recordEvery = time.Second

// journal records results of hosts before their step ends. One write takes all that wait: the record of a job is large.
type journal struct {
	out Events

	mu      sync.Mutex
	waiting map[string]job.HostResult

	writing sync.Mutex // held during a write
	failed  error      // of a write: the end of the journal
}

// add has a result recorded soon.
func (j *journal) add(host string, r job.HostResult) {
	j.mu.Lock()
	defer j.mu.Unlock()

	if j.waiting == nil {
		j.waiting = map[string]job.HostResult{}
	}
	j.waiting[host] = r
}

// write returns once a result is recorded.
func (j *journal) write(ctx context.Context, host string, r job.HostResult) error {
	j.add(host, r)
	return j.flush(ctx)
}

// flush records what waits. It returns once everything is recorded that was added before.
func (j *journal) flush(ctx context.Context) error {
	j.writing.Lock()
	defer j.writing.Unlock()

	j.mu.Lock()
	batch := j.waiting
	j.waiting = nil
	j.mu.Unlock()

	if j.failed == nil && len(batch) > 0 {
		j.failed = j.out.Results(ctx, batch)
	}
	return j.failed
}

// keep records what waits once in a while, until ctx ends. The end of the step records what is left.
func (j *journal) keep(ctx context.Context) {
	ticker := time.NewTicker(recordEvery)
	defer ticker.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if j.flush(ctx) != nil {
				return
			}
		}
	}
}
