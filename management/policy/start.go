// SPDX-License-Identifier: Apache-2.0

package policy

import "time"

// Start is the beginning of the process that decides. What is stored from before may be
// about a fleet that has changed since.
type Start struct {
	// Began is the time of the start; zero: there was none, as for a given inventory.
	Began time.Time
	// Observed is when every observer had given its first full report to the process; zero:
	// not yet.
	Observed time.Time
	// Epoch is since when the process decides on an even clock: its start, its newest jump of the
	// clock, or when it took over; zero: Began.
	Epoch time.Time
	// Jumps are the newest jumps of the clock in this process, the oldest first.
	Jumps []Jump
}

// Stepped returns the time of the newest jump of the clock, after the jump; zero: none.
func (s Start) Stepped() time.Time {
	if len(s.Jumps) == 0 {
		return time.Time{}
	}
	return s.Jumps[len(s.Jumps)-1].New
}

// early returns why it is too early after a start for an action that cannot be taken back,
// in words, and until when if that is a time. It returns "" after Settings.Settle.
func (w World) early() (reason string, until time.Time) {
	s := w.Start

	switch due := w.settled(s.Observed).Add(w.Settings.Settle); {
	case s.Began.IsZero():
		return "", time.Time{}
	case s.Observed.IsZero():
		reason = "the manager started at " + stamp(s.Began) + ", and waits for a full report of every observer"
		return reason, time.Time{}
	case w.Now.Before(due):
		return "the manager started at " + stamp(s.Began) + ", and its observers have to agree until " + stamp(due) +
			" (policies.settle)", due
	}

	return "", time.Time{}
}
