// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"cmp"
	"time"
)

// Reach is the result of an attempt to reach a host by ssh. The zero value is a
// successful login.
type Reach struct {
	// Port is the reason why no ssh server answers; empty if one does, and for a
	// host behind a jump host.
	Port string
	// Login is the reason why the login failed. It is empty as well if there was
	// no attempt, because of Port.
	Login string
	// Silent: nothing accepts connections at the address and port.
	Silent bool
	// NoAnswer: the network has no sign of the host: a timeout, or no route to it. A host
	// that refuses connections is up, and a failure on this machine tells nothing.
	NoAnswer bool
	// Took is the time from the first connection to the result, without the wait for
	// a turn.
	Took time.Duration
}

// OK reports whether the login succeeded.
func (r Reach) OK() bool { return r.Port == "" && r.Login == "" }

// Reason returns why the login failed or was not attempted, or "".
func (r Reach) Reason() string { return cmp.Or(r.Port, r.Login) }
