// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"time"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory"
)

const (
	// Patience is how long an outage of the manager may last.
	Patience = 5 * time.Minute

	minBackoff = 250 * time.Millisecond
	maxBackoff = 3 * time.Second
)

// outage reports the beginning and the end of each outage, and paces the retries.
type outage struct {
	note    func(string)
	suffix  string    // of the note at the beginning
	since   time.Time // zero: the manager is reachable
	backoff time.Duration
}

// over ends the outage, if there is one: the manager answered.
func (o *outage) over() {
	if !o.since.IsZero() {
		o.note("reconnected to the manager")
	}

	o.since, o.backoff = time.Time{}, 0
}

// begin starts an outage unless there is one already.
func (o *outage) begin(err error) {
	if o.since.IsZero() {
		o.since = time.Now()
		message := exit.Message(err)
		o.note(message + "; retrying for up to " + print.Duration(Patience) + o.suffix)
	}
}

// retry blocks until the next attempt is due. It returns err if another attempt
// is pointless: the failure is no outage, or the outage exceeds Patience.
func (o *outage) retry(ctx context.Context, err error) error {
	// A refusal does not go away by itself.
	if ctx.Err() != nil || inventory.KindOf(err) != inventory.KindUnavailable {
		return err
	}

	o.begin(err)

	if time.Since(o.since) >= Patience {
		return err
	}

	// Exponential backoff, which over resets.
	o.backoff = min(max(2*o.backoff, minBackoff), maxBackoff)

	return sleep(ctx, o.backoff)
}

// sleep blocks for d, or until ctx is done and then returns its cause.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()

	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
