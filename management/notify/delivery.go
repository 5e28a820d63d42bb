// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/contiv/cluster/management/record"
)

// Status is the position of a delivery in its life.
type Status string

// The statuses of a delivery.
const (
	Pending   Status = "pending"
	Delivered Status = "delivered"
	// Dead: the target refused it for good, or did not accept it in time. Retry makes it
	// pending again.
	Dead Status = "dead"
	// Bundled: it is a part of another delivery, with a Count.
	Bundled Status = "bundled"
)

// Delivery is one event on its way to one target.
type Delivery struct {
	ID       string    `json:"id"` // of the event, and the target: unique
	Target   string    `json:"target"`
	Event    Event     `json:"event"`
	Status   Status    `json:"status"`
	Created  time.Time `json:"created"`
	Attempts int       `json:"attempts,omitempty"`
	Last     time.Time `json:"last,omitzero"`     // of the last attempt
	Error    string    `json:"error,omitempty"`   // of the last attempt; empty: none
	Retries  int       `json:"retries,omitempty"` // how often somebody made it pending again
	// Held is when an event in a storm is sent or bundled; zero: at once. It is that of its
	// members in a bundle.
	Held    time.Time `json:"held,omitzero"`
	Through time.Time `json:"through,omitzero"` // of a bundle: the creation of its newest member

	Revision int64 `json:"-"` // of the last write; 0: it is not stored
}

// DeliveryKind are the deliveries, in the order in which they are sent.
var DeliveryKind = record.Kind[Delivery]{
	Name:    "deliveries",
	Key:     func(d *Delivery) string { return d.ID },
	At:      func(d *Delivery, revision int64) { d.Revision = revision },
	Compare: func(a, b *Delivery) int { return byAge(*a, *b) },
}

// byAge orders deliveries by their creation.
func byAge(a, b Delivery) int {
	return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID))
}

// Position is how far the records were turned into events.
type Position struct {
	// Revision is the last one whose changes are in deliveries; 0: begin now.
	Revision int64 `json:"revision"`
	// Problems are the parts of the manager that failed, sorted, as last reported.
	Problems []string `json:"problems,omitempty"`
}

// PositionKind is the position.
var PositionKind = record.Kind[Position]{Name: "notified", Single: true}

// Store keeps records, and their changes for a while.
type Store interface {
	record.Store
	// ReadChanges calls emit with the changes of records after the revision, all of one revision
	// at a time and with its number, up to those of now. It returns the newest revision of the
	// store, and is KindExpired if some of the changes are no longer kept.
	ReadChanges(ctx context.Context, after int64, emit func(revision int64, list []record.RawChange) error) (
		newest int64, err error)
}
