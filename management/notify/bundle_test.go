// SPDX-License-Identifier: Apache-2.0

package notify_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/notify"
	"github.com/contiv/cluster/management/record"
)

// vanish adds count nodes that disappear, each some time after the one before.
func (m *memory) vanish(begin, count int, every time.Duration) {
	for i := begin; i < begin+count; i++ {
		c := nodeChange(int64(i+10), inventory.Allocated, inventory.Allocated)
		c.Node.Name, c.Node.State = fmt.Sprintf("n-%03d", i), inventory.Disappeared
		c.WasNode.Name = c.Node.Name
		m.add(c)
		time.Sleep(every)
		synctest.Wait()
	}
}

// told returns the delivered events: the number of messages, and of the events in them.
func told(t *testing.T, b *bench) (messages, events int) {
	t.Helper()

	list, err := b.List("a")
	if err != nil {
		t.Fatal(err)
	}

	for _, d := range list {
		if d.Status == notify.Delivered {
			messages++
			events += max(1, d.Event.Count)
		}
	}

	return messages, events
}

// TestStorm: of many events within a short time, the first ones go at once, and the
// others in one message with their number and the first names.
func TestStorm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, r := newMemory(), &receiver{}
		b := newBench(store, notify.Target{Name: "a", Events: everything, Sender: r})
		defer b.run(t)()

		settle()
		store.vanish(0, 200, 100*time.Millisecond)
		settle()

		if messages, _ := told(t, b); messages != 5 {
			t.Errorf("%d messages at once", messages)
		}

		// Another kind does not wait.
		store.add(nodeChange(500, inventory.Allocated, inventory.Quarantined))
		settle()

		if got := r.ids(); got[len(got)-1] != "500-node.status-n-1" {
			t.Errorf("delivered %v", got)
		}

		time.Sleep(time.Minute)
		settle()

		if messages, events := told(t, b); messages != 7 || events != 201 {
			t.Errorf("%d messages of %d events", messages, events)
		}

		list, _ := b.List("a")
		e := list[slices.IndexFunc(list, func(d api.Delivery) bool { return d.Event.Count > 0 })].Event

		if want := "195 times node.state: n-005, n-006, n-007, n-008, n-009, n-010, n-011, " +
			"n-012, n-013, n-014 and 185 more " +
			"(195 Disappeared)"; e.Count != 195 || e.Summary != want || len(e.Nodes) != 50 ||
			e.To != "Disappeared" ||
			e.Node != "" {
			t.Errorf("the message is %+v", e)
		}

		if n := len(
			slices.DeleteFunc(list, func(d api.Delivery) bool { return d.Status != notify.Bundled }),
		); n != 195 {
			t.Errorf("the log has %d bundled ones", n)
		}

		// After the storm, one event is one message at once.
		time.Sleep(time.Minute)
		store.vanish(600, 1, 0)
		settle()

		if messages, _ := told(t, b); messages != 8 {
			t.Errorf("%d messages after the storm", messages)
		}
	})
}

// TestStormLosesNothing: restarts, a receiver that is down and a store that fails lose
// and repeat no event of a storm.
func TestStormLosesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		r := &receiver{fail: func(int) error { return errors.New("down") }}
		b := newBench(store, notify.Target{Name: "a", Events: everything, Sender: r})
		stop := b.run(t)

		settle()

		// A restart in every phase: in the window, and after the bundle was stored.
		for part := range 4 {
			store.vanish(part*100, 100, 200*time.Millisecond)
			stop()
			b = newBench(store, b.target)
			stop = b.run(t)
		}

		time.Sleep(2 * time.Minute)
		stop()

		// The store takes no bundle for a while: its members wait.
		full := time.Now().Add(5 * time.Minute)
		store.Before = func(tx *record.Tx) error {
			for _, d := range written(tx) {
				if d.Event.Count > 0 && d.Attempts == 0 && time.Now().Before(full) {
					return errors.New("full")
				}
			}

			return nil
		}
		b = newBench(store, b.target)
		stop = b.run(t)

		store.vanish(400, 20, time.Millisecond)
		r.mu.Lock()
		r.fail = nil
		r.mu.Unlock()
		time.Sleep(time.Hour)
		settle()
		stop()

		messages, events := told(t, b)
		if events != 420 || messages > 40 {
			t.Errorf("%d events in %d messages", events, messages)
		}

		got := r.ids()
		slices.Sort(got)

		if n := len(slices.Compact(slices.Clone(got))); n != len(got) || n != messages {
			t.Errorf("%d requests with %d ids for %d messages", len(got), n, messages)
		}
	})
}

// TestSingle: a target with single gets each event.
func TestSingle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, r := newMemory(), &receiver{}
		defer newBench(store, notify.Target{Name: "a", Events: everything, Single: true, Sender: r}).run(t)()

		settle()
		store.vanish(0, 50, time.Millisecond)
		settle()

		if got := r.ids(); len(got) != 50 || strings.Contains(strings.Join(got, " "), "bundle") {
			t.Errorf("%d messages: %v", len(got), got)
		}
	})
}
