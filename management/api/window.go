// SPDX-License-Identifier: Apache-2.0

package api

import "time"

// Windows is when nodes may change.
type Windows struct {
	Freeze  Freeze   `json:"freeze"`
	Windows []Window `json:"windows"` // the maintenance windows, in the order of the configuration
}

// Window is a maintenance window. A node with several may change while one of them is open.
type Window struct {
	Name string `json:"name"` // its name
	// When it opens: minute, hour, day of the month, month and day of the week.
	Cron string `json:"cron"`
	// How long it stays open, e.g. 3h0m0s.
	Duration Duration   `json:"duration"`
	TimeZone string     `json:"time_zone"`          // the time zone of the expression, of the IANA database
	Groups   []string   `json:"groups,omitempty"`   // the groups whose nodes it is for
	Selector string     `json:"selector,omitempty"` // in place of groups: the selector of its nodes
	Nodes    int        `json:"nodes"`              // the number of nodes that it is for
	Open     bool       `json:"open"`               // whether it is open now
	Closes   *time.Time `json:"closes,omitempty"`   // when it closes, if it is open
	Opens    *time.Time `json:"opens,omitempty"`    // the next opening
}

// Freeze is the freeze of all changes of hosts.
type Freeze struct {
	Active bool       `json:"active"`           // whether changes are frozen now
	Since  *time.Time `json:"since,omitempty"`  // when it began, or was lifted
	Until  *time.Time `json:"until,omitempty"`  // when it ends by itself; absent if only an operator ends it
	Actor  string     `json:"actor,omitempty"`  // who froze changes, or lifted the freeze
	Reason string     `json:"reason,omitempty"` // the reason of that
}

// FreezeRequest is a request to freeze changes.
type FreezeRequest struct {
	// The end, a time to come; absent: until it is lifted.
	Until *time.Time `json:"until,omitempty" type:"string,null"`
	// The operator's reason, which everyone who waits is shown.
	Reason string `json:"reason" minLength:"1"`
}

// FreezeLift is a request to lift the freeze.
type FreezeLift struct {
	Reason string `json:"reason,omitempty"` // the operator's reason
}
