// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
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

// Delivery is one event on its way to one target. Its JSON is what the store keeps.
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

	// Revision is the store's revision of this record, where Deliveries returned it.
	Revision int64 `json:"-"`
}

// Position is how far the records were turned into events. Its JSON is what the store keeps.
type Position struct {
	// Revision is the last one whose changes are in deliveries; 0: begin now.
	Revision int64 `json:"revision"`
	// Problems are the parts of the manager that failed, sorted, as last reported.
	Problems []string `json:"problems,omitempty"`
}

// Store keeps deliveries, and the position. Errors are those of package state.
type Store interface {
	// FollowChanges calls emit with the changes of records after the revision, all of one
	// revision at a time and with its number, until ctx ends or emit fails. Each Enqueue leads
	// to a call. It is KindExpired if some of the changes are no longer kept.
	FollowChanges(ctx context.Context, after int64, emit func(revision int64, list []record.RawChange) error) error
	// Position returns the zero value if there is none.
	Position(ctx context.Context) (Position, error)
	// Enqueue adds the deliveries and sets the position, or does neither. It replaces
	// no delivery that exists.
	Enqueue(ctx context.Context, p Position, list []Delivery) error
	// Deliveries returns all deliveries, the oldest first.
	Deliveries(ctx context.Context) ([]Delivery, error)
	// PutDelivery writes a delivery. With a Revision it is KindConflict unless the record
	// is still at it.
	PutDelivery(ctx context.Context, d Delivery) error
	// DeleteDeliveries removes the deliveries with the ids.
	DeleteDeliveries(ctx context.Context, ids []string) error
	// Head returns the newest revision.
	Head(ctx context.Context) (int64, error)
}
