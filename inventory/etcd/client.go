// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/contiv/cluster/inventory"
)

// Schema is the version of the stored data that this build reads and writes.
const Schema = "1"

// requestTimeout bounds every single request to the store.
const requestTimeout = 10 * time.Second

// Client is a connection to etcd, and the prefix below which everything is kept.
type Client struct {
	*clientv3.Client
	Prefix string // starts with a slash, ends without
}

// Dial connects, waits until the store answers, and checks the schema of what
// it holds. Data of a newer version is refused.
func Dial(ctx context.Context, prefix string, endpoints ...string) (*Client, error) {
	c, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 5 * time.Second,
		MaxCallSendMsgSize: maxRequestSize, MaxCallRecvMsgSize: 1 << 30,
		// The server is on this host, or near: it is tried again soon.
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		})},
	})
	if err != nil {
		return nil, inventory.Errorf(inventory.KindUnavailable, "no connection to etcd: %w", err)
	}
	client := &Client{Client: c, Prefix: prefix}
	if err := client.await(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return client, nil
}

func (c *Client) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		err := c.schema(ctx)
		if err == nil || inventory.KindOf(err) != inventory.KindUnavailable {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (c *Client) schema(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	key := c.Prefix + "/schema"
	resp, err := c.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, Schema)).Else(clientv3.OpGet(key)).Commit()
	if err != nil {
		return Error(err)
	}
	if resp.Succeeded {
		return nil
	}
	if got := string(resp.Responses[0].GetResponseRange().Kvs[0].Value); got != Schema {
		return inventory.Errorf(inventory.KindRefused, "the stored data has version %s, this clusterm knows version %s", got, Schema).
			Do("start the clusterm that wrote it, or a newer one")
	}
	return nil
}

// Bounded is a context for one request to the store.
func Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, requestTimeout)
}

// Error gives an error of the client its kind.
func Error(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	switch {
	case errors.Is(err, rpctypes.ErrCompacted), errors.Is(err, rpctypes.ErrFutureRev):
		return inventory.Errorf(inventory.KindConflict, "%w", err)
	case errors.Is(err, rpctypes.ErrRequestTooLarge):
		return inventory.Errorf(inventory.KindTooLarge, "the record is larger than the store takes: %w", err)
	case errors.Is(err, rpctypes.ErrNoSpace):
		return inventory.Errorf(inventory.KindUnavailable, "the store has no space left: %w", err).
			Do("lower the retention of jobs, compact and defragment etcd, then disarm its alarm")
	}
	code := status.Code(err)
	if code == codes.InvalidArgument && strings.Contains(err.Error(), "larger than max") || code == codes.ResourceExhausted {
		return inventory.Errorf(inventory.KindTooLarge, "the record is larger than the store takes: %w", err)
	}
	return inventory.Errorf(inventory.KindUnavailable, "the store does not answer: %w", err).Do("see the log of clusterm and the state of etcd")
}
