// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/record"
)

// The statuses of a delivery.
const (
	Pending   = "pending"
	Delivered = "delivered"
	// Dead: the target refused it for good, or did not accept it in time. Retry makes it
	// pending again.
	Dead = "dead"
	// Bundled: it is a part of another delivery, with a Count.
	Bundled = "bundled"
)

// Delivery is one event on its way to one target. Its ID is that of the event, and the target.
type Delivery struct {
	api.Delivery

	Retries int `json:"retries,omitempty"` // how often somebody made it pending again
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

// pending returns a new delivery of an event.
func pending(target string, e Event, created time.Time) Delivery {
	return Delivery{Delivery: api.Delivery{
		ID: target + "/" + e.ID, Target: target, Event: e, Status: Pending, Created: created,
	}}
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
