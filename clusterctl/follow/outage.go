// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory"
)

const (
	// Patience is how long an outage of the manager may last.
	Patience = 5 * time.Minute

	minBackoff = 250 * time.Millisecond // before jitter
	maxBackoff = 3 * time.Second        // with jitter
	jitter     = 0.5                    // of a delay, in both directions
)

// newBackoff returns the delays between attempts: exponential, with jitter.
func newBackoff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = minBackoff, time.Duration(float64(maxBackoff)/(1+jitter))
	b.RandomizationFactor, b.Multiplier = jitter, 2
	b.Reset()
	return b
}

// Retry repeats an attempt while the manager does not answer, and notes the outage. again is set
// if an earlier attempt may have been carried out.
func Retry(ctx context.Context, note func(string), attempt func(again bool) error) error {
	o := newOutage(note, "")
	for again := false; ; again = true {
		err := attempt(again)
		if err == nil {
			o.over()
			return nil
		}

		if err := o.retry(ctx, err); err != nil {
			return err
		}
	}
}

// outage reports the beginning and the end of each outage, and paces the retries.
type outage struct {
	note    func(string)
	suffix  string    // of the note at the beginning
	since   time.Time // zero: the manager is reachable
	backoff *backoff.ExponentialBackOff
}

func newOutage(note func(string), suffix string) *outage {
	return &outage{note: note, suffix: suffix, backoff: newBackoff()}
}

// over ends the outage, if there is one: the manager answered.
func (o *outage) over() {
	if !o.since.IsZero() {
		o.note("reconnected to the manager")
	}

	o.since = time.Time{}
	o.backoff.Reset()
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

	return sleep(ctx, o.backoff.NextBackOff())
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
