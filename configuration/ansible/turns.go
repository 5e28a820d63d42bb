// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/contiv/cluster/inventory"
)

const (
	// logins is the number of ssh processes of one pool at a time, and share the number of
	// those for one named party: hosts that stand still cannot take all of them.
	logins = 16
	share  = 14

	// maxWaiting bounds the logins of one named party that wait for their turn.
	maxWaiting = 256
)

// turns shares logins between parties. The party with the fewest logins is next, and
// within it the one that has waited longest.
type turns struct {
	mu      sync.Mutex
	free    int
	held    map[string]int
	waiting []*waiter
}

// waiter is a login that waits for its turn.
type waiter struct {
	party string
	turn  chan struct{} // closed when it has come
}

func newTurns() *turns { return &turns{free: logins, held: map[string]int{}} }

// take waits for a turn of the party. The caller must call release.
func (t *turns) take(ctx context.Context, party string) (release func(), err error) {
	if ctx.Err() != nil {
		return nil, errors.New(noAttempt(ctx).Login)
	}

	w := &waiter{party, make(chan struct{})}
	if err := t.enqueue(w); err != nil {
		return nil, err
	}

	select {
	case <-w.turn:
		return func() { t.release(party) }, nil
	case <-ctx.Done():
		t.abandon(w)
		return nil, errors.New(noAttempt(ctx).Login)
	}
}

func (t *turns) enqueue(w *waiter) error {
	t.mu.Lock()
	defer t.mu.Unlock()

	before := 0
	for _, other := range t.waiting {
		if other.party == w.party {
			before++
		}
	}

	if w.party != "" && before >= maxWaiting {
		return inventory.Errorf(inventory.KindBusy, "%d logins of %s wait for their turn already",
			before, inventory.Shorten(w.party, 100)).Do("wait until some of them have ended")
	}

	t.waiting = append(t.waiting, w)
	t.grant()

	return nil
}

func (t *turns) release(party string) {
	t.mu.Lock()
	defer t.mu.Unlock()

	t.free++
	if t.held[party]--; t.held[party] == 0 {
		delete(t.held, party)
	}

	t.grant()
}

// abandon takes a waiter out of the queue, or gives back the turn that came meanwhile.
func (t *turns) abandon(w *waiter) {
	t.mu.Lock()
	i := slices.Index(t.waiting, w)

	if i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	}

	t.mu.Unlock()

	if i < 0 {
		t.release(w.party)
	}
}

// grant gives free turns to the next waiters. The caller holds the lock.
func (t *turns) grant() {
	for t.free > 0 {
		next := -1
		for i, w := range t.waiting {
			isFull := w.party != "" && t.held[w.party] >= share
			if !isFull && (next < 0 || t.held[w.party] < t.held[t.waiting[next].party]) {
				next = i
			}
		}

		if next < 0 {
			return
		}

		w := t.waiting[next]
		t.waiting = slices.Delete(t.waiting, next, next+1)
		t.free--
		t.held[w.party]++
		close(w.turn)
	}
}
