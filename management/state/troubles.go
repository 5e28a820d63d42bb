// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/contiv/cluster/inventory"
)

const (
	// troubling is the time from which on a wait of the manager for its own parts is a trouble.
	troubling   = time.Second
	maxTroubles = 64 // that are kept
)

// Troubles are those of the manager itself, as this process saw them: what failed on hosts meanwhile may be their
// consequence. A nil one has none. All methods may be called at once.
type Troubles struct {
	mu       sync.Mutex
	noted    []trouble
	standing []func() string
}

type trouble struct {
	text string // with a verb for the time that it took
	at   time.Time
	took time.Duration
}

const (
	slowStore = "its store took %s to answer"
	noTurn    = "its process got no processor time for %s"
)

func (t *Troubles) note(text string, took time.Duration, now time.Time) {
	if took < troubling {
		return
	}

	t.mu.Lock()
	defer t.mu.Unlock()

	t.noted = append(t.noted, trouble{text, now, took})
	t.noted = t.noted[max(0, len(t.noted)-maxTroubles):]
}

// Probed notes how long the store took to answer.
func (t *Troubles) Probed(took time.Duration, now time.Time) { t.note(slowStore, took, now) }

// Stand adds a trouble that lasts until it is mended: what says returns it, or "". It is for the start.
func (t *Troubles) Stand(says func() string) { t.standing = append(t.standing, says) }

// Watch notes whether the process gets its turns, until ctx ends: a timer that fires late had none.
func (t *Troubles) Watch(ctx context.Context) {
	const every = time.Second

	tick := time.NewTicker(every)
	defer tick.Stop()

	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}

		now := time.Now()
		t.note(noTurn, now.Sub(last)-every, now)
		last = now
	}
}

// During describes the worst of each kind between two times, and what stands now.
func (t *Troubles) During(from, to time.Time) (texts []string) {
	if t == nil {
		return nil
	}

	for _, says := range t.standing {
		if text := says(); text != "" {
			texts = append(texts, text)
		}
	}

	t.mu.Lock()
	defer t.mu.Unlock()

	for _, kind := range []string{slowStore, noTurn} {
		var worst trouble

		for _, n := range t.noted {
			if n.text == kind && !n.at.Before(from) && n.at.Add(-n.took).Before(to) && n.took > worst.took {
				worst = n
			}
		}

		if worst.took > 0 {
			took := inventory.ShortDuration(worst.took.Round(100 * time.Millisecond))
			texts = append(texts, fmt.Sprintf(kind+", until %s", took, worst.at.UTC().Format(time.RFC3339)))
		}
	}

	return texts
}
