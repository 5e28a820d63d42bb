// SPDX-License-Identifier: Apache-2.0

package management

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// retain removes what is older or larger than the configuration keeps.
func (s *Service) retain(ctx context.Context) {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()

	for {
		if err := s.prune(ctx); err != nil && ctx.Err() == nil {
			s.Logger.WithError(err).Warn("old jobs could not be removed; trying again in a minute")
		}

		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (s *Service) prune(ctx context.Context) error {
	v, settings := s.View(), s.Settings()

	drop := expired(v.Jobs, settings, s.now())
	if err := s.Store.DropJobs(ctx, drop); err != nil {
		return err
	}

	if err := s.Store.DropDone(ctx, s.now().Add(-OnceFor), OnceLimit); err != nil {
		return err
	}

	return s.Playbooks.Prune(ctx, func() (runs, trees []string) {
		for _, j := range s.View().Jobs {
			if !slices.Contains(trees, j.PlaybookDigest) {
				trees = append(trees, j.PlaybookDigest) // also of those that ended: they can be retried
			}

			if j.Status.Ended() {
				continue
			}

			for i := range j.Runs {
				runs = append(runs, runID(j, i))
			}
		}

		return runs, trees
	})
}

// runID names a run for ever.
func runID(j Job, index int) string { return fmt.Sprintf("%s-%d", j.ID, index) }

// expired are the ended jobs that the retention no longer keeps: the oldest of
// those over the count, over the age, or over the bytes of all logs.
func expired(all []Job, settings Settings, now time.Time) []string {
	var drop []string

	kept, bytes := 0, int64(0)
	for _, j := range slices.Backward(all) {
		if !j.Status.Ended() {
			continue
		}

		kept++

		bytes += j.LogBytes
		if settings.KeepJobs > 0 && kept > settings.KeepJobs ||
			settings.KeepFor > 0 && now.Sub(j.Ended) > settings.KeepFor ||
			settings.KeepBytes > 0 && bytes > settings.KeepBytes && kept > 1 {
			drop = append(drop, j.ID)
		}
	}

	return drop
}
