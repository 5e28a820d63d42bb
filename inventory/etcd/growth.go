// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"fmt"
	"strings"
)

// Growth is what to do next about the members of a cluster.
type Growth struct {
	// Promote are learners to promote one right after the other. With the last one the
	// number of voters is odd again.
	Promote  []ClusterMember
	Warnings []GrowthWarning
}

// GrowthWarning is a state of the members that an operator should know of.
type GrowthWarning struct {
	Code    WarningCode
	Message string
}

// WarningCode identifies a kind of GrowthWarning.
type WarningCode string

// The warnings.
const (
	WarnNotAvailable WarningCode = "not-highly-available" // two members: either is needed, or only one votes
	WarnEven         WarningCode = "even-voters"          // one voter more than the same safety needs
	WarnSilent       WarningCode = "member-silent"        // members do not answer
	WarnBehind       WarningCode = "learner-behind"       // a learner that is waited for lacks data
	WarnSpare        WarningCode = "learner-spare"        // a learner without a second one to grow with
)

// Grow decides what to do next with the members, as Members returns them: the number of
// voters goes from 1 to 3 and from 3 to 5, with two learners that have caught up. An even
// number, which a removal or an interrupted growth leaves, becomes odd with one learner.
// A promotion that would need members without an answer for its quorum waits.
func Grow(members []ClusterMember) Growth {
	var (
		g                      Growth
		voters, answer         int
		ready, behind, waiting []ClusterMember
		silent                 []string
	)
	for _, m := range members {
		if !m.Healthy {
			silent = append(silent, m.Title())
		}

		switch {
		case !m.Learner:
			voters++
			if m.Healthy {
				answer++
			}
		case CaughtUp(m, members):
			ready = append(ready, m)
		default:
			behind = append(behind, m)
		}
	}

	wanted := 1 + voters%2
	if len(ready) >= wanted && voters+wanted <= MaxMembers && keepsQuorum(voters, answer, wanted) {
		g.Promote = ready[:wanted]
		ready = ready[wanted:]
	}

	waiting = ready

	if len(silent) > 0 {
		g.warn(WarnSilent, "%s of the store's members: no answer from %s",
			count(len(silent), len(members)), strings.Join(silent, ", "))
	}

	if len(g.Promote) > 0 {
		return g
	}

	if len(members) == 2 {
		g.warn(WarnNotAvailable,
			"two instances are not highly available: the service stops with %s; add a third one", whoStops(members))
	} else if voters%2 == 0 {
		g.warn(WarnEven, "%d voting members of the store bear the loss of no more than %d would; "+
			"add an instance or remove one", voters, voters-1)
	}

	if len(behind) > 0 && len(behind) > len(silent)-(voters-answer) {
		g.warn(WarnBehind, "%s: still copying the store", strings.Join(titles(behind), ", "))
	}

	if len(waiting) > 0 && len(members) > 2 {
		g.warn(WarnSpare, "%s: has no vote in the store, because the number of voters stays odd and "+
			"within %d", strings.Join(titles(waiting), ", "), MaxMembers)
	}

	return g
}

// keepsQuorum reports whether after each of the promotions enough members answer.
func keepsQuorum(voters, answer, promoted int) bool {
	for i := 1; i <= promoted; i++ {
		if answer+i < (voters+i)/2+1 {
			return false
		}
	}
	return answer >= voters/2+1
}

// whoStops names the members that two instances depend on.
func whoStops(members []ClusterMember) string {
	for _, m := range members {
		if m.Learner {
			continue
		}
		for _, o := range members {
			if o.ID != m.ID && o.Learner {
				return m.Title()
			}
		}
	}
	return "either of them"
}

func (g *Growth) warn(code WarningCode, format string, args ...any) {
	g.Warnings = append(g.Warnings, GrowthWarning{code, fmt.Sprintf(format, args...)})
}

func count(n, of int) string { return fmt.Sprintf("%d of %d", n, of) }

func titles(members []ClusterMember) []string {
	var t []string
	for _, m := range members {
		t = append(t, m.Title())
	}
	return t
}
