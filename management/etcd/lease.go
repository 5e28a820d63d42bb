// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/cluster/inventory/etcd"
)

// jobLease is the lease of the ownership of a job. It is renewed here, not by the client library:
// it counts as expired by a clock that starts before each request, so never later than in etcd,
// even if this process was paused.
type jobLease struct {
	client *etcd.Client
	id     clientv3.LeaseID
	ttl    time.Duration
	stop   context.CancelFunc
	done   chan struct{} // closed when the lease has expired, or is renewed no more

	mu      sync.Mutex
	expires time.Time
}

// keepLease renews a lease that was requested at begun, until release.
func keepLease(
	ctx context.Context,
	client *etcd.Client,
	id clientv3.LeaseID,
	ttl time.Duration,
	begun time.Time,
) *jobLease {
	l := &jobLease{client: client, id: id, ttl: ttl, done: make(chan struct{}), expires: begun.Add(ttl)}
	ctx, l.stop = context.WithCancel(context.WithoutCancel(ctx)) // it outlives a job

	go l.keep(ctx)
	return l
}

// valid reports whether no other instance can own what is under the lease.
func (l *jobLease) valid() bool { return time.Now().Before(l.until()) }

// until returns the time until which no other instance can own what is under the lease.
func (l *jobLease) until() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.expires
}

// release ends the renewals. The lease is left as it is.
func (l *jobLease) release() {
	l.stop()
	<-l.done
}

func (l *jobLease) keep(ctx context.Context) {
	defer close(l.done)
	defer l.stop()

	timer := time.NewTimer(l.ttl / 5)
	defer timer.Stop()

	for l.valid() {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}

		// Runs end with the lease, so an etcd that elects a leader is asked again soon.
		err := l.renew(ctx)

		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			return
		case err != nil:
			timer.Reset(l.ttl / 30)
		default:
			timer.Reset(l.ttl / 5)
		}
	}
}

// renew extends the lease. It gives up when the lease expires, and before that while another attempt may succeed: the
// member that is asked may wait for a leader that is cut off.
func (l *jobLease) renew(ctx context.Context) error {
	begun := time.Now()

	end := begun.Add(max(l.ttl/5, time.Second))
	if until := l.until(); until.Before(end) {
		end = until
	}

	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()

	if _, err := l.client.KeepAliveOnce(ctx, l.id); err != nil {
		return err
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	l.expires = begun.Add(l.ttl)

	return nil
}
