// SPDX-License-Identifier: Apache-2.0

package window

import (
	"time"

	"github.com/contiv/cluster/management/record"
)

// Freeze holds back every job that would change a host.
type Freeze struct {
	On     bool      `json:"on,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	Until  time.Time `json:"until,omitzero"`  // when it ends by itself; zero: never
	Actor  string    `json:"actor,omitempty"` // the principal of the newest change
	Reason string    `json:"reason,omitempty"`
}

// FreezeKind is the one freeze of a store. While it cannot be read, jobs are held back, see
// Control.
var FreezeKind = record.Kind[Freeze]{
	Name: "freeze", Single: true,
	Damaged: func(_ string, last *Freeze) *Freeze { return last },
	// A freeze holds the nodes of every scope.
	Show: func(f *Freeze, s record.Scope) *Freeze {
		shown := *f
		shown.Reason = s.Text(f.Reason)
		return &shown
	},
}

// FreezeOf returns the freeze of a view; a zero one if there never was any.
func FreezeOf(r record.Reader) Freeze { return record.One(r, &FreezeKind) }

// Active reports whether the freeze holds jobs back at that time.
func (f Freeze) Active(now time.Time) bool {
	return f.On && (f.Until.IsZero() || now.Before(f.Until))
}
