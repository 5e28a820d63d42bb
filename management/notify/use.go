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
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/record"
)

// Counts counts the deliveries that are kept by status, those to former targets as well.
func (n *Notifier) Counts() map[string]int {
	counts := map[string]int{}
	for _, d := range n.deliveries() {
		counts[d.Status]++
	}

	return counts
}

// Status returns the targets of the configuration, in its order, with the numbers of their deliveries.
func (n *Notifier) Status() []api.Notification {
	stored := n.deliveries()
	list := []api.Notification{}

	for _, t := range n.Targets() {
		s := api.Notification{Name: t.Name, To: t.Sender.Describe(), Events: t.Events}
		// A bundled one counts as its bundle.
		counts := map[string]*int{Pending: &s.Pending, Delivered: &s.Delivered, Dead: &s.Dead, Bundled: new(int)}

		// Few targets, and a bounded number of deliveries of each.
		for _, d := range stored {
			if d.Target != t.Name {
				continue
			}

			*counts[d.Status]++

			if d.Last != nil && (s.Last == nil || d.Last.After(*s.Last.Last)) {
				s.Last = &d.Delivery
			}
		}

		list = append(list, s)
	}

	return list
}

// List returns the deliveries of a target, the oldest first. It is KindNotFound for a
// target that is not configured.
func (n *Notifier) List(target string) ([]api.Delivery, error) {
	if _, err := n.target(target); err != nil {
		return nil, err
	}

	list := []api.Delivery{}

	for _, d := range n.deliveries() {
		if d.Target == target {
			list = append(list, d.Delivery)
		}
	}

	return list, nil
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
	tried := access.Record{Action: "notifications.test", Targets: []string{name}}

	return access.Audited(ctx, n.Audit, c, tried, func(_ context.Context, _ *access.Record) error {
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

		n.retryNow() // the pending deliveries can go now

		return nil
	})
}

// Problem returns why some target cannot be used, or nil.
func (n *Notifier) Problem() error {
	for _, t := range n.Targets() {
		if u, is := t.Sender.(unusable); is {
			return fmt.Errorf("the notification target %s cannot be used: %w", t.Name, u.err)
		}
	}

	return nil
}

// patience is how long a target may accept nothing without a warning.
const patience = 5 * time.Minute

// Warning returns the warning about a target that accepts nothing, or "".
func (n *Notifier) Warning() string {
	target, since := n.Failing(patience)
	if target == "" {
		return ""
	}
	return fmt.Sprintf("the notification target %s has accepted nothing since %s; see clusterctl notification log %s",
		target, since.UTC().Format("2006-01-02 15:04:05 UTC"), target)
}

// Failing returns a target that has accepted nothing for at least the given time, and since
// when; an empty name if there is none.
func (n *Notifier) Failing(atLeast time.Duration) (name string, since time.Time) {
	failing, accepted := map[string]time.Time{}, map[string]time.Time{}

	for _, d := range n.deliveries() {
		switch _, known := failing[d.Target]; {
		case d.Status == Delivered && d.Last.After(accepted[d.Target]):
			accepted[d.Target] = *d.Last
		case d.Status == Pending && d.Attempts > 0 && !known:
			failing[d.Target] = d.Created
		}
	}

	for _, target := range slices.Sorted(maps.Keys(failing)) {
		if since = failing[target]; since.Before(accepted[target]) {
			since = accepted[target]
		}
		if _, err := n.target(target); err == nil && time.Since(since) >= atLeast {
			return target, since
		}
	}

	return "", time.Time{}
}

// Retry makes the Dead deliveries of a target pending again, and returns their number.
// The target is tried at once, with its pending deliveries as well.
func (n *Notifier) Retry(ctx context.Context, c access.Caller, name string) (count int, err error) {
	done := access.Record{Action: "notifications.retry", Targets: []string{name}}

	err = access.Audited(ctx, n.Audit, c, done, func(_ context.Context, _ *access.Record) error {
		list, err := n.List(name)
		if err != nil {
			return err
		}

		defer n.retryNow()

		for chunk := range slices.Chunk(list, batch) {
			again, _, err := record.Decide(ctx, n.Store, func(tx *record.Tx) (again int, err error) {
				for _, one := range chunk {
					now := record.Get(tx, &DeliveryKind, one.ID)
					if now == nil || now.Status != Dead {
						continue
					}

					// It has a day again.
					d := *now
					d.Status, d.Created, d.Retries = Pending, time.Now(), d.Retries+1
					record.Put(tx, &DeliveryKind, &d)

					again++
				}

				return again, nil
			})
			if err != nil {
				return err
			}
			count += again
		}

		return nil
	})

	return count, err
}
