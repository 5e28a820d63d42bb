// SPDX-License-Identifier: Apache-2.0

package inventory

import "time"

// Power is what the BMC of a node said about its power when the manager last asked. It is a fact about the machine, and
// changes no status.
type Power struct {
	Node string `json:"node"` // the name of the node
	// The power; empty: the BMC never said it. changing: it is being turned on or off.
	Power string `json:"power,omitempty" enum:"on,off,changing"`
	// When the BMC first said so.
	Since *time.Time `json:"since,omitempty"`
	// Why the BMC does not say it now; empty: it does.
	Problem string `json:"problem,omitempty"`
	// The problem is that the BMC refused the login: it answers.
	LoginRefused bool `json:"login_refused,omitempty"`
	// When the problem began.
	ProblemSince *time.Time `json:"problem_since,omitempty"`
}

// Observed returns the power after the BMC said it, or failed to at that time for the reason problem.
func (p Power) Observed(power, problem string, now time.Time) Power {
	if problem != "" {
		if p.ProblemSince == nil {
			p.ProblemSince = &now
		}
		p.Problem = problem

		return p
	}

	if p.Power != power {
		p.Power, p.Since = power, &now
	}
	p.Problem, p.ProblemSince = "", nil

	return p
}
