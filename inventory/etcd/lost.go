// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	lostAfter = time.Second            // of a write, before its loss is considered
	lostEvery = 250 * time.Millisecond // between two looks at the leader then
)

// errLost ends a write that etcd would not answer for several seconds more.
var errLost = errors.New("etcd's leader changed while the change was on its way; it may have been made or not")

// isWrite has the requests that a member passes on to the leader.
var isWrite = map[string]bool{
	pb.KV_Put_FullMethodName:            true,
	pb.KV_Txn_FullMethodName:            true,
	pb.KV_DeleteRange_FullMethodName:    true,
	pb.Lease_LeaseGrant_FullMethodName:  true,
	pb.Lease_LeaseRevoke_FullMethodName: true,
}

// interceptWrite ends a write that got lost. A member passes a write on to the leader once,
// and waits for seven seconds if that ends meanwhile. By the time that a new leader is
// known, it was either carried over or is gone, so there is no use in waiting longer.
func (c *Client) interceptWrite(
	ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, next grpc.UnaryInvoker,
	opts ...grpc.CallOption,
) error {
	term := c.term.Load()
	if !isWrite[method] || term == 0 {
		return next(ctx, method, req, reply, conn, opts...)
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	watch := time.AfterFunc(lostAfter, func() { c.awaitLoss(ctx, term, cancel) })
	defer watch.Stop()

	err := next(ctx, method, req, reply, conn, opts...)
	if err != nil && errors.Is(context.Cause(ctx), errLost) {
		return status.Error(codes.Unavailable, errLost.Error())
	}

	return err
}

// awaitLoss cancels the write of ctx once a member has known a leader of a later term for a
// while. It ends with ctx.
func (c *Client) awaitLoss(ctx context.Context, term uint64, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(lostEvery)
	defer tick.Stop()

	for seen := 0; seen < 2; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}

		if c.serves(ctx, c.Endpoints()[0]) && c.term.Load() > term {
			seen++
		} else {
			seen = 0
		}
	}

	cancel(errLost)
}

// learnTerm keeps the newest term of a leader.
func (c *Client) learnTerm(term uint64) {
	for {
		known := c.term.Load()
		if term <= known || c.term.CompareAndSwap(known, term) {
			return
		}
	}
}
