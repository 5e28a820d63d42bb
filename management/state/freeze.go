// SPDX-License-Identifier: Apache-2.0

package state

import "time"

// Freeze holds back every job that would change a host.
type Freeze struct {
	On     bool
	Since  time.Time
	Until  time.Time // when it ends by itself; zero: never
	Actor  string    // the principal of the newest change
	Reason string    // of the newest change
	// Revision is the store's revision of the record; 0: there is none.
	Revision int64
}

// Active reports whether the freeze holds jobs back at that time.
func (f Freeze) Active(now time.Time) bool {
	return f.On && (f.Until.IsZero() || now.Before(f.Until))
}
