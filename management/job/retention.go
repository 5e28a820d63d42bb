// SPDX-License-Identifier: Apache-2.0

package job

import (
	"slices"
	"time"
)

// Retention limits the ended jobs that are kept. A zero field sets no limit.
type Retention struct {
	Count int
	Age   time.Duration
	Bytes int64 // of all logs together, uncompressed
}

// Expired returns the ids of the ended jobs outside the limits, the oldest
// first to go. The newest job is kept even if it is larger than the limit.
func (r Retention) Expired(jobs []*Job, now time.Time) []string {
	var expired []string

	kept, bytes := 0, int64(0)
	for _, j := range slices.Backward(jobs) {
		if !j.Status.Ended() {
			continue
		}

		kept++
		bytes += j.LogBytes

		overCount := r.Count > 0 && kept > r.Count
		overAge := r.Age > 0 && now.Sub(j.Ended) > r.Age
		overBytes := r.Bytes > 0 && bytes > r.Bytes && kept > 1

		if overCount || overAge || overBytes {
			expired = append(expired, j.ID)
		}
	}

	return expired
}
