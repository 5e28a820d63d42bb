// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/state"
)

// opinion describes what ssh found on the host of a silent node, or returns "".
func opinion(n inventory.Node) string {
	away := n.Presence.Away

	switch {
	case n.State != inventory.Disappeared || away.Time.IsZero():
		return ""
	case away.Reached:
		return second(away) + ": its agent has stopped or the gossip is cut, and the host is up"
	}

	return second(away)
}

// Sentence returns a decision in one sentence.
func Sentence(d state.Decision) string {
	text := fmt.Sprintf("policy %s decided on %s: %s (%s)", d.Policy, stamp(d.Time), d.Action, d.Case)
	if d.Job != "" {
		text += ", job " + d.Job
	}
	if d.Rollout != "" {
		text += ", rollout " + d.Rollout
	}

	if len(d.Evidence) > 0 {
		text += "; evidence: " + strings.Join(d.Evidence, ", ")
	}

	switch d.Phase {
	case state.PhaseRefused:
		text += "; it was refused: " + d.Result
	case state.PhaseWithdrawn:
		text += "; it was withdrawn: " + d.Result
	}

	return text
}
