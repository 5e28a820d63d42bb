// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"time"

	"github.com/contiv/cluster/inventory"
)

// stay is the time of a node in one state.
type stay struct {
	rollout, node string
	since         int64 // Node.Since, in nanoseconds since 1970
}

// soaks remembers the ages of nodes in their states on a clock that never jumps: a wall clock that
// is set during a soak must neither end it nor begin it anew. Only the age at the first sight,
// after a start or a takeover, is by the wall clock. The zero value remembers nothing. It is
// for one goroutine at a time.
type soaks struct {
	began map[stay]time.Duration // on the steady clock
	seen  map[stay]time.Duration // those of began that were asked for since forget
}

// age returns for how long the node has been in its state. known is false at the first sight of
// a time in the future.
func (s *soaks) age(id string, n *Node, now time.Time, steady time.Duration) (age time.Duration, known bool) {
	key := stay{id, n.Name, n.Since.UnixNano()}

	began, remembered := s.began[key]
	if !remembered {
		began, remembered = s.seen[key]
	}

	if !remembered {
		passed := now.Round(0).Sub(n.Since)
		if passed < -inventory.ClockSlack {
			return 0, false
		}
		began = steady - max(passed, 0)
	}

	if s.seen == nil {
		s.seen = map[stay]time.Duration{}
	}

	s.seen[key] = began

	return steady - began, true
}

// forget drops the ages that were not asked for since the last call.
func (s *soaks) forget() { s.began, s.seen = s.seen, nil }
