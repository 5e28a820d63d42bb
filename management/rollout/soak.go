// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"time"

	"github.com/contiv/cluster/inventory"
)

// stay identifies a period of a node in one state.
type stay struct {
	rollout, node string
	since         int64 // Node.Since, in nanoseconds since 1970
}

// soaks measures how long nodes have been in their states with a monotonic clock, so that setting the
// wall clock neither ends nor restarts a soak. Only the first observation after a start or a takeover
// uses the wall clock. The zero value is empty. It is not safe for concurrent use.
type soaks struct {
	began map[stay]time.Duration // on the steady clock
	seen  map[stay]time.Duration // entries of began that age returned since the last forget
}

// age returns how long the node has been in its state. known is false if the state began in the future
// by the wall clock.
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

// forget drops the entries that age did not use since the last call.
func (s *soaks) forget() { s.began, s.seen = s.seen, nil }
