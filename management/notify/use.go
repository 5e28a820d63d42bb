// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/access"
)

// TargetStatus is a target with its deliveries.
type TargetStatus struct {
	Name   string
	To     string // where it sends to, without secrets
	Events []Kind
	// Pending, Delivered and Dead count its deliveries, ended ones as long as they are
	// kept.
	Pending, Delivered, Dead int
	Last                     *Delivery // the newest that was tried; nil: none
}

// Counts counts the deliveries that are kept by status, those to former targets as well.
func (n *Notifier) Counts() map[Status]int {
	n.mu.Lock()
	defer n.mu.Unlock()

	counts := map[Status]int{}
	for _, d := range n.queue {
		counts[d.Status]++
	}

	return counts
}

// Status returns the targets of the configuration, in its order.
func (n *Notifier) Status(ctx context.Context) ([]TargetStatus, error) {
	stored, err := n.Store.Deliveries(ctx)
	if err != nil {
		return nil, err
	}
	markBundled(stored)

	var list []TargetStatus

	for _, t := range n.Targets() {
		s := TargetStatus{Name: t.Name, To: t.Sender.Describe(), Events: t.Events}

		// Few targets, and a bounded number of deliveries of each.
		for _, d := range stored {
			if d.Target != t.Name {
				continue
			}

			switch d.Status {
			case Pending:
				s.Pending++
			case Delivered:
				s.Delivered++
			case Dead:
				s.Dead++
			case Bundled: // it counts as its bundle
			}

			if d.Attempts > 0 && (s.Last == nil || d.Last.After(s.Last.Last)) {
				s.Last = &d
			}
		}

		list = append(list, s)
	}

	return list, nil
}

// List returns the deliveries of a target, the oldest first. It is KindNotFound for a
// target that is not configured.
func (n *Notifier) List(ctx context.Context, target string) ([]Delivery, error) {
	if _, err := n.target(target); err != nil {
		return nil, err
	}

	stored, err := n.Store.Deliveries(ctx)
	markBundled(stored)
	slices.SortFunc(stored, byAge) // in the order in which they are sent

	return slices.DeleteFunc(stored, func(d Delivery) bool { return d.Target != target }), err
}

// target returns the target, or KindNotFound.
func (n *Notifier) target(name string) (Target, error) {
	var names []string

	for _, t := range n.Targets() {
		if t.Name == name {
			return t, nil
		}

		names = append(names, t.Name)
	}

	// The remedy names the others, if there are any.
	refused := inventory.Errorf(inventory.KindNotFound, "there is no notification target %q", name)
	if len(names) == 0 {
		return Target{}, refused.Do("configure it under notifications in the configuration file")
	}
	return Target{}, refused.Do("the targets are %s", strings.Join(names, ", "))
}

// Test sends a test event to a target at once, and returns its answer as an error of
// KindRefused.
func (n *Notifier) Test(ctx context.Context, c access.Caller, name string) error {
	record := access.Record{Action: "notifications.test", Targets: []string{name}}

	return access.Audited(ctx, n.Audit, c, record, func(*access.Record) error {
		t, err := n.target(name)
		if err != nil {
			return err
		}

		// A test is not queued: its answer is the point.
		now := time.Now()
		e := Event{
			ID: fmt.Sprintf("%s-%d", KindTest, now.UnixNano()), Kind: KindTest, Time: now, Manager: n.Manager,
			Summary: "a test of notifications", Actor: c.Principal,
		}

		ctx, cancel := context.WithTimeout(ctx, n.Timeout)
		defer cancel()

		if err := t.Sender.Send(ctx, e, now); err != nil {
			return inventory.Errorf(inventory.KindRefused, "%s did not accept the test: %w", name, err).
				Do("correct the target in the configuration file, or the receiver")
		}

		// The pending deliveries can go now.
		n.mu.Lock()
		defer n.mu.Unlock()

		delete(n.fails, name)
		n.wake()

		return nil
	})
}

// Failing returns a target that has accepted nothing for at least the given time, and since
// when; an empty name if there is none.
func (n *Notifier) Failing(atLeast time.Duration) (name string, since time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()

	for _, target := range slices.Sorted(maps.Keys(n.fails)) {
		if since := n.fails[target].since; time.Since(since) >= atLeast {
			return target, since
		}
	}

	return "", time.Time{}
}

// Retry makes the Dead deliveries of a target pending again, and returns their number.
// The target is tried at once, with its pending deliveries as well.
func (n *Notifier) Retry(ctx context.Context, c access.Caller, name string) (count int, err error) {
	record := access.Record{Action: "notifications.retry", Targets: []string{name}}

	err = access.Audited(ctx, n.Audit, c, record, func(*access.Record) error {
		list, err := n.List(ctx, name)
		if err != nil {
			return err
		}

		// The pending deliveries can go now, too.
		n.mu.Lock()
		delete(n.fails, name)
		n.wake()
		n.mu.Unlock()

		for _, d := range list {
			if d.Status != Dead {
				continue
			}

			switch err := n.retry(ctx, d); inventory.KindOf(err) {
			case "":
				count++
			case inventory.KindConflict: // somebody else did, or it was removed
			default:
				return err
			}
		}

		return nil
	})

	return count, err
}

// retry makes a Dead delivery pending again, or is KindConflict.
func (n *Notifier) retry(ctx context.Context, d Delivery) error {
	if err := n.lockWrites(ctx); err != nil {
		return err
	}

	defer n.unlockWrites()

	// It has a day again. Another instance that leads finds it at its next look.
	d.Status, d.Created, d.Retries = Pending, time.Now(), d.Retries+1
	if err := n.Store.PutDelivery(ctx, d); err != nil {
		return err
	}

	n.mu.Lock()
	defer n.mu.Unlock()

	n.again(d)

	return nil
}
