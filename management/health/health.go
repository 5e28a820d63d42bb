// SPDX-License-Identifier: Apache-2.0

// Package health has the condition of a manager: a list of checks, each registered by the part that it is about.
package health

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/state"
)

// timeout limits all checks of one report.
const timeout = 5 * time.Second

// Check looks at one part.
type Check struct {
	Part string // its name in the report; empty: it only warns
	// Do returns warnings, which do not degrade the health, and the problem of the part, or nil. It blocks until ctx
	// ends at most.
	Do func(ctx context.Context, v *state.View) (warnings []string, problem error)
}

// Problem returns a check without warnings.
func Problem(part string, do func(context.Context, *state.View) error) Check {
	return Check{part, func(ctx context.Context, v *state.View) ([]string, error) { return nil, do(ctx, v) }}
}

// Warn returns a check that only warns.
func Warn(do func(v *state.View) []string) Check {
	return Check{"", func(_ context.Context, v *state.View) ([]string, error) { return do(v), nil }}
}

// ErrOff is the problem of a part that is turned off, which is none.
var ErrOff = errors.New("off")

// Text returns a list for a warning that may be empty.
func Text(warning string) []string {
	if warning == "" {
		return nil
	}
	return []string{warning}
}

// Complaints returns the checks that failed, by part, without that of the notifications itself: a target that is down
// is no reason to notify others. What is turned off is no problem.
func Complaints(h api.Health) map[string]string {
	checks := maps.Clone(h.Checks)
	maps.DeleteFunc(checks, func(part, said string) bool {
		return said == "ok" || said == ErrOff.Error() || part == "notifications"
	})

	return checks
}

// Of makes the checks of the instance with that name in order.
func Of(ctx context.Context, node string, v *state.View, checks []Check) api.Health {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	h := api.Health{
		Status: api.HealthOK, Instance: node, Revision: v.Revision, Stale: v.Stale, Nodes: len(v.Nodes()),
		Checks: map[string]string{}, Jobs: map[api.JobStatus]int{},
	}

	for _, c := range checks {
		warnings, problem := c.Do(ctx, v)
		h.Warnings = append(h.Warnings, warnings...)

		switch {
		case c.Part == "":
		case problem == nil:
			h.Checks[c.Part] = "ok"
		case errors.Is(problem, ErrOff):
			h.Checks[c.Part] = "off"
		default:
			h.Checks[c.Part], h.Status = problem.Error(), api.HealthDegraded
		}
	}

	for _, j := range v.Jobs() {
		if !j.Status.Ended() {
			h.Jobs[api.JobStatus(j.Status)]++
		}
	}

	return h
}
