// SPDX-License-Identifier: Apache-2.0

package api

import "time"

// Windows is when nodes may change.
type Windows struct {
	Freeze  Freeze   `json:"freeze"`
	Windows []Window `json:"windows"`
}

// Window is one maintenance window.
type Window struct {
	Name     string     `json:"name"`
	Cron     string     `json:"cron"`
	Duration Duration   `json:"duration"`
	TimeZone string     `json:"time_zone"`
	Groups   []string   `json:"groups,omitempty"`
	Selector string     `json:"selector,omitempty"`
	Nodes    int        `json:"nodes"` // that it is for
	Open     bool       `json:"open"`
	Closes   *time.Time `json:"closes,omitempty"` // while it is open
	Opens    *time.Time `json:"opens,omitempty"`  // the next opening
}

// Freeze is the freeze of all changes.
type Freeze struct {
	Active bool       `json:"active"`
	Since  *time.Time `json:"since,omitempty"` // of the newest change
	Until  *time.Time `json:"until,omitempty"` // when it ends by itself; absent: never
	Actor  string     `json:"actor,omitempty"`
	Reason string     `json:"reason,omitempty"`
}

// FreezeRequest freezes all changes.
type FreezeRequest struct {
	Until  *time.Time `json:"until,omitempty"` // absent: until it is lifted
	Reason string     `json:"reason"`
}

// FreezeLift lifts the freeze.
type FreezeLift struct {
	Reason string `json:"reason,omitempty"`
}
