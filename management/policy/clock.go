// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/contiv/cluster/inventory"
)

// Jump is a jump of the clock between two readings of it.
type Jump struct {
	// New is the second reading, and Old the same moment without the jump.
	Old, New time.Time
	Gap      time.Duration // between the readings
}

// maxJumps is the number of jumps that a Clock remembers.
const maxJumps = 16

// Clock finds the jumps of the wall clock of one process, such as the first answer of a time
// server after a start with a dead battery. The zero value has read no time yet. It is for one
// goroutine at a time.
type Clock struct {
	wall   time.Time
	steady time.Duration
	jumps  []Jump
}

// Read returns the newest jumps of the wall clock, the oldest first, this reading included.
// steady never jumps, and may begin anywhere.
func (c *Clock) Read(wall time.Time, steady time.Duration) []Jump {
	// A monotonic reading would hide the jump.
	wall = wall.Round(0)

	if gap := steady - c.steady; !c.wall.IsZero() && wall.Sub(c.wall.Add(gap)).Abs() >= inventory.ClockSlack {
		// Earlier callers keep their jumps.
		jumps := append(slices.Clone(c.jumps), Jump{Old: c.wall.Add(gap), New: wall, Gap: gap})
		c.jumps = jumps[max(0, len(jumps)-maxJumps):]
	}

	c.wall, c.steady = wall, steady

	return c.jumps
}

// Age returns how long ago a stored time was, also after jumps of the clock. Where the time
// may be from before and from after a jump, it is the shorter age. The age of a time from before the
// process is by the clock of now. It reports false for a time in the future that the clock of this
// process has never shown.
func (w World) Age(t time.Time) (age time.Duration, ok bool) {
	shown, passed := w.Now, time.Duration(0)

	for _, j := range slices.Backward(w.Start.Jumps) {
		if !t.Before(j.New.Add(-j.Gap)) && !t.After(shown.Add(inventory.ClockSlack)) {
			return passed + shown.Sub(t), true
		}

		passed += shown.Sub(j.New)
		shown = j.Old
	}

	if t.After(shown.Add(inventory.ClockSlack)) {
		return w.Now.Sub(t), !w.future(t)
	}

	// The sum could overflow for a time such as the zero one.
	return passed + min(shown.Sub(t), math.MaxInt64-passed), true
}

// epoch is the time since which this process reads an even clock. Ages are only computed from timestamps
// after it, because the clock may have jumped there. Zero: all timestamps count.
func (w World) epoch() time.Time {
	if !w.Start.Epoch.IsZero() {
		return w.Start.Epoch
	}
	return w.Start.Began
}

// since returns the start of a waiting period that began at the stored time. It is for irreversible actions:
// time before the epoch does not count, because it may be of any length.
func (w World) since(t time.Time) time.Time {
	if epoch := w.epoch(); !t.IsZero() && (t.Before(epoch) || w.future(t) && !epoch.IsZero()) {
		return epoch
	}
	return t
}

// settled returns the start of a short wait that began at the stored time. The wait goes on over a restart,
// and begins anew at a jump of the clock.
func (w World) settled(t time.Time) time.Time {
	if t.Before(w.Start.Stepped()) {
		return w.Start.Stepped()
	}
	return w.past(t)
}

// past returns the stored time, or the epoch for one in the future.
func (w World) past(t time.Time) time.Time {
	if w.future(t) {
		return w.since(t)
	}
	return t
}

// future reports whether a clock that was ahead took the stored time.
func (w World) future(t time.Time) bool { return t.After(w.Now.Add(inventory.ClockSlack)) }

// recent reports whether an answer of a host still counts.
func (w World) recent(c inventory.Contact) bool {
	return !w.future(c.Time) && !c.Time.Before(w.Start.Stepped()) && w.Now.Sub(c.Time) <= EvidenceFor
}

// jumped explains a limit that counts decisions from before a jump of the clock, or returns "".
func (w World) jumped() string {
	if w.Start.Stepped().IsZero() || w.Now.Sub(w.Start.Stepped()) >= RateWindow {
		return ""
	}
	return fmt.Sprintf("; the clock jumped at %s, so what began before counts", stamp(w.Start.Stepped()))
}

// aheadFor is how long a clock has to run evenly before it is trusted more than a stored time in the future.
// Before that, the clock itself may not have been set since the start.
const aheadFor = 10 * time.Minute

// Ahead returns the nodes with a presence in the future, as they are to be stored: with
// such a time, everything that happens to the node would look older.
func Ahead(w World) []inventory.Node {
	if epoch := w.epoch(); epoch.IsZero() || w.Now.Sub(epoch) < aheadFor {
		return nil
	}

	var ahead []inventory.Node

	for _, n := range w.View.Nodes() {
		if w.future(n.Presence.Newest()) {
			m := n.Clone()
			m.Presence = n.Presence.Until(w.Now)
			ahead = append(ahead, m)
		}
	}

	return ahead
}
