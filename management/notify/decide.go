// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"fmt"
	"slices"
	"time"

	"github.com/contiv/cluster/management/control"
)

// The limits of deliveries.
const (
	giveUpAfter = 24 * time.Hour     // a delivery is Dead that nobody accepted for so long
	keepFor     = 7 * 24 * time.Hour // ended deliveries
	keepEnded   = 1000               // ended deliveries of a target
	maxPending  = 1000               // pending deliveries of a target; the oldest beyond them are Dead
)

// decision is what is to be done with the deliveries at a time.
type decision struct {
	writes  []write
	due     map[string]Delivery // the oldest one that may be sent, by target
	retried map[string]int      // how often somebody made one pending again, by target
	next    time.Time           // the end of the next window of a bundle; zero: none
}

// write is the new form of a delivery, or its removal.
type write struct {
	Delivery

	remove bool
}

// decide decides on all deliveries, the oldest first.
func decide(list []Delivery, targets []Target, now time.Time) decision {
	d := decision{due: map[string]Delivery{}, retried: map[string]int{}}

	// A target without an entry gets nothing any more.
	configured := map[string]bool{}
	for _, t := range targets {
		configured[t.Name] = true
	}

	bundles := bundle(list, now)
	waiting, ended := map[string]int{}, map[string]int{}

	for _, one := range slices.Backward(list) {
		switch target := one.Target; {
		case one.Status != Pending:
			if ended[target]++; ended[target] > keepEnded || now.Sub(one.Created) > keepFor {
				d.writes = append(d.writes, write{Delivery: one, remove: true})
			}
		case !configured[target]:
			d.writes = append(d.writes, one.ended("the target is no longer configured"))
		case one.Held.After(now): // the held ones become one delivery
			d.next = control.Earliest(d.next, one.Held)
		default:
			if waiting[target]++; waiting[target] > maxPending {
				d.writes = append(d.writes, one.ended(fmt.Sprintf("more than %d newer ones were pending", maxPending)))
				continue
			}

			d.due[target], d.retried[target] = one, d.retried[target]+one.Retries
		}
	}

	// A bundle is there before the first of its members goes, and goes after the last one.
	d.writes = append(d.writes, bundles...)
	slices.Reverse(d.writes)

	return d
}

// ended gives a delivery up.
func (d Delivery) ended(reason string) write {
	d.Status, d.Error = Dead, reason
	return write{Delivery: d}
}

// after returns the delivery after an attempt that failed, or did not. A success of an earlier attempt
// without an answer cannot be known.
func (d Delivery) after(failed error, now time.Time) Delivery {
	d.Attempts, d.Last, d.Status, d.Error = d.Attempts+1, &now, Delivered, ""

	if failed != nil {
		d.Status, d.Error = Pending, oneLine(failed.Error())
		if IsPermanent(failed) || now.Sub(d.Created) > giveUpAfter {
			d.Status = Dead
		}
	}

	return d
}
