// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"errors"
	"time"

	"github.com/contiv/cluster/inventory"
)

// Target is a receiver of events, as the configuration names it.
type Target struct {
	Name   string
	Events []Kind
	// Matches limits the events about a node; nil: every node. Events without a node, as
	// that of a job, are not limited.
	Matches func(*inventory.Node) bool
	// Single: each event is a message of its own, also in a storm.
	Single bool

	Sender Sender
}

// Sender brings an event to a target.
type Sender interface {
	// Send blocks until the target has accepted the event, or ctx ends. attempt is the
	// time of this attempt. An error for which IsPermanent is true would come again.
	Send(ctx context.Context, e Event, attempt time.Time) error
	// Describe returns where it sends to, without secrets.
	Describe() string
}

// unusable is the sender of a target that cannot be used. It keeps its deliveries until it can.
type unusable struct{ err error }

// Unusable returns the sender of a target that cannot be used for a reason.
func Unusable(reason error) Sender { return unusable{reason} }

// Describe implements Sender.
func (u unusable) Describe() string { return "nowhere: " + u.err.Error() }

// Send implements Sender.
func (u unusable) Send(context.Context, Event, time.Time) error { return u.err }

// permanent is an error that a repetition does not mend.
type permanent struct{ error }

// Unwrap returns the error itself.
func (p permanent) Unwrap() error { return p.error }

// Permanent marks an error as one that a repetition does not mend.
func Permanent(err error) error { return permanent{err} }

// IsPermanent reports whether a repetition of the delivery is pointless.
func IsPermanent(err error) bool {
	_, ok := errors.AsType[permanent](err)
	return ok
}
